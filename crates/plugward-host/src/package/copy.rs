//! Copying a package into a new folder, exactly and without running or following anything of it.
//!
//! Copied are regular files, folders and links (as links, target unchanged). Left out is every `.git`: history is no
//! part of what runs. Sockets, pipes and devices refuse the whole package. Of the mode, only whether a file can be
//! executed is kept. Modification times are kept, because compiled Python files are only valid
//! beside a source with the time they recorded.
//!
//! A failed copy leaves what it wrote behind: the caller copies into an incoming folder, renames it when all is well
//! and removes it otherwise.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use super::error::{PackageError, PackageLimit};
use super::hash::{PackageFacts, hash_package_within};
use super::tree::{Entry, EntryKind, PackageLimits, ParentFolders, Skip, Tree, full_path, open_file};

/// Mode of copied programs and folders. Everybody may read a copy, because a plugin may run as a user of its own; the
/// folder the copies lie in keeps others out.
const PROGRAM_MODE: u32 = 0o755;

/// Mode of every other file.
const FILE_MODE: u32 = 0o644;

/// Copies the package in `src` to `dst`, which must not exist while its parent must, and hashes the copy: the facts
/// describe what lies in `dst`, whatever happens to `src` meanwhile.
///
/// # Errors
/// [`PackageError`]: `dst` exists or lies inside `src`, a special file, a passed limit, or a refusal of the system.
pub(crate) fn copy_package(src: &Path, dst: &Path, limits: &PackageLimits) -> Result<PackageFacts, PackageError> {
    refuse_nested_target(src, dst)?;
    let tree = Tree::read(src, limits, Skip::GitFolders)?;
    create_target(dst)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = rustix::fs::open(dst, flags, Mode::empty()).map_err(|e| PackageError::os(dst, "written", e))?;
    copy_entries(&tree, dst, target.as_fd(), limits)?;
    finish_folders(&tree, dst, target.as_fd())?;
    rustix::fs::fchmod(&target, Mode::from_raw_mode(PROGRAM_MODE)).map_err(|e| PackageError::os(dst, "written", e))?;
    hash_package_within(dst, limits)
}

fn create_target(dst: &Path) -> Result<(), PackageError> {
    fs::create_dir(dst).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => PackageError::TargetExists { path: dst.to_owned() },
        _ => PackageError::os(dst, "created", error),
    })
}

/// A copy that would contain itself is refused before anything is written.
fn refuse_nested_target(src: &Path, dst: &Path) -> Result<(), PackageError> {
    let source_dir = src.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PackageError::NotFound { path: src.to_owned() },
        _ => PackageError::os(src, "read", error),
    })?;
    let above = match dst.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let above = above.canonicalize().map_err(|error| PackageError::os(&above, "read", error))?;
    if above.starts_with(&source_dir) {
        return Err(PackageError::TargetInsideSource { source_dir, target: dst.to_owned() });
    }
    Ok(())
}

fn copy_entries(tree: &Tree, dst: &Path, target: BorrowedFd<'_>, limits: &PackageLimits) -> Result<(), PackageError> {
    let mut sources = ParentFolders::new(&tree.dir, tree.root.as_fd());
    let mut targets = ParentFolders::new(dst, target);
    let mut left_bytes = limits.bytes;
    for entry in &tree.entries {
        let (to, name) = targets.of(&entry.path)?;
        let written = |errno| PackageError::os(full_path(dst, &entry.path), "written", errno);
        match &entry.kind {
            // Writable for us until everything is in it; `finish_folders` sets the real mode.
            EntryKind::Folder => rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700)).map_err(written)?,
            EntryKind::Link { target } => {
                rustix::fs::symlinkat(target.as_slice(), to, name).map_err(written)?;
            }
            EntryKind::File => {
                let (from, _) = sources.of(&entry.path)?;
                let source = File::from(open_file(&tree.dir, from, name, &entry.path)?);
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let created = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(0o600)).map_err(written)?;
                let copied = copy_file(tree, entry, source, created, dst, left_bytes)?;
                left_bytes = left_bytes.checked_sub(copied).ok_or_else(|| PackageError::TooLarge {
                    path: tree.dir.clone(),
                    limit: PackageLimit::Bytes(limits.bytes),
                })?;
            }
        }
    }
    Ok(())
}

/// Copies one file's bytes (at most one more than are left, which the caller then refuses), its mode and its time.
fn copy_file(
    tree: &Tree,
    entry: &Entry,
    source: File,
    created: OwnedFd,
    dst: &Path,
    left_bytes: u64,
) -> Result<u64, PackageError> {
    let failed = |error: io::Error| PackageError::os(full_path(&tree.dir, &entry.path), "copied", error);
    let found = rustix::fs::fstat(&source).map_err(|errno| failed(errno.into()))?;
    let mut target = File::from(created);
    let copied = io::copy(&mut source.take(left_bytes.saturating_add(1)), &mut target).map_err(failed)?;
    let written = |errno| PackageError::os(full_path(dst, &entry.path), "written", errno);
    let mode = if entry.mode & 0o111 != 0 { PROGRAM_MODE } else { FILE_MODE };
    rustix::fs::fchmod(&target, Mode::from_raw_mode(mode)).map_err(written)?;
    let modified = Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec as _ };
    rustix::fs::futimens(&target, &Timestamps { last_access: modified, last_modification: modified })
        .map_err(written)?;
    Ok(copied)
}

/// Gives the folders their modes, children first. The owner keeps full access, otherwise the package could be neither
/// hashed nor removed.
fn finish_folders(tree: &Tree, dst: &Path, target: BorrowedFd<'_>) -> Result<(), PackageError> {
    let mut targets = ParentFolders::new(dst, target);
    for entry in tree.entries.iter().rev().filter(|entry| entry.kind == EntryKind::Folder) {
        let (to, name) = targets.of(&entry.path)?;
        rustix::fs::chmodat(to, name, Mode::from_raw_mode(PROGRAM_MODE), rustix::fs::AtFlags::empty())
            .map_err(|errno| PackageError::os(full_path(dst, &entry.path), "written", errno))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::hash::hash_package;
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    struct Place {
        _dir: tempfile::TempDir,
        src: PathBuf,
        dst: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
        fs::create_dir_all(src.join("bin")).unwrap();
        fs::write(src.join("plugin.yaml"), "id: demo\n").unwrap();
        fs::write(src.join("bin/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(src.join("bin/run"), fs::Permissions::from_mode(0o6777)).unwrap();
        symlink("bin/run", src.join("run")).unwrap();
        Place { _dir: dir, src, dst }
    }

    fn copy(place: &Place) -> Result<PackageFacts, PackageError> {
        copy_package(&place.src, &place.dst, &PackageLimits::default())
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_copy_has_the_same_digest_as_its_source() {
        let place = place();
        let facts = copy(&place).unwrap();
        assert_eq!(facts, hash_package(&place.src).unwrap());
        assert_eq!(fs::read_to_string(place.dst.join("run")).unwrap(), "#!/bin/sh\n");
        assert!(fs::symlink_metadata(place.dst.join("run")).unwrap().is_symlink());
    }

    // A set-uid file in the store would run as its owner for everyone on the machine.
    #[test]
    fn special_bits_and_writing_by_others_are_dropped() {
        let place = place();
        fs::set_permissions(place.src.join("bin"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(mode(&place.src.join("bin/run")), 0o6777, "positive control");
        copy(&place).unwrap();
        assert_eq!(mode(&place.dst.join("bin/run")), 0o755);
        assert_eq!(mode(&place.dst.join("bin")), 0o755);
    }

    #[test]
    fn a_folder_without_write_permission_is_copied_with_its_content_and_can_be_removed() {
        let place = place();
        fs::set_permissions(place.src.join("bin"), fs::Permissions::from_mode(0o555)).unwrap();
        copy(&place).unwrap();
        assert_eq!(mode(&place.dst.join("bin")), 0o755);
        fs::remove_dir_all(&place.dst).unwrap();
    }

    #[test]
    fn modification_times_are_kept() {
        let place = place();
        let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123 };
        let file = File::options().write(true).open(place.src.join("plugin.yaml")).unwrap();
        rustix::fs::futimens(&file, &Timestamps { last_access: old, last_modification: old }).unwrap();
        copy(&place).unwrap();
        let found = fs::metadata(place.dst.join("plugin.yaml")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 123));
    }

    #[test]
    fn git_folders_are_left_out_at_any_depth_and_nothing_else_hidden_is() {
        let place = place();
        for folder in [".git/objects", "bin/.git", ".github"] {
            fs::create_dir_all(place.src.join(folder)).unwrap();
        }
        fs::write(place.src.join(".gitignore"), "").unwrap();
        copy(&place).unwrap();
        assert!(!place.dst.join(".git").exists() && !place.dst.join("bin/.git").exists());
        assert!(place.dst.join(".github").exists() && place.dst.join(".gitignore").exists());
    }

    #[test]
    fn links_are_copied_as_links_and_the_ones_leading_out_are_reported() {
        let place = place();
        symlink("/etc/passwd", place.src.join("secret")).unwrap();
        symlink("..", place.src.join("up")).unwrap();
        symlink("loop-b", place.src.join("loop-a")).unwrap();
        symlink("loop-a", place.src.join("loop-b")).unwrap();
        let facts = copy(&place).unwrap();
        assert_eq!(facts.escaping_links, ["secret -> /etc/passwd", "up -> .."]);
        assert_eq!(fs::read_link(place.dst.join("secret")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(facts.files, 2);
    }

    #[test]
    fn a_pipe_refuses_the_package_before_anything_is_written() {
        let place = place();
        let pipe = place.src.join("bin/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(copy(&place), Err(PackageError::SpecialFile { found: "a pipe", .. })));
        assert!(!place.dst.exists());
    }

    #[test]
    fn an_existing_target_is_refused_and_left_alone() {
        let place = place();
        fs::create_dir(&place.dst).unwrap();
        fs::write(place.dst.join("kept"), "1").unwrap();
        let text = copy(&place).unwrap_err().to_string();
        assert!(text.ends_with("exists already, a package is only copied to a new folder"), "{text}");
        assert_eq!(fs::read_dir(&place.dst).unwrap().count(), 1);
        fs::remove_dir_all(&place.dst).unwrap();
        symlink(&place.src, &place.dst).unwrap();
        assert!(matches!(copy(&place), Err(PackageError::TargetExists { .. })), "a dangling or good link is no target");
    }

    #[test]
    fn a_copy_into_itself_is_refused() {
        let mut place = place();
        place.dst = place.src.join("bin/copy");
        let text = copy(&place).unwrap_err().to_string();
        assert!(text.contains("lies inside the package"), "{text}");
        assert!(!place.dst.exists());
    }

    #[test]
    fn limits_stop_the_copy() {
        let place = place();
        let limits = PackageLimits { bytes: 18, ..PackageLimits::default() };
        let text = copy_package(&place.src, &place.dst, &limits).unwrap_err().to_string();
        assert!(text.ends_with("has more than 18 bytes"), "{text}");
        let limits = PackageLimits { bytes: 19, ..limits };
        assert_eq!(copy_package(&place.src, &place.dst, &limits).unwrap().bytes, 19);
    }

    // A file that grows after it was listed must not fill the disk.
    #[test]
    fn a_file_that_reports_no_size_is_still_bounded() {
        let place = place();
        let tree = Tree::read(&place.src, &PackageLimits::default(), Skip::Nothing).unwrap();
        fs::write(place.src.join("plugin.yaml"), vec![b'#'; 100_000]).unwrap();
        create_target(&place.dst).unwrap();
        let target = rustix::fs::open(&place.dst, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let limits = PackageLimits { bytes: 50, ..PackageLimits::default() };
        let result = copy_entries(&tree, &place.dst, target.as_fd(), &limits);
        assert!(matches!(result, Err(PackageError::TooLarge { limit: PackageLimit::Bytes(50), .. })));
        assert!(fs::metadata(place.dst.join("plugin.yaml")).unwrap().len() <= 51);
    }

    // A folder swapped for a link between listing and copying would otherwise copy the host's own files.
    #[test]
    fn a_folder_swapped_for_a_link_is_noticed() {
        let place = place();
        let tree = Tree::read(&place.src, &PackageLimits::default(), Skip::Nothing).unwrap();
        fs::rename(place.src.join("bin"), place.src.join("moved")).unwrap();
        symlink("moved", place.src.join("bin")).unwrap();
        assert!(fs::metadata(place.src.join("bin/run")).is_ok(), "positive control: the path works through the link");
        create_target(&place.dst).unwrap();
        let target = rustix::fs::open(&place.dst, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let result = copy_entries(&tree, &place.dst, target.as_fd(), &PackageLimits::default());
        assert!(matches!(result, Err(PackageError::Changed { .. })), "{result:?}");
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let place = place();
        fs::set_permissions(place.src.join("plugin.yaml"), fs::Permissions::from_mode(0o000)).unwrap();
        let above = place.src.parent().unwrap();
        fs::set_permissions(above, fs::Permissions::from_mode(0o777)).unwrap();
        // Root reads everything, so the copy runs in a thread that is nobody when the tests run as root.
        let error = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    if rustix::process::geteuid().is_root() {
                        let nobody = rustix::process::Uid::from_raw(65534);
                        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                    }
                    copy(&place).unwrap_err()
                })
                .join()
                .unwrap()
        });
        let text = error.to_string();
        assert!(text.contains("src/plugin.yaml` cannot be read: Permission denied"), "{text}");
    }
}
