//! Owns the tidy checks: rules about the shape of the repository that no compiler checks. Each check is a function
//! from the tree (and the dependency graph) to findings, so that every one of them can be shown a bad sample in a test.
//! Refuses to change files: a finding names the place and the fix, a person makes it.

mod dependencies;
mod documents;
mod files;
mod functions;
mod licences;
mod map;
mod sources;
mod spdx;
mod tokens;
mod words;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Job;
use crate::tools;

/// Listing tracked files is instant; the margin is for a cold disk.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// One broken rule, at one place, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// File, relative to the workspace.
    pub(crate) path: String,
    /// Line from 1, or 0 when the finding is about the whole file.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) fix: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, message, fix } = self;
        if *line == 0 {
            write!(f, "{path}")?;
        } else {
            write!(f, "{path}:{line}")?;
        }
        write!(f, ": {message}; {fix}")
    }
}

/// The text files of the repository, in memory.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<SourceFile>,
}

/// One text file with its path relative to the workspace.
#[derive(Debug)]
pub(crate) struct SourceFile {
    path: String,
    text: String,
}

impl Tree {
    /// Reads every file that git tracks or would track. Files that are no UTF-8 text are left out.
    fn read(root: &Path) -> Result<Self> {
        let listing = Job::new("git", "git ls-files", LIST_LIMIT)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .dir(root)
            .run()?
            .success()?;
        let mut files = Vec::new();
        for path in listing.stdout.split('\0').filter(|path| !path.is_empty()) {
            let full = root.join(path);
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("`{path}` cannot be read"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(Self { files })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() });
        Self { files: files.collect() }
    }
}

/// Runs every check; prints findings and fails if there are any. `verbose` also prints what is close to a limit.
pub(crate) fn run(verbose: bool) -> Result<()> {
    let root = tools::workspace_root()?;
    let tree = Tree::read(&root)?;
    let metadata = tools::cargo_metadata(&root)?;
    let graph = dependencies::Graph::from_metadata(&metadata)?;

    let mut findings = Vec::new();
    findings.extend(files::too_long(&tree));
    findings.extend(files::without_module_docs(&tree));
    findings.extend(functions::too_long(&tree));
    findings.extend(dependencies::wrong_direction(&graph));
    findings.extend(dependencies::confined(&graph));
    findings.extend(licences::not_allowed(&metadata));
    findings.extend(licences::banned(&metadata));
    findings.extend(licences::lists_differ(&tree));
    findings.extend(map::crates_and_map_differ(&tree, &graph));
    findings.extend(sources::unsafe_outside_sandbox(&tree));
    findings.extend(sources::spawning_outside_sandbox(&tree));
    findings.extend(sources::unfinished(&tree));
    findings.extend(words::forbidden(&tree));
    findings.extend(documents::error_codes_differ(&tree));
    findings.extend(documents::cited_tests_missing(&tree));
    findings.extend(documents::unlinked(&tree));
    findings.extend(documents::dead_links(&tree, &root));

    if verbose {
        for remark in files::near_limit(&tree).into_iter().chain(functions::near_limit(&tree)) {
            println!("note: {remark}");
        }
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("tidy: {} files, nothing to say", tree.files.len());
    Ok(())
}
