//! Landlock: rules on files, TCP and other processes that a process puts on itself.
//!
//! Owns the rights of every version of the kernel interface known here, and the three system calls. Refuses a rule set
//! that handles less than the running kernel can, and an unknown one.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use rustix::fs::{FileType, fstat};

use crate::{Network, linux::layers::Layers};

/// Oldest version accepted where Landlock is all there is for files: the first that mediates truncating.
pub(in crate::linux) const MINIMUM_ABI: u8 = 3;
/// First version that knows signals and Unix sockets without a path.
pub(in crate::linux) const SCOPES_ABI: u8 = 6;
/// Newest version whose rights are known here; a newer kernel is asked for these.
const NEWEST_ABI: u8 = 10;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Making devices: never granted, not even in a plugin's own folder.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;
/// Rights that mean something for a file that is not a folder; the kernel refuses others in its rules.
const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Connecting by TCP.
const CONNECT_TCP: u64 = 1 << 1;
/// Network rights about TCP.
const TCP_RIGHTS: u64 = 0b11;
/// First version that knows TCP.
const TCP_ABI: u8 = 4;

const CREATE_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const RULE_NET_PORT: libc::c_int = 2;

/// Structure of the kernel interface; later fields are left out, which the kernel reads as zero.
#[repr(C)]
struct RulesetAttributes {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

/// As above. The kernel's structure is packed.
#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed: u64,
    parent: libc::c_int,
}

/// As above.
#[repr(C)]
struct NetPortAttributes {
    allowed: u64,
    port: u64,
}

/// What rules say about the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    /// Every right is taken.
    None,
    /// TCP to the ports allowed. Datagrams are left alone: the network they are in has no way out, and names are asked
    /// for by them.
    Ports,
    /// No right is taken.
    All,
}

impl From<&Network> for Connections {
    fn from(network: &Network) -> Self {
        match network {
            Network::Off => Self::None,
            Network::Hosts(_) => Self::Ports,
            Network::Open => Self::All,
        }
    }
}

/// What a rule allows beneath its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::linux) enum Access {
    /// Read and execute.
    Read,
    /// Read, write, create, remove, rename; execute nothing, make no device.
    Write,
    /// Read and write an existing file, for devices.
    Device,
}

/// Version of the running kernel as far as it is known here, 0 if Landlock is not active.
pub(in crate::linux) fn kernel_abi() -> u8 {
    u8::try_from(kernel_version()).unwrap_or(NEWEST_ABI).min(NEWEST_ABI)
}

/// Version beyond which a test pretends that the kernel has none.
#[cfg(feature = "mutation")]
static CAP: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

/// Makes this process take the kernel for one whose Landlock is no newer than `abi`: for tests of older machines, whose hosts
/// and launchers see the same. With the highest number it looks at the kernel again.
#[cfg(feature = "mutation")]
pub fn cap_landlock(abi: u8) {
    CAP.store(abi, std::sync::atomic::Ordering::Relaxed);
}

/// Version of the running kernel, 0 if Landlock is not active.
pub(crate) fn kernel_version() -> u32 {
    #[allow(unsafe_code, reason = "the version query has no safe wrapper")]
    // SAFETY: with the version flag the call takes no attributes (null, size 0) and creates nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, CREATE_VERSION)
    };
    let version = u32::try_from(version).unwrap_or(0);
    #[cfg(feature = "mutation")]
    let version = version.min(CAP.load(std::sync::atomic::Ordering::Relaxed).into());
    version
}

/// File rights known to a version.
const fn file_rights(abi: u8) -> u64 {
    let bits = match abi {
        0 => 0,
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        5..=8 => 16,
        _ => 17,
    };
    (1 << bits) - 1
}

/// Network rights known to a version: TCP, then UDP.
const fn network_rights(abi: u8) -> u64 {
    match abi {
        0..=3 => 0,
        4..=9 => 0b11,
        _ => 0b1111,
    }
}

/// Scopes known to a version: abstract Unix sockets and signals.
const fn scopes(abi: u8) -> u64 {
    if abi < SCOPES_ABI { 0 } else { 0b11 }
}

/// A rule set under construction.
#[derive(Debug)]
pub(in crate::linux) struct Ruleset {
    descriptor: OwnedFd,
    abi: u8,
}

impl Ruleset {
    /// Handles every right of the running kernel; of the network what is to be closed.
    pub(super) fn new(abi: u8, connections: Connections, layers: Layers) -> io::Result<Self> {
        let part = |layer, rights| if layers.has(layer) { rights } else { 0 };
        let network = match connections {
            Connections::None => network_rights(abi),
            Connections::Ports => network_rights(abi) & TCP_RIGHTS,
            Connections::All => 0,
        };
        let attributes = RulesetAttributes {
            handled_fs: part(Layers::LANDLOCK_FILES, file_rights(abi)),
            handled_net: part(Layers::LANDLOCK_NETWORK, network),
            scoped: part(Layers::LANDLOCK_SCOPE, scopes(abi)),
        };
        // Older kernels know a shorter structure and refuse a longer one only if what they do not know is set.
        #[allow(unsafe_code, reason = "landlock_create_ruleset has no safe wrapper")]
        // SAFETY: `attributes` is initialised and lives across the call, which reads its given size.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        };
        let raw = i32::try_from(result).ok().filter(|raw| *raw >= 0).ok_or_else(io::Error::last_os_error)?;
        #[allow(unsafe_code, reason = "taking ownership of a raw descriptor")]
        // SAFETY: the call above has just returned this descriptor and nothing else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { descriptor, abi })
    }

    /// Allows `access` to the file or folder behind `path` and all beneath it.
    pub(super) fn allow(&self, path: BorrowedFd<'_>, access: Access) -> io::Result<()> {
        let all = file_rights(self.abi);
        let mut allowed = match access {
            Access::Read => EXECUTE | READ_FILE | READ_DIR,
            Access::Write => all & !(EXECUTE | IOCTL_DEV | MAKE_DEVICES),
            Access::Device => READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        } & all;
        if FileType::from_raw_mode(fstat(path)?.st_mode) != FileType::Directory {
            allowed &= FILE_RIGHTS;
        }
        let attributes = PathBeneathAttributes { allowed, parent: path.as_raw_fd() };
        #[allow(unsafe_code, reason = "landlock_add_rule has no safe wrapper")]
        // SAFETY: `attributes` is initialised and lives across the call; the kernel reads both descriptors by number, and
        // both are open as long as they are borrowed here.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const attributes,
                0_u32,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Allows connecting to a TCP port of any address. A kernel that does not know TCP here takes no right of it either.
    pub(super) fn allow_port(&self, port: u16) -> io::Result<()> {
        if self.abi < TCP_ABI {
            return Ok(());
        }
        let attributes = NetPortAttributes { allowed: CONNECT_TCP, port: port.into() };
        #[allow(unsafe_code, reason = "landlock_add_rule has no safe wrapper")]
        // SAFETY: `attributes` is initialised and lives across the call; the descriptor is open as long as `self` lives.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_NET_PORT,
                &raw const attributes,
                0_u32,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Puts the rules in force for this process and all it starts. Allocates nothing.
    pub(super) fn restrict_self(&self) -> io::Result<()> {
        #[allow(unsafe_code, reason = "landlock_restrict_self has no safe wrapper")]
        // SAFETY: the call reads a descriptor that is open as long as `self` lives.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.descriptor.as_fd().as_raw_fd(), 0_u32) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A right that is not handled is allowed everywhere, so each version must handle all it knows.
    #[test]
    fn each_version_handles_all_it_knows() {
        assert_eq!([1, 2, 3, 4, 5, 9].map(|abi| file_rights(abi).count_ones()), [13, 14, 15, 15, 16, 17]);
        assert_eq!([3, 4, 9, 10].map(network_rights), [0, 3, 3, 15]);
        assert_eq!([5, 6, 10].map(scopes), [0, 3, 3]);
        assert!((1..NEWEST_ABI).all(|abi| file_rights(abi) & !file_rights(abi + 1) == 0));
    }

    /// The kernel refuses a rule set that asks for a right it does not know, so the table matches the running one.
    #[test]
    fn the_running_kernel_accepts_its_own_version() {
        let abi = kernel_abi();
        assert!(abi >= MINIMUM_ABI, "this machine has no Landlock to test with");
        let ruleset = Ruleset::new(abi, Connections::Ports, Layers::ALL).unwrap();
        ruleset.allow_port(443).unwrap();
        for (path, access) in [("/usr", Access::Read), ("/dev/null", Access::Device), ("/tmp", Access::Write)] {
            let opened = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
            ruleset.allow(opened.as_fd(), access).unwrap();
        }
        assert_eq!(
            Ruleset::new(NEWEST_ABI, Connections::None, Layers::ALL).is_ok(),
            abi == NEWEST_ABI,
            "control: unknown rights are refused"
        );
    }
}
