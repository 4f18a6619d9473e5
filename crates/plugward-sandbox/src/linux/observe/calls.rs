//! Which system calls name a path or an address, and in which argument.
//!
//! Owns the list. Refuses completeness where it would cost what it does not bring: `sendmsg` is not watched, because the
//! listener itself travels by it, and programs that use it have connected before or are seen by the sandbox's own answers
//! to names.

use crate::AttemptKind::{self, Execute, Look, Read, Write};

/// What one call is about. A call with two paths has two entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    number: i64,
    /// The argument that holds the path or address.
    pub(super) name: usize,
    /// The argument that holds the folder a relative path starts in; none for the working directory.
    pub(super) folder: Option<usize>,
    pub(super) how: How,
}

/// What the call does there.
#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    /// Always this.
    Always(AttemptKind),
    /// Opens, as the flags in this argument say.
    Flags(usize),
    /// Opens, as the structure this argument points to says.
    Structure(usize),
    /// Asks for the rights in this argument.
    Access(usize),
    /// Talks to the address whose length is in this argument.
    Address(usize),
}

const fn here(number: i64, name: usize, kind: AttemptKind) -> About {
    About { number, name, folder: None, how: How::Always(kind) }
}

const fn at(number: i64, folder: usize, name: usize, kind: AttemptKind) -> About {
    About { number, name, folder: Some(folder), how: How::Always(kind) }
}

/// Not in every version of the C library's list.
const FCHMODAT2: i64 = 452;
const OPENAT2: i64 = 437;
const FACCESSAT2: i64 = 439;

const CALLS: &[About] = &[
    About { number: libc::SYS_openat, name: 1, folder: Some(0), how: How::Flags(2) },
    About { number: OPENAT2, name: 1, folder: Some(0), how: How::Structure(2) },
    at(libc::SYS_newfstatat, 0, 1, Look),
    at(libc::SYS_statx, 0, 1, Look),
    About { number: libc::SYS_faccessat, name: 1, folder: Some(0), how: How::Access(2) },
    About { number: FACCESSAT2, name: 1, folder: Some(0), how: How::Access(2) },
    at(libc::SYS_readlinkat, 0, 1, Look),
    here(libc::SYS_statfs, 0, Look),
    here(libc::SYS_getxattr, 0, Look),
    here(libc::SYS_lgetxattr, 0, Look),
    here(libc::SYS_chdir, 0, Read),
    here(libc::SYS_inotify_add_watch, 1, Read),
    here(libc::SYS_execve, 0, Execute),
    at(libc::SYS_execveat, 0, 1, Execute),
    here(libc::SYS_truncate, 0, Write),
    at(libc::SYS_mkdirat, 0, 1, Write),
    at(libc::SYS_mknodat, 0, 1, Write),
    at(libc::SYS_unlinkat, 0, 1, Write),
    at(libc::SYS_symlinkat, 1, 2, Write),
    at(libc::SYS_linkat, 0, 1, Read),
    at(libc::SYS_linkat, 2, 3, Write),
    at(libc::SYS_renameat2, 0, 1, Write),
    at(libc::SYS_renameat2, 2, 3, Write),
    at(libc::SYS_fchmodat, 0, 1, Write),
    at(FCHMODAT2, 0, 1, Write),
    at(libc::SYS_fchownat, 0, 1, Write),
    at(libc::SYS_utimensat, 0, 1, Write),
    here(libc::SYS_setxattr, 0, Write),
    here(libc::SYS_lsetxattr, 0, Write),
    About { number: libc::SYS_connect, name: 1, folder: None, how: How::Address(2) },
    About { number: libc::SYS_sendto, name: 4, folder: None, how: How::Address(5) },
];

/// Calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const CALLS_HERE: &[About] = &[
    About { number: libc::SYS_open, name: 0, folder: None, how: How::Flags(1) },
    here(libc::SYS_creat, 0, Write),
    here(libc::SYS_stat, 0, Look),
    here(libc::SYS_lstat, 0, Look),
    About { number: libc::SYS_access, name: 0, folder: None, how: How::Access(1) },
    here(libc::SYS_readlink, 0, Look),
    here(libc::SYS_unlink, 0, Write),
    here(libc::SYS_mkdir, 0, Write),
    here(libc::SYS_rmdir, 0, Write),
    here(libc::SYS_mknod, 0, Write),
    here(libc::SYS_symlink, 1, Write),
    here(libc::SYS_link, 0, Read),
    here(libc::SYS_link, 1, Write),
    here(libc::SYS_rename, 0, Write),
    here(libc::SYS_rename, 1, Write),
    at(libc::SYS_renameat, 0, 1, Write),
    at(libc::SYS_renameat, 2, 3, Write),
    here(libc::SYS_chmod, 0, Write),
    here(libc::SYS_chown, 0, Write),
    here(libc::SYS_lchown, 0, Write),
    here(libc::SYS_utime, 0, Write),
    here(libc::SYS_utimes, 0, Write),
    at(libc::SYS_futimesat, 0, 1, Write),
];
#[cfg(target_arch = "aarch64")]
const CALLS_HERE: &[About] = &[at(libc::SYS_renameat, 0, 1, Write), at(libc::SYS_renameat, 2, 3, Write)];

/// Every call that is watched; one with two paths appears twice.
pub(in crate::linux) fn numbers() -> impl Iterator<Item = i64> {
    CALLS.iter().chain(CALLS_HERE).map(|about| about.number)
}

/// What a call is about.
pub(super) fn of(number: i64) -> impl Iterator<Item = &'static About> {
    CALLS.iter().chain(CALLS_HERE).filter(move |about| about.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An argument that does not exist, or a folder in the place of the path, would make the record nonsense.
    #[test]
    fn entries_name_arguments_that_exist() {
        for about in CALLS.iter().chain(CALLS_HERE) {
            assert!(about.number >= 0 && about.name < 6, "{about:?}");
            assert!(about.folder.is_none_or(|folder| folder < about.name), "{about:?}");
        }
    }
}
