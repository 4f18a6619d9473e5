//! The file tree of a plugin, built from nothing.
//!
//! Owns the mounts: a small tree in memory as root, the declared paths bound into it from open descriptors, private
//! `/tmp`, `/dev` and `/dev/shm`, made-up `/etc`, and the exchange of the root. Refuses names for sources: what was opened
//! is what is mounted, whatever a name leads to by now.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, symlinkat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree, unmount,
    },
    process::{fchdir, pivot_root},
};

use super::etc::{self, Copied, Identity};
use crate::{
    Network, SandboxSpec,
    linux::{
        confine::Access,
        failure::{Failure, Step},
        layers::Layers,
        sources::Sources,
    },
};

/// A folder that exists everywhere, over which the new root is mounted until it becomes the root. Every source has been
/// copied by then, so it hides nothing.
const STAGING: &str = "/usr";
/// Size of the tree that holds mount points and the files of `/etc`, in bytes and inodes.
const ROOT_OPTIONS: [(&str, &str); 3] = [("size", "2097152"), ("nr_inodes", "8192"), ("mode", "0755")];
/// Most files in a private `/tmp` or `/dev/shm`, so that a flood of empty files ends too.
const MAX_TMPFS_INODES: &str = "65536";
/// Devices without a way to the machine, with their numbers.
pub(super) const DEVICES: [(&str, u32, u32); 5] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9)];
/// Links in `/dev` that shells and scripts expect.
pub(super) const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Places inside that Landlock has to know beside the declared ones.
pub(super) const OWN_PLACES: [(&str, Access); 4] =
    [("/etc", Access::Read), ("/proc", Access::Read), ("/tmp", Access::Write), ("/dev/shm", Access::Write)];

/// What has to be opened or made while the machine's own tree can still be seen, and by the user who can.
pub(super) struct Prepared {
    pub(super) sources: Sources,
    devices: Vec<(&'static str, OwnedFd)>,
    pub(super) copied: Copied,
}

impl Prepared {
    pub(super) fn open(sources: Sources, network: &Network) -> Result<Self, Failure> {
        let mut devices = Vec::new();
        for (name, major, minor) in DEVICES {
            let path = Path::new("/dev").join(name);
            let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let device = openat(CWD, &path, flags, Mode::empty()).map_err(Failure::at(Step::Devices))?;
            let found = fstat(&device).map_err(Failure::at(Step::Devices))?;
            let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
                && found.st_rdev == rustix::fs::makedev(major, minor);
            if !is_device {
                return Err(Failure::at(Step::Devices)(Errno::NODEV));
            }
            devices.push((name, device));
        }
        Ok(Self { sources, devices, copied: etc::copied(network) })
    }
}

/// What the tree has that depends on the machine.
pub(super) struct Built {
    pub(super) has_proc: bool,
}

/// Builds the tree and makes it the root of this process. Takes capabilities in a user and a mount namespace of its own.
pub(super) fn enter(
    prepared: &Prepared,
    sandbox: &SandboxSpec,
    identity: &Identity<'_>,
    layers: Layers,
) -> Result<Built, Failure> {
    let failed = Failure::at::<Errno>(Step::FileTree);
    // Nothing that happens here may reach the machine's own tree.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).map_err(failed)?;
    // The kernel allows a new `/proc` only while an unmasked one can be seen.
    let proc = if layers.has(Layers::PROCESSES) { new_proc() } else { Err(Errno::NOSYS) };
    // All copies are made before anything is mounted, or they would contain it.
    let mut trees = Vec::with_capacity(prepared.sources.opened.len());
    for source in &prepared.sources.opened {
        let tree = copy(&source.opened, source.access, layers);
        trees.push(tree.map_err(Failure::about(source.step, source.position))?);
    }
    let root = new_tmpfs(&ROOT_OPTIONS, MountAttrFlags::empty()).map_err(failed)?;
    attach(&root, CWD, STAGING).map_err(failed)?;

    make_devices(root.as_fd(), prepared, sandbox).map_err(Failure::at(Step::Devices))?;
    make_etc(root.as_fd(), prepared, identity).map_err(Failure::at(Step::SystemFiles))?;
    let tmp = private(sandbox.tmp_bytes).map_err(failed)?;
    attach_at(root.as_fd(), &tmp, Path::new("/tmp"), true).map_err(failed)?;
    let has_proc = match proc {
        Ok(proc) => attach_at(root.as_fd(), &proc, Path::new("/proc"), true).map(|()| true).map_err(failed)?,
        // Containers mask it; programs work without, and the report says so.
        Err(_) => false,
    };
    for (source, tree) in prepared.sources.opened.iter().zip(&trees) {
        attach_at(root.as_fd(), tree, &source.path, source.is_folder)
            .map_err(Failure::about(source.step, source.position))?;
    }
    let own_trees = [&root, &tmp].map(|tree| fstat(tree).map(|found| found.st_dev));
    for link in &prepared.sources.links {
        make_link(root.as_fd(), &own_trees, &link.path, &link.target).map_err(Failure::at(Step::SystemFiles))?;
    }

    fchdir(&root).map_err(failed)?;
    pivot_root(".", ".").map_err(failed)?;
    // The old root now lies over the new one; without it there is no way back.
    unmount(".", UnmountFlags::DETACH).map_err(failed)?;
    std::env::set_current_dir("/").map_err(Failure::at(Step::FileTree))?;
    if layers.has(Layers::READ_ONLY) {
        set_attributes(root.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false).map_err(Failure::at(Step::FileTree))?;
    }
    Ok(Built { has_proc })
}

fn make_devices(root: BorrowedFd<'_>, prepared: &Prepared, sandbox: &SandboxSpec) -> Result<(), Errno> {
    let folder = folder_at(root, Path::new("/dev"))?;
    for (name, device) in &prepared.devices {
        let tree = open_tree(
            device,
            "",
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )?;
        let target = file_in(folder.as_fd(), Path::new(name))?;
        attach_to(&tree, target.as_fd())?;
    }
    for (name, target) in DEVICE_LINKS {
        symlinkat(target, &folder, name)?;
    }
    let shm = private(sandbox.shm_bytes)?;
    attach_at(root, &shm, Path::new("/dev/shm"), true)
}

fn make_etc(root: BorrowedFd<'_>, prepared: &Prepared, identity: &Identity<'_>) -> std::io::Result<()> {
    let folder = folder_at(root, Path::new("/etc"))?;
    for (name, content) in etc::files(identity, prepared.copied.clone()) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(&folder, name, flags, Mode::from_raw_mode(0o644))?);
        // The mask of the host may be stricter than what every user of the tree needs.
        fchmod(&file, Mode::from_raw_mode(0o644))?;
        file.write_all(&content)?;
    }
    Ok(())
}

/// A copy of one declared path as a mount of its own, with everything mounted beneath it.
fn copy(opened: &OwnedFd, access: Access, layers: Layers) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(opened, "", flags)?;
    let always = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let restriction = match access {
        _ if !layers.has(Layers::READ_ONLY) => MountAttrFlags::empty(),
        Access::Read => MountAttrFlags::MOUNT_ATTR_RDONLY,
        Access::Write | Access::Device => MountAttrFlags::MOUNT_ATTR_NOEXEC,
    };
    set_attributes(tree.as_fd(), always | restriction, true)?;
    Ok(tree)
}

/// A private folder in memory, writable by everybody inside, that nothing can be executed from.
fn private(bytes: u64) -> Result<OwnedFd, Errno> {
    let size = bytes.to_string();
    let options = [("size", size.as_str()), ("nr_inodes", MAX_TMPFS_INODES), ("mode", "1777")];
    new_tmpfs(&options, MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

fn new_tmpfs(options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let always = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, always | attributes)
}

/// A `/proc` with nothing but the processes of this namespace.
fn new_proc() -> Result<OwnedFd, Errno> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "subset", "pid")?;
    fsconfig_set_string(&context, "hidepid", "invisible")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn attach(mount: &OwnedFd, folder: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    move_mount(mount, "", folder, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn attach_to(mount: &OwnedFd, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

/// Mounts at an absolute path of the new tree, making it if it is not there.
fn attach_at(root: BorrowedFd<'_>, mount: &OwnedFd, path: &Path, is_folder: bool) -> Result<(), Errno> {
    let target = if is_folder {
        folder_at(root, path)?
    } else {
        let parent = folder_at(root, path.parent().unwrap_or(Path::new("/")))?;
        file_in(parent.as_fd(), Path::new(path.file_name().ok_or(Errno::ISDIR)?))?
    };
    attach_to(mount, target.as_fd())
}

/// The folder at an absolute path of the new tree. No step follows a link, because some lead through folders a plugin
/// writes to.
fn folder_at(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = openat(root, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for component in path.components() {
        let Component::Normal(name) = component else { continue };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = match openat(&folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                openat(&folder, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(folder)
}

/// A file to mount over.
fn file_in(folder: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(folder, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH) {
        Err(Errno::NOENT) => {
            let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(openat(folder, name, create, Mode::from_raw_mode(0o644))?);
            openat2(folder, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH)
        }
        other => other,
    }
}

/// Makes a link that is not there by way of a mount. What is mounted is the machine's, so nothing is ever made there: its
/// links are there already.
fn make_link(root: BorrowedFd<'_>, own_trees: &[Result<u64, Errno>], path: &Path, target: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    // A folder on the way may be a link made before. Following it cannot lead out of the new tree.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let parent = match openat2(root, parent, flags, Mode::empty(), inside) {
        Err(Errno::NOENT) => folder_at(root, parent)?,
        found => found?,
    };
    if !own_trees.contains(&fstat(&parent).map(|found| found.st_dev)) {
        return Ok(());
    }
    match symlinkat(target, &parent, name) {
        // Something else is mounted under this name, or an equal link was made before.
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Adds restrictions to a mount, and to all beneath it if asked.
fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttrFlags, recursive: bool) -> std::io::Result<()> {
    /// Structure of the kernel interface.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let change = Attributes { set: u64::from(attributes.bits()), clear: 0, propagation: 0, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    #[allow(unsafe_code, reason = "mount_setattr has no safe wrapper")]
    // SAFETY: the path is an empty NUL-terminated string; `change` is initialised, lives across the call, and its size is
    // given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const change,
            size_of::<Attributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
