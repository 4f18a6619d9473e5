//! Control groups of version 2, where a part of their tree was handed to us.
//!
//! Owns finding out whether it was, a group for each plugin with its limits, and the end of that group. Refuses moving
//! processes that are not ours: a group shared with somebody's shell is no place to make groups in.
//!
//! ```text
//! handed over (a systemd unit with `Delegate=yes`)
//!   plugward-host        the host and its launchers, moved there by the first launcher
//!   plugin-LAUNCHER[.N]  one plugin: memory.max, memory.swap.max, pids.max, cpu.max; killed as a whole by cgroup.kill
//! ```

use std::{
    fmt, fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock},
    process::{getpid, getppid},
};

use super::tree;
use crate::Limits;

/// Group of the host itself: a group with limits for others may hold no processes of its own.
const HOST_GROUP: &str = "plugward-host";
/// Start of the names of groups of plugins; the launcher's process id follows.
const PLUGIN_GROUP: &str = "plugin-";
/// What must be there for a group to be worth it.
const NEEDED: [&str; 2] = ["memory", "pids"];
/// What is used where it was handed over as well.
const WELCOME: &str = "cpu";
/// In what time a share of the processors is counted, in microseconds: the kernel's own choice.
const CPU_PERIOD_US: u64 = 100_000;
/// How often the folder is cleared again when something was started in it meanwhile.
const PREPARE_ATTEMPTS: u32 = 8;
/// Names tried for a group while those of launchers that had the same process id still hold something.
const NAME_ATTEMPTS: u32 = 8;
/// Most groups looked at for ones left behind by a launcher that was killed.
const MAX_SWEPT: usize = 1024;
/// Most processes moved out of the way: those of a host and its launchers.
const MAX_MOVED: usize = 4096;

/// Why no group can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotDelegated {
    NoTree,
    Root,
    Closed,
    Controller(&'static str),
    Shared,
}

impl fmt::Display for NotDelegated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTree => formatter.write_str("no tree of control groups of version 2 is mounted"),
            Self::Root => {
                formatter.write_str("plugward runs in the machine's own control group, which was handed to nobody")
            }
            Self::Closed => formatter.write_str(
                "plugward's control group is not handed over to its user; a systemd unit does that with `Delegate=yes`",
            ),
            Self::Controller(name) => write!(formatter, "plugward's control group has no `{name}` controller"),
            Self::Shared => formatter.write_str(
                "other programs share plugward's control group; run it as a systemd unit with `Delegate=yes`",
            ),
        }
    }
}

/// The group in which groups of plugins are made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    folder: PathBuf,
    /// Whether the processes in it have to be moved first.
    has_processes: bool,
    /// Whether it can share out the processors.
    has_cpu: bool,
}

/// The reason why this host has no groups for its plugins, for people; `None` if it has.
pub(crate) fn reason() -> Option<String> {
    find(getpid().as_raw_nonzero().get()).err().map(|reason| reason.to_string())
}

/// The group that was handed to the host of this launcher.
pub(super) fn of_host() -> Result<Parent, NotDelegated> {
    find(getppid().map_or(0, |host| host.as_raw_nonzero().get()))
}

fn find(host: i32) -> Result<Parent, NotDelegated> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_point(&mounts).ok_or(NotDelegated::NoTree)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or(NotDelegated::NoTree)?;
    let is_ours = |pid| pid == host || tree::stat(pid).is_none_or(|stat| stat.parent == host);
    find_in(Path::new(mount), own, is_ours)
}

/// Mount point of the first tree of version 2. In each line the type follows a lone `-`.
fn mount_point(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4))?
    })
}

/// As [`find`], in any folder.
fn find_in(mount: &Path, own: &str, is_ours: impl Fn(i32) -> bool) -> Result<Parent, NotDelegated> {
    if own.is_empty() {
        return Err(NotDelegated::Root);
    }
    let own = mount.join(own);
    let (folder, has_processes) = match (own.file_name(), own.parent()) {
        (Some(name), Some(parent)) if name == HOST_GROUP => (parent.to_owned(), false),
        _ => (own, true),
    };
    let controllers = fs::read_to_string(folder.join("cgroup.controllers")).map_err(|_| NotDelegated::NoTree)?;
    let has = |wanted: &str| controllers.split_ascii_whitespace().any(|name| name == wanted);
    if let Some(missing) = NEEDED.into_iter().find(|name| !has(name)) {
        return Err(NotDelegated::Controller(missing));
    }
    // What systemd hands over is the folder and these two files.
    let files = [folder.clone(), folder.join("cgroup.procs"), folder.join("cgroup.subtree_control")];
    if files.iter().any(|file| accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS).is_err()) {
        return Err(NotDelegated::Closed);
    }
    if has_processes && !processes(&folder).map_err(|_| NotDelegated::NoTree)?.into_iter().all(is_ours) {
        return Err(NotDelegated::Shared);
    }
    Ok(Parent { folder, has_processes, has_cpu: has(WELCOME) })
}

fn processes(group: &Path) -> io::Result<Vec<i32>> {
    let listed = fs::read_to_string(group.join("cgroup.procs"))?;
    Ok(listed.lines().filter_map(|pid| pid.parse().ok()).take(MAX_MOVED).collect())
}

impl Parent {
    /// Makes a group for the plugin of this launcher, with its limits, of which `overhead` processes are ours.
    pub(super) fn make(&self, limits: &Limits, overhead: u64) -> io::Result<Group> {
        self.make_for(getpid().as_raw_nonzero().get(), limits, overhead)
    }

    fn make_for(&self, launcher: i32, limits: &Limits, overhead: u64) -> io::Result<Group> {
        // Plugins start at the same time, each by a launcher of its own, and all of them prepare the same folder.
        let _turn = self.lock()?;
        let has_cpu = self.prepare(|file, value| fs::write(file, value))?;
        self.sweep();
        let folder = self.new_folder(launcher)?;
        let has_cpu_share = has_cpu && limits.cpu_percent.is_some();
        let group = Group { folder, limits: *limits, overhead, has_cpu_share };
        group.set_limits().inspect_err(|_| group.remove())?;
        Ok(group)
    }

    /// A folder that nothing was in yet. Process ids come back: a group with the name of this launcher is that of one that
    /// was killed, with limits for another plugin and maybe with what is left of it.
    fn new_folder(&self, launcher: i32) -> io::Result<PathBuf> {
        let mut last = io::Error::from_raw_os_error(libc::EEXIST);
        for attempt in 0..NAME_ATTEMPTS {
            let suffix = if attempt == 0 { String::new() } else { format!(".{attempt}") };
            let folder = self.folder.join(format!("{PLUGIN_GROUP}{launcher}{suffix}"));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
            if fs::remove_dir(&folder).is_ok() && fs::create_dir(&folder).is_ok() {
                return Ok(folder);
            }
            // Nobody is left who would end what is in it.
            let _older_kernel = fs::write(folder.join("cgroup.kill"), "1");
        }
        Err(last)
    }

    /// Held while the folder is changed; given back when it is dropped, or its holder ends.
    fn lock(&self) -> io::Result<fs::File> {
        let folder = fs::File::open(&self.folder)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        Ok(folder)
    }

    /// Moves every process out of the way, and has the controllers work below this folder; tells whether that for the
    /// processors does, without which the others are as good. `write` puts a value into a file.
    fn prepare(&self, write: impl Fn(&Path, &str) -> io::Result<()>) -> io::Result<bool> {
        let switch = |name: &str| write(&self.folder.join("cgroup.subtree_control"), &format!("+{name}"));
        let mut left = PREPARE_ATTEMPTS;
        loop {
            self.move_processes(&write)?;
            match NEEDED.into_iter().try_for_each(switch) {
                Ok(()) => return Ok(self.has_cpu && switch(WELCOME).is_ok()),
                // Something was started here since: the launcher of another plugin, by a host that was not moved yet.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && left > 0 => left -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn move_processes(&self, write: &impl Fn(&Path, &str) -> io::Result<()>) -> io::Result<()> {
        if !self.has_processes {
            return Ok(());
        }
        let host = self.folder.join(HOST_GROUP);
        make_folder(&host)?;
        for pid in processes(&self.folder)? {
            match write(&host.join("cgroup.procs"), &pid.to_string()) {
                // It has ended by now.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Removes groups whose launcher was killed before it could. Those that still hold a process stay.
    fn sweep(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MAX_SWEPT);
        for entry in entries {
            let name = entry.file_name();
            let launcher = name.to_str().and_then(launcher_of);
            if launcher.is_some_and(|launcher| tree::stat(launcher).is_none()) {
                let _holds_one = fs::remove_dir(entry.path());
            }
        }
    }
}

/// The launcher whose group has this name.
fn launcher_of(name: &str) -> Option<i32> {
    let number = name.strip_prefix(PLUGIN_GROUP)?;
    number.split_once('.').map_or(number, |(launcher, _)| launcher).parse().ok()
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The group of one plugin.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    limits: Limits,
    /// Processes of ours in it.
    overhead: u64,
    has_cpu_share: bool,
}

impl Group {
    fn set_limits(&self) -> io::Result<()> {
        if let Some(memory_bytes) = self.limits.memory_bytes {
            self.set("memory.max", &memory_bytes.to_string())?;
            // All of it, so that what is left cannot go on without the process that was killed.
            self.set("memory.oom.group", "1")?;
            match self.set("memory.swap.max", "0") {
                // A machine without swap has no such file.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES | libc::EPERM)) => {}
                other => other?,
            }
        }
        if let Some(percent) = self.limits.cpu_percent.filter(|_| self.has_cpu_share) {
            let quota_us = percent.saturating_mul(CPU_PERIOD_US / 100);
            self.set("cpu.max", &format!("{quota_us} {CPU_PERIOD_US}"))?;
        }
        match self.limits.processes {
            Some(processes) => self.set("pids.max", &processes.saturating_add(self.overhead).to_string()),
            None => Ok(()),
        }
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), value)
    }

    /// Puts a process in, and with it all that it starts.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// The file through which a process puts itself in by writing `0`.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(fs::File::options().write(true).open(self.folder.join("cgroup.procs"))?.into())
    }

    /// Kills every process in it at once. Kernels before 5.14 cannot; the tree is then ended by other means alone.
    pub(super) fn kill(&self) {
        let _older_kernel = self.set("cgroup.kill", "1");
    }

    /// The most memory it ever had in bytes, if the kernel killed processes of it for that.
    pub(super) fn out_of_memory(&self) -> Option<u64> {
        let events = fs::read_to_string(self.folder.join("memory.events")).ok()?;
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse::<u64>().ok()?;
        let peak = || fs::read_to_string(self.folder.join("memory.peak")).ok()?.trim().parse().ok();
        (kills > 0).then(|| peak().or(self.limits.memory_bytes).unwrap_or_default())
    }

    /// Removes it. One that still holds a process stays until another launcher sweeps.
    pub(super) fn remove(&self) {
        let _holds_one = fs::remove_dir(&self.folder);
    }

    /// Whether it bounds the share of the processors.
    pub(super) fn has_cpu_share(&self) -> bool {
        self.has_cpu_share
    }

    /// The limits it was made with.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of plain files with our group in it.
    fn tree_of_files(controllers: &str, processes: &str) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("user.slice/plugward.service");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), controllers).unwrap();
        fs::write(own.join("cgroup.procs"), processes).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        mount
    }

    const OWN: &str = "user.slice/plugward.service";

    // Requirement 92: what is reported as a limit of the kernel has to be one, so anything odd means there is none.
    #[test]
    fn a_group_is_ours_only_if_it_was_handed_over() {
        let found = |mount: &tempfile::TempDir, own: &str| find_in(mount.path(), own, |pid| pid == 7);
        let handed = tree_of_files("cpu memory pids\n", "7\n");
        assert!(found(&handed, OWN).unwrap().has_processes);
        assert_eq!(found(&handed, ""), Err(NotDelegated::Root));
        assert_eq!(found(&handed, "elsewhere"), Err(NotDelegated::NoTree));
        assert_eq!(found(&tree_of_files("hugetlb\n", "7\n"), OWN), Err(NotDelegated::Controller("memory")));
        assert_eq!(found(&tree_of_files("memory\n", "7\n"), OWN), Err(NotDelegated::Controller("pids")));
        assert_eq!(found(&tree_of_files("memory pids\n", "7\n8\n"), OWN), Err(NotDelegated::Shared));
        // Where it was prepared before, whose processes are in the host's own group does not matter.
        let inner = found(&handed, &format!("{OWN}/{HOST_GROUP}")).unwrap();
        assert_eq!(inner, Parent { folder: handed.path().join(OWN), has_processes: false, has_cpu: true });
        if !rustix::process::geteuid().is_root() {
            let procs = handed.path().join(OWN).join("cgroup.procs");
            fs::set_permissions(&procs, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
            assert_eq!(found(&handed, OWN), Err(NotDelegated::Closed));
        }
    }

    #[test]
    fn a_plugin_gets_a_group_with_its_limits() {
        let mount = tree_of_files("cpu memory pids\n", "7\n");
        let own = mount.path().join(OWN);
        let abandoned = own.join("plugin-2147483646");
        fs::create_dir(&abandoned).unwrap();
        let parent = find_in(mount.path(), OWN, |_| true).unwrap();
        let limits =
            Limits { memory_bytes: Some(4096), processes: Some(9), cpu_percent: Some(50), ..Limits::default() };
        let group = parent.make_for(12, &limits, 2).unwrap();
        assert!(!abandoned.exists(), "the group of a launcher that is gone");
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap();
        assert_eq!((read("plugward-host/cgroup.procs"), read("cgroup.subtree_control")), ("7".into(), "+cpu".into()));
        let limit = |name: &str| read(&format!("plugin-12/{name}"));
        let names = ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"];
        assert_eq!(names.map(limit), ["4096", "0", "1", "11", "50000 100000"]);
        group.add(99).unwrap();
        rustix::io::write(group.entrance().unwrap(), b"0").unwrap();
        assert_eq!(read("plugin-12/cgroup.procs"), "09", "both ways in write to the same file");
        group.kill();
        assert_eq!(read("plugin-12/cgroup.kill"), "1");
        assert_eq!(group.out_of_memory(), None);
        fs::write(group.folder.join("memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        assert_eq!(group.out_of_memory(), Some(4096));
        fs::write(group.folder.join("memory.peak"), "5000\n").unwrap();
        assert_eq!(group.out_of_memory(), Some(5000));
    }

    // Ten plugins that start at once under one service: the host's other launchers are in the way of the first, and each of
    // them gets its group all the same.
    #[test]
    fn starts_at_once_do_not_keep_each_other_from_their_groups() {
        let mount = tree_of_files("cpu memory pids\n", "7\n8\n");
        let own = mount.path().join(OWN);
        let parent = find_in(mount.path(), OWN, |_| true).unwrap();
        let (tries, moved) = (std::cell::Cell::new(0), std::cell::RefCell::new(Vec::new()));
        let write = |busy: u32, file: &Path, value: &str| {
            if file.ends_with("cgroup.subtree_control") {
                tries.set(tries.get() + 1);
                return if tries.get() <= busy { Err(io::Error::from_raw_os_error(libc::EBUSY)) } else { Ok(()) };
            }
            moved.borrow_mut().push(value.to_owned());
            // A process that was started between the look and the move.
            fs::write(own.join("cgroup.procs"), "9\n")
        };
        assert!(parent.prepare(|file, value| write(1, file, value)).unwrap());
        assert_eq!(moved.take(), ["7", "8", "9"], "what came meanwhile is moved as well");
        // One that never gives way is an error, not a wait without end.
        tries.set(0);
        let error = parent.prepare(|file, value| write(u32::MAX, file, value)).unwrap_err();
        assert_eq!((error.raw_os_error(), tries.get()), (Some(libc::EBUSY), PREPARE_ATTEMPTS + 1));
        let turn = parent.lock().unwrap();
        let second = fs::File::open(&own).unwrap();
        assert!(flock(&second, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(turn);
        flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    // Limits on memory and processes are worth having without a share of the processors.
    #[test]
    fn a_controller_for_the_processors_that_cannot_be_had_costs_nothing_else() {
        let mount = tree_of_files("cpu memory pids\n", "7\n");
        let parent = find_in(mount.path(), OWN, |_| true).unwrap();
        let denied = |what: &'static str| {
            move |_: &Path, value: &str| {
                if value == what { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
            }
        };
        assert!(!parent.prepare(denied("+cpu")).unwrap());
        assert!(parent.prepare(denied("+memory")).is_err(), "control: what is needed is needed");
        assert!(parent.prepare(denied("nothing")).unwrap(), "control: it is taken where it can be had");
    }

    // The launcher of a host that was killed can have had the same process id. What is in its group is not the new plugin's,
    // and neither are its limits.
    #[test]
    fn a_group_of_an_earlier_launcher_is_not_taken_over() {
        let mount = tree_of_files("cpu memory pids\n", "7\n");
        let own = mount.path().join(OWN);
        let parent = find_in(mount.path(), OWN, |_| true).unwrap();
        let earlier = own.join("plugin-12");
        fs::create_dir(&earlier).unwrap();
        fs::write(earlier.join("pids.max"), "1").unwrap();
        let limits = Limits { processes: Some(9), ..Limits::default() };
        let group = parent.make_for(12, &limits, 0).unwrap();
        assert_eq!(group.folder, own.join("plugin-12.1"));
        assert_eq!(fs::read_to_string(earlier.join("cgroup.kill")).unwrap(), "1", "what is left of it ends");
        assert_eq!(fs::read_to_string(group.folder.join("pids.max")).unwrap(), "9");
        // An empty one is made anew under the same name.
        fs::create_dir(own.join("plugin-13")).unwrap();
        assert_eq!(parent.make_for(13, &limits, 0).unwrap().folder, own.join("plugin-13"));
        assert_eq!(
            ["plugin-12", "plugin-12.1", "plugin-x", "other"].map(launcher_of),
            [Some(12), Some(12), None, None]
        );
    }

    /// The real detection on the machine that runs this test: an answer and, where there is no group, why.
    #[test]
    fn this_machine_gives_a_group_or_a_reason() {
        match find(getpid().as_raw_nonzero().get()) {
            Ok(parent) => assert!(parent.folder.join("cgroup.procs").exists()),
            Err(reason) => {
                let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
                assert_eq!(reason == NotDelegated::NoTree, mount_point(&mounts).is_none(), "{reason}");
                assert!(super::reason().is_some_and(|text| text.contains("control group")));
            }
        }
        assert_eq!(mount_point("31 24 0:27 / /g rw - cgroup2 cgroup rw\n"), Some("/g"));
        assert_eq!(mount_point("31 24 0:27 / /g rw - cgroup cgroup rw\n"), None);
    }
}
