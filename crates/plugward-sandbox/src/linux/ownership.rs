//! Writable folders of a plugin that has a user of its own.
//!
//! Owns handing them over, once, to that user. Refuses following links, leaving the file system, and
//! changing files that have another name somewhere: a name in a plugin's folder can lead to a file that is not the
//! plugin's.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, openat, openat2, statat},
    io::Errno,
};

/// Deepest nesting of folders handed over; a tree deeper than this is a trap, not data.
const MAX_DEPTH: usize = 64;

/// Makes `uid` and `gid` the owner of the folder or file and everything beneath, unless they own it already.
pub(super) fn hand_over(path: &Path, uid: Uid, gid: Gid) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)?;
    let found = fstat(&opened)?;
    if found.st_uid == uid.as_raw() {
        return Ok(());
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        hand_over_content(&opened, found.st_dev, uid, gid, MAX_DEPTH)?;
    }
    // Last, so that a hand-over that was cut short starts again.
    rustix::fs::fchown(&opened, Some(uid), Some(gid))
}

fn hand_over_content(folder: &OwnedFd, device: u64, uid: Uid, gid: Gid, depth: usize) -> Result<(), Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::LOOP)?;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if found.st_dev != device {
            continue;
        }
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            hand_over_content(&openat(folder, name, flags, Mode::empty())?, device, uid, gid, depth)?;
        } else if kind == FileType::RegularFile && found.st_nlink > 1 {
            continue;
        }
        chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
    };

    use super::*;

    const OWNER: u32 = 61_002;

    // Threat: a plugin plants a link or a second name of a system file, and the next hand-over makes it the owner.
    #[test]
    fn links_and_second_names_are_left_alone() {
        if !rustix::process::geteuid().is_root() {
            // Nobody else can give files away; the refusal is all there is to see.
            let folder = tempfile::tempdir().unwrap();
            let refused = hand_over(folder.path(), Uid::from_raw(OWNER), Gid::from_raw(OWNER));
            assert_eq!(refused, Err(Errno::PERM));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("deep")).unwrap();
        for path in ["data/plain", "data/deep/plain", "system"] {
            fs::write(folder.path().join(path), "").unwrap();
        }
        fs::hard_link(folder.path().join("system"), data.join("second-name")).unwrap();
        symlink(folder.path().join("system"), data.join("link")).unwrap();
        symlink(&data, folder.path().join("way")).unwrap();
        let (uid, gid) = (Uid::from_raw(OWNER), Gid::from_raw(OWNER));
        assert_eq!(hand_over(&folder.path().join("way"), uid, gid), Err(Errno::LOOP));
        hand_over(&data, uid, gid).unwrap();
        let owner = |path: &str| fs::symlink_metadata(folder.path().join(path)).unwrap().uid();
        assert_eq!(["data", "data/plain", "data/deep", "data/deep/plain", "data/link"].map(owner), [OWNER; 5]);
        assert_eq!(["system", "data/second-name"].map(owner), [0; 2]);
    }
}
