//! Machines that stand in for real ones: what `doctor` says on each is kept word for word.
//!
//! Owns the files of each machine. Refuses anything of the machine the test runs on but the owner of the test's own files.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use plugward_sandbox::{KernelAnswers, MachineFacts};

use super::super::text;
use super::rows;

/// Variable that makes the test write the texts it finds.
const REWRITE: &str = "PLUGWARD_REWRITE_GOLDEN";

/// A machine: its name, version of Landlock, whether its groups are this user's, and its files.
struct Machine {
    name: &'static str,
    landlock_abi: u32,
    files: &'static [(&'static str, &'static str)],
    /// Whether level `full` is said to hold there.
    full_holds: bool,
    golden: &'static str,
}

const V2: &str = "30 1 0:22 / /proc rw - proc proc rw\n31 1 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
const COVERED: &str = "30 1 0:22 / /proc rw - proc proc rw\n32 30 0:31 / /proc/acpi ro - tmpfs tmpfs ro\n\
                       33 30 0:22 /bus /proc/bus ro - proc proc ro\n34 30 0:32 /null /proc/kcore rw - tmpfs tmpfs rw\n\
                       31 1 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
const V1: &str =
    "30 1 0:22 / /proc rw - proc proc rw\n31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const BOTH: &str = "31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const PLAIN: &str = "Name:\tplugward\nNoNewPrivs:\t0\nSeccomp:\t0\n";
const FILTERED: &str = "Name:\tplugward\nNoNewPrivs:\t0\nSeccomp:\t2\n";
const SERVICE: &str = "sys/fs/cgroup/user.slice/plugward.service";

const MACHINES: &[Machine] = &[
    Machine {
        name: "Debian 12 with the user service",
        landlock_abi: 3,
        files: &[
            ("proc/sys/kernel/osrelease", "6.2.0-28-amd64"),
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor"),
            ("proc/sys/user/max_user_namespaces", "63000"),
            ("proc/sys/kernel/unprivileged_userns_clone", "1"),
            ("proc/self/attr/apparmor/current", "unconfined"),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/user.slice/plugward.service\n"),
            ("sys/fs/cgroup/user.slice/plugward.service/cgroup.controllers", "cpu io memory pids"),
            ("sys/fs/cgroup/user.slice/plugward.service/cgroup.procs", ""),
        ],
        full_holds: true,
        golden: "debian-12.txt",
    },
    Machine {
        name: "Ubuntu 24.04 as it is installed",
        landlock_abi: 4,
        files: &[
            ("proc/sys/kernel/osrelease", "6.8.0-49-generic"),
            ("etc/os-release", "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor"),
            ("proc/sys/user/max_user_namespaces", "62900"),
            ("proc/sys/kernel/unprivileged_userns_clone", "1"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            ("proc/self/attr/apparmor/current", "unconfined"),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/user.slice/session-2.scope\n"),
        ],
        full_holds: false,
        golden: "ubuntu-24.04.txt",
    },
    Machine {
        name: "Ubuntu 24.04 with plugward's profile at another path, and bubblewrap with its own",
        landlock_abi: 4,
        files: &[
            ("proc/sys/kernel/osrelease", "6.8.0-49-generic"),
            ("etc/os-release", "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor"),
            ("proc/sys/user/max_user_namespaces", "62900"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            ("proc/self/attr/apparmor/current", "unconfined"),
            ("etc/apparmor.d/plugward", ""),
            ("etc/apparmor.d/bwrap-userns-restrict", ""),
            ("usr/bin/bwrap", ""),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/user.slice/session-2.scope\n"),
        ],
        full_holds: false,
        golden: "ubuntu-24.04-profile.txt",
    },
    Machine {
        name: "a container of Docker's",
        landlock_abi: 4,
        files: &[
            (".dockerenv", ""),
            ("proc/sys/kernel/osrelease", "6.8.0-49-generic"),
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("proc/sys/user/max_user_namespaces", "62900"),
            ("proc/self/status", FILTERED),
            ("proc/self/mountinfo", COVERED),
            ("proc/self/cgroup", "0::/\n"),
        ],
        full_holds: false,
        golden: "docker.txt",
    },
    Machine {
        name: "a container that may make namespaces, on a machine with both versions of control groups",
        landlock_abi: 7,
        files: &[
            (".dockerenv", ""),
            ("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64"),
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("proc/sys/user/max_user_namespaces", "62900"),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", BOTH),
            ("proc/self/cgroup", "4:memory:/\n0::/\n"),
        ],
        full_holds: true,
        golden: "open-container.txt",
    },
    Machine {
        name: "a folder made to look like a machine, without /proc",
        landlock_abi: 7,
        files: &[("etc/os-release", "PRETTY_NAME=\"Alpine Linux v3.22\"\n"), ("usr/bin/bwrap", "")],
        full_holds: false,
        golden: "no-proc.txt",
    },
    Machine {
        name: "a Raspberry Pi without Landlock",
        landlock_abi: 0,
        files: &[
            ("proc/sys/kernel/osrelease", "6.6.31+rpt-rpi-v8"),
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,yama"),
            ("proc/sys/user/max_user_namespaces", "14800"),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/user.slice/plugward.service\n"),
            ("sys/fs/cgroup/user.slice/plugward.service/cgroup.controllers", "cpu pids"),
            ("sys/fs/cgroup/user.slice/plugward.service/cgroup.procs", ""),
        ],
        full_holds: false,
        golden: "raspberry-pi.txt",
    },
    Machine {
        name: "an old server with namespaces off",
        landlock_abi: 0,
        files: &[
            ("proc/sys/kernel/osrelease", "4.18.0-553.el8.x86_64"),
            ("etc/os-release", "PRETTY_NAME=\"Rocky Linux 8.10\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,yama,selinux"),
            ("proc/sys/user/max_user_namespaces", "0"),
            ("proc/self/status", PLAIN),
            ("proc/self/mountinfo", V1),
            ("proc/self/cgroup", "4:memory:/user.slice\n"),
        ],
        full_holds: false,
        golden: "old-server.txt",
    },
];

fn told(machine: &Machine) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in machine.files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    // Whoever owns the test's files is the user of the machine, and never root.
    let uid = folder.path().metadata().unwrap().uid();
    let service = folder.path().join(SERVICE);
    let uid = if uid == 0 && service.exists() { hand_over(&service) } else { uid.max(1) };
    let facts = MachineFacts::read(folder.path(), KernelAnswers { landlock_abi: machine.landlock_abi, uid });
    rows(&facts, machine.full_holds).iter().map(text).collect::<Vec<_>>().join("\n") + "\n"
}

/// Makes the service's group an ordinary user's.
fn hand_over(service: &Path) -> u32 {
    const SOMEBODY: u32 = 61_510;
    for path in [service.to_owned(), service.join("cgroup.procs")] {
        std::os::unix::fs::chown(path, Some(SOMEBODY), None).unwrap();
    }
    SOMEBODY
}

// Issue: somebody whose plugins do not start reads this text and nothing else. A change in it has to be meant.
#[test]
fn each_machine_is_told_its_causes_and_fixes() {
    for machine in MACHINES {
        let told = anstream::adapter::strip_str(&told(machine)).to_string();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/doctor/golden").join(machine.golden);
        if std::env::var_os(REWRITE).is_some() {
            fs::write(&path, &told).unwrap();
        }
        let golden = fs::read_to_string(path).unwrap_or_default();
        assert!(
            told == golden,
            "{} is told:\n{told}\nif that is meant, run the test once with {REWRITE}=1",
            machine.name
        );
    }
}
