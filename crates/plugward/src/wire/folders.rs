//! The folders of plugin files, as of the last look at them.

use plugward_host::{FileProblem, FoldersView};
use serde::{Deserialize, Serialize};

/// What lies in the folders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoldersBody {
    /// Plugins that come from files.
    pub(crate) plugins: usize,
    /// Files that are not what runs, and folders that cannot be read.
    pub(crate) problems: Vec<FileProblemBody>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileProblemBody {
    /// The file or folder.
    pub(crate) path: String,
    /// What is wrong, one line each, with positions.
    pub(crate) reasons: Vec<String>,
    /// The plugin that goes on as it was before, if there is one.
    pub(crate) keeps: Option<String>,
}

impl From<&FoldersView> for FoldersBody {
    fn from(view: &FoldersView) -> Self {
        Self { plugins: view.plugins, problems: view.problems.iter().map(FileProblemBody::from).collect() }
    }
}

impl From<&FileProblem> for FileProblemBody {
    fn from(problem: &FileProblem) -> Self {
        Self {
            path: problem.path.display().to_string(),
            reasons: problem.reasons.clone(),
            keeps: problem.keeps.as_ref().map(ToString::to_string),
        }
    }
}
