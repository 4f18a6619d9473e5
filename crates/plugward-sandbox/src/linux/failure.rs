//! A step of the launcher that failed, and what the host tells a person about it.
//!
//! Owns the list of steps and their words. Refuses going on after a failure: nothing of the plugin runs.

use std::io;

/// Steps before the plugin executes, in the launcher and behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Descriptors,
    Threads,
    Session,
    Privileges,
    Signals,
    Spec,
    Cwd,
    Exec,
    User,
    Ownership,
    Namespaces,
    IdMap,
    OutOfMemory,
    Readable,
    Writable,
    Executable,
    Nested,
    FileTree,
    Devices,
    SystemFiles,
    HostName,
    Limits,
    Capabilities,
    LandlockVersion,
    Landlock,
    Seccomp,
    Canary,
    OwnNetwork,
    Observer,
    Granted,
    Alias,
    Bwrap,
    BwrapNested,
    BwrapHosts,
    Layers,
}

impl Step {
    pub(super) const ALL: [Self; 35] = [
        Self::Descriptors,
        Self::Threads,
        Self::Session,
        Self::Privileges,
        Self::Signals,
        Self::Spec,
        Self::Cwd,
        Self::Exec,
        Self::User,
        Self::Ownership,
        Self::Namespaces,
        Self::IdMap,
        Self::OutOfMemory,
        Self::Readable,
        Self::Writable,
        Self::Executable,
        Self::Nested,
        Self::FileTree,
        Self::Devices,
        Self::SystemFiles,
        Self::HostName,
        Self::Limits,
        Self::Capabilities,
        Self::LandlockVersion,
        Self::Landlock,
        Self::Seccomp,
        Self::Canary,
        Self::OwnNetwork,
        Self::Observer,
        Self::Granted,
        Self::Alias,
        Self::Bwrap,
        Self::BwrapNested,
        Self::BwrapHosts,
        Self::Layers,
    ];

    /// The step as a verb phrase for [`crate::SpawnError::Launcher`].
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Descriptors => "put its descriptors in order",
            Self::Threads => "make sure that it has a single thread",
            Self::Session => "start its own session",
            Self::Privileges => "give up gaining privileges",
            Self::Signals => "take over its signals",
            Self::Spec => "read the specification",
            Self::Cwd => "enter the working directory",
            Self::Exec => "execute the plugin",
            _ => "put the sandbox in force",
        }
    }

    /// The layer of the sandbox the step belongs to, in words, and what usually helps. `None` for steps that are not
    /// about the sandbox.
    pub(super) const fn layer(self) -> Option<(&'static str, &'static str)> {
        const NAMESPACES: &str = "; allow user namespaces for this user (`user.max_user_namespaces`, \
                                  `kernel.unprivileged_userns_clone`, an AppArmor profile with `userns`), or install \
                                  bubblewrap if that may make them, or ask for level `partial`";
        const KERNEL: &str = "; it takes Linux 5.12 or later, a container that permits mounting, and on Ubuntu an AppArmor \
                              profile with `userns`; or ask for level `partial`";
        const LANDLOCK: &str =
            "; it takes Linux 6.2 or later with `landlock` in the `lsm=` list of the kernel's command line";
        Some(match self {
            Self::User => (
                "the plugin's own user",
                "; a host that runs as root gives the plugin an unprivileged user, and only such a host can",
            ),
            Self::Ownership => (
                "writing as a user of the plugin's own",
                "; that user has to be the owner of what it writes to, so give it the folder, or run plugward as the \
                 folder's owner",
            ),
            Self::Alias => {
                ("the name of a path", "; a symbolic link on the way leads elsewhere than when it was looked at")
            }
            Self::Granted => (
                "a granted path",
                "; it has to exist, and no part of it may have become a symbolic link since it was looked at",
            ),
            Self::Namespaces => ("user, process, network and mount namespaces", NAMESPACES),
            Self::IdMap => ("the map of user ids", NAMESPACES),
            Self::OutOfMemory => ("its place in line when memory runs out", ""),
            Self::Readable => ("a readable path", "; it has to exist and to be a file or folder"),
            Self::Writable => (
                "a writable path",
                "; it has to exist, and no part of it may be a symbolic link (give the path it leads to)",
            ),
            Self::Executable => ("its executable", "; it has to exist and to be a file"),
            Self::Nested => (
                "a writable path around or inside a readable one",
                "; Landlock cannot take back a right further down, so give folders apart from each other, or ask for level \
                 `full`",
            ),
            Self::FileTree => ("a file tree of its own", KERNEL),
            Self::Devices => ("its devices", KERNEL),
            Self::SystemFiles => ("its system files", KERNEL),
            Self::HostName => ("a host name of its own", ""),
            Self::Limits => ("limits on resources", ""),
            Self::Capabilities => ("giving up capabilities", ""),
            Self::LandlockVersion | Self::Landlock => ("Landlock", LANDLOCK),
            Self::Seccomp => ("the system call filter", "; it takes a kernel with seccomp filters"),
            Self::Bwrap => (
                "the namespaces that bubblewrap makes",
                "; it takes `/usr/bin/bwrap` with `--bind-fd` (0.10, or a distribution's fix of 2024) that this user may \
                 use, Landlock, and a `/proc` over no part of which anything is mounted",
            ),
            Self::BwrapHosts => (
                "a list of hosts, through bubblewrap",
                "; allow plugward itself to make user namespaces (packaging/README.md)",
            ),
            Self::BwrapNested => (
                "a writable path around or inside another one, through bubblewrap",
                "; give folders apart from each other, or allow plugward itself to make user namespaces",
            ),
            Self::Canary => ("what its probe tries to reach", ""),
            Self::OwnNetwork => (
                "a network of its own with the hosts it may reach",
                "; bubblewrap cannot make one, and an address of a version of IP that is switched off here cannot be listed",
            ),
            Self::Observer => (
                "the observer of its trial",
                "; a container whose engine watches system calls itself leaves no room for it, so try it outside",
            ),
            _ => return None,
        })
    }
}

/// A preparation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) errno: i32,
    /// Position of the path concerned in its list.
    pub(super) subject: u16,
}

impl Failure {
    pub(super) fn at<E: Into<io::Error>>(step: Step) -> impl Fn(E) -> Self + Copy {
        Self::about(step, 0)
    }

    pub(super) fn about<E: Into<io::Error>>(step: Step, position: usize) -> impl Fn(E) -> Self + Copy {
        let subject = u16::try_from(position).unwrap_or(u16::MAX);
        move |error| Self { step, errno: error.into().raw_os_error().unwrap_or(0), subject }
    }
}
