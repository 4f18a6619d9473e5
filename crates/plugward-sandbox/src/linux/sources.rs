//! The declared paths, opened.
//!
//! Owns following symbolic links hop by hop, so that each can be made again inside, and the rule that nothing on a way a
//! plugin can write to is followed. Refuses reading anything: what is opened here can only be mounted or named in a rule.
//!
//! A path that changes between the look at its links and its opening is refused, because the last step follows none.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat},
    io::Errno,
};

use super::{
    confine::Access,
    failure::{Failure, Step},
};
use crate::{LaunchSpec, SandboxSpec, UserPolicy};

/// Most symbolic links on the way to one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Trees that no link may lead into: they show the kernel, other processes, or devices.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Where distributions keep certificates, and what the links there lead to.
const CERTIFICATES: [&str; 6] = [
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// One declared path, open.
#[derive(Debug)]
pub(super) struct Source {
    /// Where it is once all links are followed.
    pub(super) path: PathBuf,
    pub(super) opened: OwnedFd,
    pub(super) access: Access,
    pub(super) is_folder: bool,
    /// Its number in the list it was declared in, and the step that reports about that list.
    pub(super) position: usize,
    pub(super) step: Step,
}

/// A symbolic link on the way to a declared path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) path: PathBuf,
    pub(super) target: PathBuf,
}

/// Everything a sandbox opens on the machine it is on.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Sorted so that a folder comes before what is in it, each path once.
    pub(super) opened: Vec<Source>,
    pub(super) links: Vec<Link>,
}

impl Sources {
    /// Opens the paths of a sandbox, and the executable.
    pub(super) fn open(spec: &LaunchSpec, sandbox: &SandboxSpec) -> Result<Self, Failure> {
        let mut sources = Self::default();
        let writable: Vec<&Path> = sandbox.writable().collect();
        for (position, path) in writable.iter().enumerate() {
            let opened = open_final(path).map_err(Failure::about(Step::Writable, position))?;
            refuse_foreign(&opened, sandbox.user).map_err(Failure::about(Step::Ownership, position))?;
            sources.add(path.to_path_buf(), opened, Access::Write, Step::Writable, position)?;
        }
        for (position, path) in sandbox.exact().enumerate() {
            sources.add_exact(path, Step::Granted, position)?;
        }
        for (position, alias) in sandbox.aliases.iter().enumerate() {
            let failed = Failure::about::<Errno>(Step::Alias, position);
            if follow(&alias.name, &writable, &mut sources.links).map_err(failed)? != alias.place {
                return Err(failed(Errno::LOOP));
            }
        }
        for (position, path) in sandbox.read_only.iter().enumerate() {
            sources.add_readable(path, &writable, Step::Readable, position)?;
        }
        if sandbox.certificates {
            for path in CERTIFICATES.iter().map(Path::new).filter(|path| path.exists()) {
                sources.add_readable(path, &writable, Step::SystemFiles, 0)?;
            }
        }
        // One whose way was looked at before is opened where that led.
        match sandbox.aliases.iter().find(|alias| alias.name == spec.executable) {
            Some(alias) => sources.add_exact(&alias.place, Step::Executable, 0)?,
            None => sources.add_readable(&spec.executable, &writable, Step::Executable, 0)?,
        }
        sources.sort();
        Ok(sources)
    }

    fn add_exact(&mut self, path: &Path, step: Step, position: usize) -> Result<(), Failure> {
        let opened = open_final(path).map_err(Failure::about(step, position))?;
        self.add(path.to_owned(), opened, Access::Read, step, position)
    }

    fn add_readable(&mut self, path: &Path, writable: &[&Path], step: Step, position: usize) -> Result<(), Failure> {
        let real = follow(path, writable, &mut self.links).map_err(Failure::about(step, position))?;
        let opened = open_final(&real).map_err(Failure::about(step, position))?;
        self.add(real, opened, Access::Read, step, position)
    }

    fn add(
        &mut self,
        path: PathBuf,
        opened: OwnedFd,
        access: Access,
        step: Step,
        position: usize,
    ) -> Result<(), Failure> {
        let failed = Failure::about::<Errno>(step, position);
        let is_folder = match FileType::from_raw_mode(fstat(&opened).map_err(failed)?.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            // A socket or a device would be a way out, not a file.
            _ => return Err(failed(Errno::ACCESS)),
        };
        self.opened.push(Source { path, opened, access, is_folder, position, step });
        Ok(())
    }

    /// A path declared twice is mounted once; writing, which the caller has to have meant, wins.
    fn sort(&mut self) {
        self.opened
            .sort_by(|a, b| a.path.cmp(&b.path).then((b.access == Access::Write).cmp(&(a.access == Access::Write))));
        self.opened.dedup_by(|later, kept| later.path == kept.path);
        // What is readable inside a readable folder is there already. Of the folders around a path, the closest one is the
        // last one kept.
        let mut kept: Vec<Source> = Vec::with_capacity(self.opened.len());
        for source in self.opened.drain(..) {
            let around = kept.iter().rev().find(|folder| source.path.starts_with(&folder.path));
            if source.access != Access::Read || around.is_none_or(|folder| folder.access != Access::Read) {
                kept.push(source);
            }
        }
        self.opened = kept;
    }
}

/// Opens without following any link.
fn open_final(path: &Path) -> Result<OwnedFd, Errno> {
    if path.parent().is_none() || KERNEL_TREES.iter().any(|tree| path.starts_with(tree)) {
        return Err(Errno::ACCESS);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// A plugin with a user of its own writes to what that user owns: permission to write to a place is none to take it away
/// from somebody else. What is asked is what was opened.
fn refuse_foreign(opened: &OwnedFd, user: UserPolicy) -> Result<(), Errno> {
    match user {
        UserPolicy::Drop { uid, .. } if fstat(opened)?.st_uid != uid => Err(Errno::PERM),
        _ => Ok(()),
    }
}

/// The path without links, noting each link on the way.
fn follow(path: &Path, writable: &[&Path], links: &mut Vec<Link>) -> Result<PathBuf, Errno> {
    let mut rest: VecDeque<OsString> = VecDeque::new();
    put_in_front(&mut rest, path);
    let mut done = PathBuf::from("/");
    let mut followed = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        // Links there lead to whatever a process has open, not to a place.
        if KERNEL_TREES.iter().any(|tree| next.starts_with(tree)) {
            return Err(Errno::ACCESS);
        }
        let found = statat(CWD, &next, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            done = next;
            continue;
        }
        followed += 1;
        // A link inside a folder the plugin writes to may have been planted by it.
        if followed > MAX_LINKS || writable.iter().any(|folder| next.starts_with(folder)) {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(CWD, &next, Vec::new())?.into_bytes();
        let target = PathBuf::from(OsString::from_vec(target));
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        put_in_front(&mut rest, &target);
        let link = Link { path: next, target };
        if !links.contains(&link) {
            links.push(link);
        }
    }
    Ok(done)
}

fn put_in_front(rest: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{Alias, Level, StopGrace};

    fn spec(executable: &Path) -> LaunchSpec {
        LaunchSpec {
            executable: executable.into(),
            argv: vec!["x".into()],
            cwd: "/".into(),
            env: Vec::new(),
            stop: StopGrace::default(),
            sandbox: None,
        }
    }

    /// An interpreter reached through three links must be found, and every link must be there inside.
    #[test]
    fn every_hop_of_a_link_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/bin")).unwrap();
        fs::create_dir(root.join("venv")).unwrap();
        fs::write(root.join("real/bin/python3.11"), "").unwrap();
        symlink("python3.11", root.join("real/bin/python3")).unwrap();
        symlink("real", root.join("current")).unwrap();
        symlink("../current/bin/python3", root.join("venv/python")).unwrap();
        let mut links = Vec::new();
        let real = follow(&root.join("venv/python"), &[], &mut links).unwrap();
        assert_eq!(real, root.join("real/bin/python3.11"));
        let paths: Vec<&Path> = links.iter().map(|link| link.path.strip_prefix(&root).unwrap()).collect();
        assert_eq!(paths, [Path::new("venv/python"), Path::new("current"), Path::new("real/bin/python3")]);
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(follow(&root.join("loop"), &[], &mut Vec::new()), Err(Errno::LOOP));
        symlink("/proc/self/root/etc", root.join("magic")).unwrap();
        assert_eq!(follow(&root.join("magic"), &[], &mut Vec::new()), Err(Errno::ACCESS));
    }

    // Threat: a plugin replaces a folder of its data by a link to `/etc` and waits for its next start.
    #[test]
    fn planted_links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let data = root.join("data");
        fs::create_dir(&data).unwrap();
        symlink("/etc", data.join("sub")).unwrap();
        symlink("/etc/hostname", data.join("tool")).unwrap();
        let open = |sandbox: &SandboxSpec| Sources::open(&spec(Path::new("/bin/sh")), sandbox).map(|_| ());
        let mut sandbox = SandboxSpec::new(Level::Full);
        sandbox.read_write = vec![data.clone()];
        assert_eq!(open(&sandbox), Ok(()));
        sandbox.read_only = vec![data.join("tool")];
        let refused = |step| Failure { step, errno: libc::ELOOP, subject: 0 };
        assert_eq!(open(&sandbox), Err(refused(Step::Readable)));
        sandbox.read_only.clear();
        sandbox.read_write = vec![data.join("sub")];
        assert_eq!(open(&sandbox), Err(refused(Step::Writable)));
    }

    // Threat: between the look at a granted folder and the start, somebody who may write above it puts a link in its place.
    #[test]
    fn a_granted_place_is_opened_as_it_was_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("team/notes")).unwrap();
        fs::create_dir(root.join("keys")).unwrap();
        fs::write(root.join("tool"), "").unwrap();
        let mut sandbox = SandboxSpec::new(Level::Full);
        sandbox.granted = vec![root.join("team/notes")];
        sandbox.aliases = vec![Alias { name: root.join("mine"), place: root.join("team/notes") }];
        symlink("team/notes", root.join("mine")).unwrap();
        let open = |sandbox: &SandboxSpec, executable: &Path| {
            Sources::open(&spec(executable), sandbox).map(|found| found.links)
        };
        let links = open(&sandbox, &root.join("tool")).unwrap();
        assert_eq!(links[0], Link { path: root.join("mine"), target: "team/notes".into() });
        fs::rename(root.join("team"), root.join("moved")).unwrap();
        symlink("keys", root.join("team")).unwrap();
        fs::create_dir(root.join("keys/notes")).unwrap();
        let refused = |step| Err(Failure { step, errno: libc::ELOOP, subject: 0 });
        assert_eq!(open(&sandbox, &root.join("tool")), refused(Step::Granted));
        // The same where it is the name that leads elsewhere, be it the program's.
        sandbox.granted.clear();
        assert_eq!(open(&sandbox, &root.join("tool")), refused(Step::Alias));
        symlink("tool", root.join("bent")).unwrap();
        sandbox.aliases = vec![Alias { name: root.join("bent"), place: root.join("tool") }];
        assert!(open(&sandbox, &root.join("bent")).is_ok());
        sandbox.aliases[0].place = root.join("keys/tool");
        assert_eq!(open(&sandbox, &root.join("bent")), refused(Step::Alias));
    }

    // Threat: a host that runs as root is asked to let a plugin write to what belongs to somebody else.
    #[test]
    fn a_place_of_somebody_else_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let mut sandbox = SandboxSpec::new(Level::Full);
        sandbox.read_write = vec![folder.path().canonicalize().unwrap()];
        let own = rustix::process::getuid().as_raw();
        let open = |sandbox: &SandboxSpec| Sources::open(&spec(Path::new("/bin/sh")), sandbox).map(|_| ());
        sandbox.user = UserPolicy::Drop { uid: own + 1, gid: own + 1 };
        assert_eq!(open(&sandbox), Err(Failure { step: Step::Ownership, errno: libc::EPERM, subject: 0 }));
        sandbox.user = UserPolicy::Drop { uid: own, gid: own };
        assert_eq!(open(&sandbox), Ok(()));
    }

    #[test]
    fn what_is_inside_a_readable_folder_needs_no_mount() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("package/data/cache")).unwrap();
        fs::write(root.join("package/run"), "").unwrap();
        let mut sandbox = SandboxSpec::new(Level::Full);
        sandbox.package_dir = Some(root.join("package"));
        sandbox.read_only = vec![root.join("package/data/cache")];
        sandbox.read_write = vec![root.join("package/data")];
        let sources = Sources::open(&spec(&root.join("package/run")), &sandbox).unwrap();
        let kept: Vec<(&Path, Access)> = sources
            .opened
            .iter()
            .map(|source| (source.path.strip_prefix(root.join("package")).unwrap(), source.access))
            .collect();
        let expected = [("", Access::Read), ("data", Access::Write), ("data/cache", Access::Read)];
        assert_eq!(kept, expected.map(|(path, access)| (Path::new(path), access)));
    }
}
