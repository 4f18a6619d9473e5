//! One look at the folders of plugin files.
//!
//! A plugin is a file `*.yaml`, `*.yml` or `*.json`, which then is all there is of it, or a folder with a `plugin.yaml`,
//! `plugin.yml` or `plugin.json`, which then is its package. Hidden names are somebody's temporary files and are passed
//! over. Links are followed, so that a link that is swapped swaps the plugin. Owns the reading and its bounds. Refuses to
//! conclude anything from what it cannot read.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plugward_policy::parse_manifest;
use sha2::{Digest as _, Sha256};

use super::FolderSettings;
use super::plan::{Found, Scan};
use crate::host::PluginFile;
use crate::package::{self, MANIFEST_NAMES, PackageError};

/// Plugins looked at in all folders together: more than anybody runs, and few enough to read at each look.
pub const MAX_PLUGIN_FILES: usize = 2000;

/// Folders below each other that are looked through with `recursive`.
const MAX_DEPTH: usize = 8;

/// Age below which a file may still be being written.
const FRESH: Duration = Duration::from_secs(2);

/// Entries of one package whose marks are compared; what has more is copied, hashed and refused by the package's own
/// limits, and until then any change in its first entries is noticed.
const MAX_PACKAGE_MARKS: usize = 100_000;

/// What a look brought: the findings, and what is needed to load them.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) scan: Scan,
    pub(super) files: BTreeMap<PathBuf, PluginFile>,
    /// Whether something was written just now, so that it may not be whole.
    pub(super) is_fresh: bool,
    /// Folders whose changes matter.
    pub(super) folders: Vec<PathBuf>,
}

/// Looks at everything there is now.
pub(super) fn look(settings: &FolderSettings) -> Look {
    let mut look = Look::default();
    for folder in &settings.folders {
        let source = folder.display().to_string();
        look.folder(folder, &source, settings.recursive, 0);
    }
    look
}

impl Look {
    fn folder(&mut self, folder: &Path, source: &str, is_recursive: bool, depth: usize) {
        let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let mut entries = match entries {
            Ok(entries) => entries,
            // Made later, perhaps: whoever makes it is noticed in the folder above.
            Err(error) => {
                if let Some(above) = folder.parent() {
                    self.folders.push(above.to_owned());
                }
                let reason = format!("folder of plugin files cannot be read: {error}; its plugins stay as they are");
                self.scan.unreadable.insert(folder.to_owned(), reason);
                return;
            }
        };
        self.folders.push(folder.to_owned());
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if entry.file_name().as_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            // Through links. What cannot be looked at is not gone: only an entry that went since the folder was read is.
            let found = match fs::metadata(&path) {
                Ok(found) => found,
                Err(_) if is_absent(&path) => continue,
                Err(error) => {
                    self.take(path.clone(), Err(PackageError::os(&path, "read", error)));
                    continue;
                }
            };
            if self.scan.files.len() >= MAX_PLUGIN_FILES {
                let reason = format!("folders of plugin files hold more than {MAX_PLUGIN_FILES} plugins");
                self.scan.unreadable.insert(folder.to_owned(), reason);
                return;
            }
            self.is_fresh |= found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age < FRESH));
            if found.is_file() && is_plugin_name(&path) {
                self.single(&path, source);
            } else if found.is_dir() {
                let manifest = MANIFEST_NAMES.iter().map(|name| path.join(name)).find(|path| !is_absent(path));
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                match manifest {
                    Some(manifest) => self.package(path, &manifest, source),
                    // A link could lead round in circles.
                    None if is_recursive && !is_link && depth < MAX_DEPTH => {
                        self.folder(&path, source, is_recursive, depth + 1);
                    }
                    // A manifest may be written into it yet.
                    None => self.folders.push(path),
                }
            }
        }
    }

    /// A file that is all there is of its plugin.
    fn single(&mut self, path: &Path, source: &str) {
        let text = path
            .canonicalize()
            .map_err(|error| PackageError::os(path, "read", error))
            .and_then(|target| package::read_manifest(&target));
        let file = |text: String| {
            // One name for all: what the file is called, its ending too, is no part of what was approved.
            let name = MANIFEST_NAMES[0];
            let digest = digest_of(&[name.as_bytes(), text.as_bytes()]);
            PluginFile {
                path: path.to_owned(),
                source: source.to_owned(),
                manifest_name: name.into(),
                text,
                package: None,
                digest,
            }
        };
        self.take(path.to_owned(), text.map(file));
    }

    fn package(&mut self, path: PathBuf, manifest: &Path, source: &str) {
        let file = package::read_manifest(manifest).map(|text| {
            let marks = marks(&path, &mut self.folders);
            let digest = digest_of(&[text.as_bytes(), marks.as_slice()]);
            let manifest_name = manifest.file_name().unwrap_or_default().to_owned();
            // Copies are made of folders, not of links to them.
            let package = Some(path.canonicalize().unwrap_or_else(|_| path.clone()));
            PluginFile { path: path.clone(), source: source.to_owned(), manifest_name, text, package, digest }
        });
        self.take(path, file);
    }

    fn take(&mut self, path: PathBuf, file: Result<PluginFile, PackageError>) {
        let bad = |reasons: Vec<String>, text: &str| Found::Bad { digest: digest_of(&[text.as_bytes()]), reasons };
        let found = match &file {
            Err(error) => bad(vec![error.to_string()], &error.to_string()),
            Ok(file) => {
                // A package is named by its manifest: that is where the positions are.
                let shown = match &file.package {
                    Some(package) => package.join(&file.manifest_name),
                    None => file.path.clone(),
                };
                match parse_manifest(&file.text, &shown.display().to_string()) {
                    Ok(parsed) => Found::Plugin { id: parsed.manifest.id, digest: file.digest.clone() },
                    Err(error) => bad(error.diagnostics().iter().map(ToString::to_string).collect(), &file.text),
                }
            }
        };
        self.scan.files.insert(path.clone(), found);
        if let Ok(file) = file {
            self.files.insert(path, file);
        }
    }
}

/// Whether there is no such entry; one that cannot be looked at is there.
fn is_absent(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

fn is_plugin_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// What changes when anything of a package does, without reading its files: names, kinds, sizes, and the time of the last
/// change, which no program can set back.
fn marks(package: &Path, folders: &mut Vec<PathBuf>) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut left = MAX_PACKAGE_MARKS;
    let mut open = vec![package.to_owned()];
    while let Some(folder) = open.pop() {
        folders.push(folder.clone());
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, found) = (entry.path(), entry.metadata());
            if left == 0 || entry.file_name() == ".git" {
                continue;
            }
            left -= 1;
            hash.update(path.as_os_str().as_bytes());
            if let Ok(found) = found {
                hash.update(mark(&found));
                if found.is_dir() {
                    open.push(path);
                }
            }
        }
    }
    hash.finalize().to_vec()
}

fn mark(found: &Metadata) -> Vec<u8> {
    // A folder changes whenever something in it comes or goes, which its entries tell already.
    let changed = if found.is_dir() { [0, 0] } else { [found.ctime(), found.ctime_nsec()] };
    let numbers = [i64::from(found.mode()), changed[0], changed[1]].map(i64::to_be_bytes);
    [
        numbers.concat(),
        found.ino().to_be_bytes().to_vec(),
        if found.is_dir() { vec![] } else { found.size().to_be_bytes().to_vec() },
    ]
    .concat()
}

fn digest_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: &str) -> String {
        format!("id: {id}\nname: Demo\nversion: 1.0.0\nbackend: {{type: mcp, transport: stdio, command: x}}\n")
    }

    fn found(folder: &Path, is_recursive: bool) -> Vec<(String, String)> {
        let settings = FolderSettings { recursive: is_recursive, ..FolderSettings::of(folder) };
        let look = look(&settings);
        let word = |found: &Found| match found {
            Found::Plugin { id, .. } => id.to_string(),
            Found::Bad { reasons, .. } => format!("bad: {}", reasons.join("; ")),
            Found::Unsettled => "unsettled".to_owned(),
        };
        let name = |path: &Path| path.strip_prefix(folder).unwrap().display().to_string();
        look.scan.files.iter().map(|(path, found)| (name(path), word(found))).collect()
    }

    #[test]
    fn files_and_packages_are_found_in_order_and_one_bad_file_stops_nothing() {
        // Requirement 186: as the seed discovers, and with the position of what is wrong.
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("b.yml", &manifest("b"));
        write("A.YAML", &manifest("a"));
        write(
            "c.json",
            r#"{"id":"c","name":"C","version":"1","backend":{"type":"mcp","transport":"stdio","command":"x"}}"#,
        );
        write("bad.yaml", "id: bad\nnaem: x\n");
        write("pack/plugin.yaml", &manifest("pack"));
        write("pack/run.sh", "exit 0\n");
        write("deep/er/d.yaml", &manifest("d"));
        for passed_over in [".hidden.yaml", ".b.yml.swp", "notes.txt", "e.yaml~", "#e.yaml#"] {
            write(passed_over, "id: nobody\n");
        }
        let names = |found: Vec<(String, String)>| found.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let flat = found(folder.path(), false);
        let bad = flat.iter().find(|(name, _)| name == "bad.yaml").unwrap().1.clone();
        assert!(bad.contains("bad.yaml:2:1") && bad.contains("did you mean `name`?"), "{bad}");
        assert_eq!(names(flat), ["A.YAML", "b.yml", "bad.yaml", "c.json", "pack"]);
        assert_eq!(
            names(found(folder.path(), true)),
            ["A.YAML", "b.yml", "bad.yaml", "c.json", "deep/er/d.yaml", "pack"]
        );
    }

    #[test]
    fn every_change_of_a_package_shows_and_no_look_does() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("pack");
        fs::create_dir_all(package.join("lib")).unwrap();
        fs::write(package.join("plugin.yaml"), manifest("pack")).unwrap();
        fs::write(package.join("lib/a"), "1").unwrap();
        let digest = || look(&FolderSettings::of(folder.path())).files[&package].digest.clone();
        let mut seen = vec![digest()];
        assert_eq!(digest(), seen[0]);
        // The clock of a file system may stand still for some milliseconds: written until it moved on.
        let mut now = digest();
        while now == seen[0] {
            fs::write(package.join("lib/a"), "2").unwrap();
            now = digest();
        }
        seen.push(now);
        let steps: [&dyn Fn(); 3] = [
            &|| fs::write(package.join("lib/b"), "").unwrap(),
            &|| fs::rename(package.join("lib/b"), package.join("lib/c")).unwrap(),
            &|| fs::write(package.join("plugin.yaml"), manifest("pack") + "\n").unwrap(),
        ];
        for step in steps {
            step();
            let now = digest();
            assert!(!seen.contains(&now), "change {} did not show", seen.len());
            seen.push(now);
        }
    }

    #[test]
    fn a_swapped_link_is_another_file_and_a_folder_that_is_away_is_no_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (plugins, versions) = (folder.path().join("plugins"), folder.path().join("versions"));
        fs::create_dir_all(&versions).unwrap();
        let missing = look(&FolderSettings::of(&plugins));
        assert!(missing.scan.files.is_empty() && missing.scan.unreadable.contains_key(&plugins));
        assert_eq!(missing.folders, [folder.path()]);
        fs::create_dir_all(&plugins).unwrap();
        for version in ["1", "2"] {
            fs::write(versions.join(version), manifest("linked") + &format!("description: v{version}\n")).unwrap();
        }
        let link = plugins.join("linked.yaml");
        let mut digests = Vec::new();
        for version in ["1", "2"] {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(versions.join(version), &link).unwrap();
            digests.push(look(&FolderSettings::of(&plugins)).files[&link].digest.clone());
        }
        assert_ne!(digests[0], digests[1]);
        fs::remove_file(versions.join("2")).unwrap();
        let dangling = look(&FolderSettings::of(&plugins)).scan.files;
        assert!(matches!(dangling[&link], Found::Bad { .. }), "a link that leads nowhere is there, and no plugin");
    }

    #[test]
    fn what_cannot_be_looked_at_is_a_problem_and_not_gone() {
        // Who takes an error for a deletion deletes data: a link to itself, or a manifest behind one.
        let folder = tempfile::tempdir().unwrap();
        let turning = folder.path().join("a.yaml");
        std::os::unix::fs::symlink(&turning, &turning).unwrap();
        let package = folder.path().join("pack");
        fs::create_dir(&package).unwrap();
        std::os::unix::fs::symlink("plugin.yaml", package.join("plugin.yaml")).unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        let found = found(folder.path(), false);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.yaml", "pack"]);
        assert!(found.iter().all(|(_, word)| word.starts_with("bad: ")), "{found:?}");
    }
}
