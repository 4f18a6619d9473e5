//! The digest of a package: what an approval is bound to, so that what was agreed to is what runs.
//!
//! ```text
//! package = SHA-256( "plugward package 1\n" , entry* )            entries sorted by the bytes of their paths
//! entry   = kind 1 byte | executable 1 byte | path length 8 bytes | path | content length 8 bytes | content hash 32
//! ```
//! The content of a link is its target, of a folder nothing. Owners, times and the other permission bits are left
//! out: they differ between machines without changing what would run. Nothing is skipped, not even `.git`: a folder
//! the digest does not see would be a place to hide code in.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use plugward_policy::Digest;
use sha2::{Digest as _, Sha256};

use super::error::{PackageError, PackageLimit};
use super::links::escaping_links;
use super::tree::{EntryKind, PackageLimits, ParentFolders, Skip, Tree, full_path, open_file};

/// First bytes of what is hashed; a change of the form needs a new number.
const FORM: &[u8] = b"plugward package 1\n";

/// Most threads of one hashing: two do most of the work while the rest of the machine stays usable.
const MAX_HASH_THREADS: usize = 4;

/// Entries a thread takes at once: neighbours share a folder, and a few hundred turns keep threads evenly busy.
const HASH_BATCH: usize = 64;

/// Bytes read at once.
const READ_BUFFER_BYTES: usize = 128 * 1024;

/// What is known about a package's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageFacts {
    /// Digest over names, kinds, executable bits and contents.
    pub(crate) digest: Digest,
    /// Number of regular files.
    pub(crate) files: u64,
    /// Bytes of all regular files.
    pub(crate) bytes: u64,
    /// Links that lead out of the package, as `path -> target`; what they point to is not part of the digest.
    pub(crate) escaping_links: Vec<String>,
}

/// Hashes the package in `dir` within the default [`PackageLimits`].
///
/// # Errors
/// [`PackageError`] for special files, a passed limit, a file that cannot be read or that changes meanwhile.
pub(crate) fn hash_package(dir: &Path) -> Result<PackageFacts, PackageError> {
    hash_package_within(dir, &PackageLimits::default())
}

/// Hashes the package in `dir` within `limits`.
///
/// # Errors
/// As [`hash_package`].
pub(crate) fn hash_package_within(dir: &Path, limits: &PackageLimits) -> Result<PackageFacts, PackageError> {
    let tree = Tree::read(dir, limits, Skip::Nothing)?;
    let contents = hash_contents(&tree, limits)?;
    let mut hash = Sha256::new();
    hash.update(FORM);
    let (mut files, mut bytes) = (0, 0_u64);
    for (entry, content) in tree.entries.iter().zip(&contents) {
        let (kind, executable) = match entry.kind {
            EntryKind::Folder => (b'd', 0),
            EntryKind::File => (b'f', u8::from(entry.mode & 0o111 != 0)),
            EntryKind::Link { .. } => (b'l', 0),
        };
        if kind == b'f' {
            files += 1;
            bytes = bytes.saturating_add(content.length);
        }
        hash.update([kind, executable]);
        hash.update((entry.path.len() as u64).to_be_bytes());
        hash.update(&entry.path);
        hash.update(content.length.to_be_bytes());
        hash.update(content.hash);
    }
    if bytes > limits.bytes {
        return Err(PackageError::TooLarge { path: dir.to_owned(), limit: PackageLimit::Bytes(limits.bytes) });
    }
    let digest = digest_of(hash);
    Ok(PackageFacts { digest, files, bytes, escaping_links: escaping_links(&tree.entries) })
}

/// Hash and length of one entry's content.
#[derive(Clone, Copy)]
struct Content {
    length: u64,
    hash: [u8; 32],
}

/// The contents of all entries, in their order. Threads take batches from one counter and each hands back what it
/// took, so nothing is shared but the counter.
fn hash_contents(tree: &Tree, limits: &PackageLimits) -> Result<Vec<Content>, PackageError> {
    let next_batch = AtomicUsize::new(0);
    let batches = tree.entries.len().div_ceil(HASH_BATCH);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_HASH_THREADS).min(batches).max(1);
    let work = || -> Result<Vec<(usize, Content)>, PackageError> {
        let mut parents = ParentFolders::new(&tree.dir, tree.root.as_fd());
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut done = Vec::new();
        loop {
            let batch = next_batch.fetch_add(1, Ordering::Relaxed);
            if batch >= batches {
                return Ok(done);
            }
            let start = batch * HASH_BATCH;
            let end = (start + HASH_BATCH).min(tree.entries.len());
            for index in start..end {
                done.push((index, hash_entry(tree, index, &mut parents, &mut buffer, limits)?));
            }
        }
    };
    let results: Vec<_> = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let mut results = vec![own];
        results.extend(
            helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
        );
        results
    });
    let mut contents = vec![Content { length: 0, hash: [0; 32] }; tree.entries.len()];
    for result in results {
        for (index, content) in result? {
            contents[index] = content;
        }
    }
    Ok(contents)
}

fn hash_entry(
    tree: &Tree,
    index: usize,
    parents: &mut ParentFolders<'_>,
    buffer: &mut [u8],
    limits: &PackageLimits,
) -> Result<Content, PackageError> {
    let entry = &tree.entries[index];
    match &entry.kind {
        EntryKind::Folder => Ok(Content { length: 0, hash: [0; 32] }),
        EntryKind::Link { target } => Ok(Content { length: target.len() as u64, hash: Sha256::digest(target).into() }),
        EntryKind::File => {
            let (above, name) = parents.of(&entry.path)?;
            let mut file = File::from(open_file(&tree.dir, above, name, &entry.path)?);
            let path = || full_path(&tree.dir, &entry.path);
            match hash_reader(&mut file, buffer, limits.bytes) {
                Ok(Some((length, hash))) => Ok(Content { length, hash }),
                Ok(None) => {
                    Err(PackageError::TooLarge { path: tree.dir.clone(), limit: PackageLimit::Bytes(limits.bytes) })
                }
                Err(error) => Err(PackageError::os(path(), "read", error)),
            }
        }
    }
}

/// Length and SHA-256 of everything in `reader`; `None` when there is more than `limit_bytes` (a file may grow while
/// it is read).
pub(super) fn hash_reader(
    reader: &mut impl Read,
    buffer: &mut [u8],
    limit_bytes: u64,
) -> std::io::Result<Option<(u64, [u8; 32])>> {
    let mut hash = Sha256::new();
    let mut length = 0_u64;
    loop {
        let read = match reader.read(buffer) {
            Ok(0) => return Ok(Some((length, hash.finalize().into()))),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        length += read as u64;
        if length > limit_bytes {
            return Ok(None);
        }
        hash.update(&buffer[..read]);
    }
}

/// The digest type of the policy from a finished hash.
fn digest_of(hash: Sha256) -> Digest {
    Digest::from_bytes(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn package() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("package");
        fs::create_dir_all(root.join("lib/deep")).unwrap();
        fs::write(root.join("plugin.yaml"), "id: demo\n").unwrap();
        fs::write(root.join("lib/a.js"), "a").unwrap();
        fs::write(root.join("lib/deep/b.js"), "b").unwrap();
        symlink("lib/a.js", root.join("main.js")).unwrap();
        (dir, root)
    }

    fn digest(root: &Path) -> Digest {
        hash_package(root).unwrap().digest
    }

    #[test]
    fn counts_files_and_bytes() {
        let (_dir, root) = package();
        let facts = hash_package(&root).unwrap();
        assert_eq!((facts.files, facts.bytes), (3, 11));
        assert!(facts.escaping_links.is_empty());
    }

    #[test]
    fn the_same_files_have_the_same_digest_wherever_and_whenever_they_were_written() {
        let (_one, first) = package();
        let (_two, second) = package();
        let mode = |bits| fs::set_permissions(second.join("plugin.yaml"), fs::Permissions::from_mode(bits)).unwrap();
        mode(0o600);
        assert_eq!(digest(&first), digest(&second));
    }

    // Invariant 8: each of these would otherwise change what runs under an old approval.
    #[test]
    fn every_change_that_matters_changes_the_digest() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 9] = [
            ("content", |root| fs::write(root.join("lib/a.js"), "A").unwrap()),
            ("new file", |root| fs::write(root.join("lib/c.js"), "").unwrap()),
            ("removed file", |root| fs::remove_file(root.join("lib/a.js")).unwrap()),
            ("renamed file", |root| fs::rename(root.join("lib/a.js"), root.join("lib/c.js")).unwrap()),
            ("executable bit", |root| {
                fs::set_permissions(root.join("lib/a.js"), fs::Permissions::from_mode(0o755)).unwrap();
            }),
            ("link target", |root| {
                fs::remove_file(root.join("main.js")).unwrap();
                symlink("lib/deep/b.js", root.join("main.js")).unwrap();
            }),
            ("link to file", |root| {
                fs::remove_file(root.join("main.js")).unwrap();
                fs::write(root.join("main.js"), "lib/a.js").unwrap();
            }),
            ("new folder", |root| fs::create_dir(root.join("empty")).unwrap()),
            ("hidden in .git", |root| {
                fs::create_dir(root.join(".git")).unwrap();
                fs::write(root.join(".git/x.js"), "evil").unwrap();
            }),
        ];
        for (what, change) in changes {
            let (_dir, root) = package();
            let before = digest(&root);
            change(&root);
            assert_ne!(before, digest(&root), "{what}");
        }
    }

    #[test]
    fn content_cannot_be_moved_between_name_and_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        fs::write(one.join("ab"), "c").unwrap();
        fs::write(two.join("a"), "bc").unwrap();
        assert_ne!(digest(&one), digest(&two));
    }

    #[test]
    fn names_with_newlines_and_bytes_that_are_no_text_are_hashed() {
        use std::os::unix::ffi::OsStrExt;
        let (_dir, root) = package();
        let before = digest(&root);
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"a\nb\xff")), "").unwrap();
        assert_ne!(before, digest(&root));
    }

    #[test]
    fn special_files_are_refused_without_opening_them() {
        let (_dir, root) = package();
        let pipe = root.join("lib/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let text = hash_package(&root).unwrap_err().to_string();
        assert!(text.contains("lib/pipe` is a pipe, a package holds only files, folders and links"), "{text}");
        fs::remove_file(&pipe).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("s")).unwrap();
        assert!(matches!(hash_package(&root), Err(PackageError::SpecialFile { found: "a socket", .. })));
    }

    #[test]
    fn links_are_never_followed() {
        let (_dir, root) = package();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("x"), "1").unwrap();
        symlink(outside.path(), root.join("out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/dev/zero", root.join("endless")).unwrap();
        let before = hash_package(&root).unwrap();
        assert_eq!(before.files, 3);
        assert_eq!(before.escaping_links.len(), 2, "{:?}", before.escaping_links);
        fs::write(outside.path().join("x"), "2").unwrap();
        assert_eq!(before, hash_package(&root).unwrap(), "the digest is of the package, not of what links point to");
    }

    #[test]
    fn limits_are_exact_and_named() {
        let (_dir, root) = package();
        // 6 entries: plugin.yaml, lib, lib/a.js, lib/deep, lib/deep/b.js, main.js; 11 bytes; `lib/deep` is at depth 2.
        let fits = PackageLimits { files: 6, bytes: 11, depth: 2 };
        hash_package_within(&root, &fits).unwrap();
        let text = |limits| hash_package_within(&root, &limits).unwrap_err().to_string();
        assert!(text(PackageLimits { files: 5, ..fits }).ends_with("has more than 5 files, folders and links"));
        assert!(text(PackageLimits { bytes: 10, ..fits }).ends_with("has more than 10 bytes"));
        assert!(text(PackageLimits { depth: 1, ..fits }).ends_with("has more than 1 folders inside each other"));
    }

    #[test]
    fn nesting_far_beyond_the_limit_is_refused_and_not_walked() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", 500).collect();
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        assert!(matches!(hash_package(dir.path()), Err(PackageError::TooLarge { limit: PackageLimit::Depth(64), .. })));
    }

    #[test]
    fn many_files_are_hashed_by_several_threads_with_one_result() {
        let dir = tempfile::tempdir().unwrap();
        for folder in 0..20 {
            let folder = dir.path().join(format!("f{folder}"));
            fs::create_dir(&folder).unwrap();
            for file in 0..100 {
                fs::write(folder.join(format!("{file}")), format!("{file}")).unwrap();
            }
        }
        let first = hash_package(dir.path()).unwrap();
        assert_eq!(first.files, 2000);
        for _ in 0..5 {
            assert_eq!(first, hash_package(dir.path()).unwrap());
        }
    }

    #[test]
    fn a_missing_folder_and_a_file_have_errors_of_their_own() {
        let (_dir, root) = package();
        assert!(matches!(hash_package(&root.join("gone")), Err(PackageError::NotFound { .. })));
        assert!(matches!(hash_package(&root.join("plugin.yaml")), Err(PackageError::NotAFolder { .. })));
    }
}
