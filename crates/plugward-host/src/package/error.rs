//! What can be wrong with a package folder. Texts name the path and, where there is one, the way out.

use std::io;
use std::path::{Path, PathBuf};

use super::shown;

/// A package that cannot be found, read, copied or hashed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// Nothing lies at the path.
    #[error("`{}` does not exist", shown(path))]
    NotFound {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A folder without any of the manifest names.
    #[error("`{}` holds no manifest, looked for {looked_for}", shown(path))]
    NoManifest {
        /// The folder that was searched.
        path: PathBuf,
        /// The names that were looked for, as a sentence part.
        looked_for: String,
    },
    /// A file was given whose name cannot be a manifest's.
    #[error("`{}` is no manifest, expected a folder or a file ending in .yaml, .yml or .json", shown(path))]
    NotAManifest {
        /// The file.
        path: PathBuf,
    },
    /// The manifest is a link, a folder or a special file.
    #[error("manifest `{}` is {found}, it must be a regular file", shown(path))]
    ManifestNotRegular {
        /// The manifest's path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The manifest has more bytes than one may have.
    #[error("manifest `{}` is larger than {limit_bytes} bytes", shown(path))]
    ManifestTooLarge {
        /// The manifest's path.
        path: PathBuf,
        /// The bound that was passed.
        limit_bytes: u64,
    },
    /// The manifest is not UTF-8.
    #[error("manifest `{}` is not UTF-8 text, byte {offset} is the first that does not fit", shown(path))]
    ManifestNotText {
        /// The manifest's path.
        path: PathBuf,
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// The package would be the root of the file system.
    #[error("`{}` is the root of the file system, a package is a folder of its own", shown(path))]
    RootFolder {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The package path is not a folder.
    #[error("`{}` is not a folder", shown(path))]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The target of a copy is there already.
    #[error("`{}` exists already, a package is only copied to a new folder", shown(path))]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target of a copy lies inside its source.
    #[error("`{}` lies inside the package `{}`, the copy would contain itself", shown(target), shown(source_dir))]
    TargetInsideSource {
        /// The package folder.
        source_dir: PathBuf,
        /// Where it should have been copied to.
        target: PathBuf,
    },
    /// A socket, pipe or device.
    #[error("`{}` is {found}, a package holds only files, folders and links", shown(path))]
    SpecialFile {
        /// Where it lies.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// One of [`super::PackageLimits`] was passed.
    #[error("package `{}` has more than {limit}", shown(path))]
    TooLarge {
        /// The package folder.
        path: PathBuf,
        /// The bound that was passed.
        limit: PackageLimit,
    },
    /// Something changed while it was read, for instance a folder that became a link.
    #[error("`{}` changed while the package was read, try again when nothing writes to it", shown(path))]
    Changed {
        /// What changed.
        path: PathBuf,
    },
    /// The operating system refused a step.
    #[error("`{}` cannot be {step}: {source}", shown(path))]
    Os {
        /// The path the step was about.
        path: PathBuf,
        /// What was tried, as a participle: read, listed, written, ….
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// The bound of a package that was passed, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageLimit {
    /// Files, folders and links together.
    Files(u64),
    /// Bytes of all regular files.
    Bytes(u64),
    /// Folders inside folders.
    Depth(usize),
}

impl std::fmt::Display for PackageLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Files(n) => write!(f, "{n} files, folders and links"),
            Self::Bytes(n) => write!(f, "{n} bytes"),
            Self::Depth(n) => write!(f, "{n} folders inside each other"),
        }
    }
}

impl PackageError {
    /// Wraps an error of the operating system with the path and the step it belongs to.
    pub(crate) fn os(path: impl AsRef<Path>, step: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Os { path: path.as_ref().to_owned(), step, source: source.into() }
    }
}
