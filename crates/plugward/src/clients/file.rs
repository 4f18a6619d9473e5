//! A settings file of somebody else's: read whole, written whole.
//!
//! Owns the size limit, the backup, and a write that a crash cannot leave half done: a new file beside it takes its
//! place, with its mode, behind a symbolic link if there is one. Refuses to write over what has changed since it was
//! read.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Largest file read. Claude Code keeps much of its state in one, some megabytes of it.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Links followed before a file counts as lost in a circle; the kernel has the same limit.
const LINKS_MAX: usize = 40;

/// What can go wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("settings file `{path}` cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is larger than settings are.
    #[error("settings file `{path}` is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// It is no text.
    #[error("settings file `{path}` is not UTF-8 text")]
    NotText {
        /// The file.
        path: String,
    },
    /// It cannot be written.
    #[error("settings file `{path}` cannot be written: {source}")]
    Unwritable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Our own record cannot be understood.
    #[error(
        "record `{path}` of what was written is damaged: {why}; mend it, or move it away: then our entries are still \
         found and taken out, but no file is put back to the byte"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, with its place.
        why: String,
    },
    /// Somebody wrote it meanwhile.
    #[error("settings file `{path}` was changed by another program meanwhile, and is left as it is")]
    Changed {
        /// The file.
        path: String,
    },
}

impl FileError {
    /// A record that is not what we wrote.
    pub(crate) fn damaged(path: &Path, error: &serde_json::Error) -> Self {
        Self::Damaged { path: shown(path), why: plugward_policy::visible(&error.to_string()) }
    }
}

fn shown(path: &Path) -> String {
    plugward_policy::visible(&path.display().to_string())
}

/// The text of a file; none if it is not there.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: shown(path), source };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is no file")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: shown(path) });
    }
    String::from_utf8(bytes).map(Some).map_err(|_| FileError::NotText { path: shown(path) })
}

/// Makes the folders of a file that are missing, and gives them, outermost first.
pub(crate) fn make_folders(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let Some(parent) = path.parent() else { return Ok(Vec::new()) };
    let mut missing: Vec<PathBuf> =
        parent.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
    missing.reverse();
    let unwritable = |source| FileError::Unwritable { path: shown(path), source };
    fs::create_dir_all(parent).map_err(unwritable)?;
    for folder in &missing {
        fs::File::open(folder).and_then(|made| adopt(&made, folder)).map_err(unwritable)?;
    }
    Ok(missing)
}

/// Puts `new` in the place of `old`; none is a file that is not there.
pub(crate) fn replace(path: &Path, old: Option<&str>, new: Option<&str>) -> Result<(), FileError> {
    let unwritable = |source| FileError::Unwritable { path: shown(path), source };
    let target = behind_links(path).map_err(unwritable)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(new) = new else {
        check(path, old)?;
        return fs::remove_file(&target).map_err(unwritable);
    };
    let known = match fs::metadata(&target) {
        Ok(facts) => Some(facts),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unwritable(error)),
    };
    let mut file = tempfile::Builder::new().prefix(".plugward-").tempfile_in(folder).map_err(unwritable)?;
    file.write_all(new.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(unwritable)?;
    // A temporary file is for its owner alone, which is right for a new one: settings hold secrets.
    match known {
        Some(known) => keep_access(file.as_file(), &known).map_err(unwritable)?,
        None => adopt(file.as_file(), file.path()).map_err(unwritable)?,
    }
    check(path, old)?;
    file.persist(&target).map_err(|error| unwritable(error.error))?;
    // The name is on the disk once its folder is. A file system that cannot do that has written it all the same.
    let _ = fs::File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Gives a new file the owner, group and mode of the one whose place it takes. Under `sudo` it would else be root's, and
/// the agent could no longer read its own settings.
fn keep_access(file: &fs::File, known: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = known.mode() & 0o7777;
    if new.uid() != known.uid() {
        fchown(file, Some(known.uid()), None)?;
    }
    if new.gid() != known.gid() && fchown(file, None, Some(known.gid())).is_err() {
        // Only root may give a file to any group. What the old group could do, ours must not be able to.
        mode &= !0o070;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// Gives what root has just made to whoever has the folder it is in.
fn adopt(made: &fs::File, path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let facts = fs::metadata(folder)?;
    fchown(made, Some(facts.uid()), Some(facts.gid()))
}

fn check(path: &Path, old: Option<&str>) -> Result<(), FileError> {
    if read(path)?.as_deref() == old { Ok(()) } else { Err(FileError::Changed { path: shown(path) }) }
}

/// The file that a path means in the end, also one that is not there yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Writes a copy that only its owner can read, in a folder that only its owner can open.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    let unwritable = |source| FileError::Unwritable { path: shown(path), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folders(path)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(unwritable)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder).map_err(unwritable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(unwritable)?;
    adopt(file.as_file(), file.path()).map_err(unwritable)?;
    file.persist(path).map_err(|error| unwritable(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_behind_links_keeps_its_mode_and_its_links() {
        // Settings kept in a repository of dot files are links: one that became a file would no longer be kept there.
        let folder = tempfile::tempdir().unwrap();
        let (real, middle, link) = (folder.path().join("real"), folder.path().join("middle"), folder.path().join("l"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        symlink("real", &middle).unwrap();
        symlink(&middle, &link).unwrap();
        replace(&link, Some("old"), Some("new")).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(
            fs::symlink_metadata(&link).unwrap().is_symlink() && fs::symlink_metadata(&middle).unwrap().is_symlink()
        );
        replace(&link, Some("new"), None).unwrap();
        assert_eq!(read(&link).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file stays");
    }

    #[test]
    fn the_owner_stays_the_owner() {
        // `sudo plugward connect` must not leave an agent with settings that only root can read.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        fs::write(&path, "old").unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let other = if is_root { 12345 } else { rustix::process::geteuid().as_raw() };
        for known in [folder.path(), &path] {
            std::os::unix::fs::chown(known, Some(other), None).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, Some("old"), Some("new")).unwrap();
        let facts = fs::metadata(&path).unwrap();
        assert_eq!((facts.uid(), facts.mode() & 0o777), (other, 0o640));
        // What is new belongs to whoever has the folder.
        let new = folder.path().join("a/b/settings.json");
        make_folders(&new).unwrap();
        replace(&new, None, Some("new")).unwrap();
        write_private(&folder.path().join("c/copy"), "copy").unwrap();
        for made in ["a", "a/b", "a/b/settings.json", "c", "c/copy"] {
            assert_eq!(fs::metadata(folder.path().join(made)).unwrap().uid(), other, "{made}");
        }
    }

    #[test]
    fn what_another_program_wrote_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        fs::write(&path, "theirs").unwrap();
        for (old, new) in [(Some("ours"), Some("new")), (None, Some("new")), (Some("ours"), None)] {
            assert!(matches!(replace(&path, old, new), Err(FileError::Changed { .. })), "{old:?} {new:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
        replace(&path, Some("theirs"), Some("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_new_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/settings.json");
        let made = make_folders(&path).unwrap();
        assert_eq!(made, [folder.path().join("a"), folder.path().join("a/b")]);
        replace(&path, None, Some("new")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(make_folders(&path).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_no_settings_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path()), Err(FileError::Unreadable { .. })));
        let path = folder.path().join("x");
        fs::write(&path, b"\xff\xfe{\0}\0").unwrap();
        assert!(matches!(read(&path), Err(FileError::NotText { .. })));
        fs::File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(matches!(read(&path), Err(FileError::TooLarge { .. })));
        symlink(folder.path().join("b"), folder.path().join("a")).unwrap();
        symlink(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert!(replace(&folder.path().join("a"), None, Some("x")).is_err());
    }
}
