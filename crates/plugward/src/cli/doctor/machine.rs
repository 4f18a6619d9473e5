//! What `doctor` says about the parts of a machine that confine plugins: one row each, with cause and fix.
//!
//! Owns the wording for facts that [`MachineFacts`] has read. Refuses reading anything, and saying that a sandbox holds:
//! that is for the rows that try one.

use plugward_sandbox::MachineFacts;

use super::Row;

/// Oldest kernel that can build a file tree for a plugin, as (major, minor).
const OLDEST_FOR_FULL: (u32, u32) = (5, 12);
/// Oldest version of Landlock that level `partial` takes.
const OLDEST_LANDLOCK: u32 = 3;
/// Version of Landlock from which it knows signals and Unix sockets without a path.
const LANDLOCK_SCOPES: u32 = 6;
/// Controllers that limit what a plugin uses.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Rows in the order in which a reader follows them: kernel, then what it lets us use, then what is around us. `full_holds`
/// tells whether level `full` was tried and held, which is more than any of these facts.
pub(super) fn rows(facts: &MachineFacts, full_holds: bool) -> Vec<Row> {
    let mut rows = vec![kernel(facts), security_modules(facts), landlock(facts)];
    if !facts.proc_mounted {
        // The facts that are missing would all read as something else that is wrong.
        rows.extend([no_proc(), bubblewrap(facts)]);
        return rows;
    }
    rows.push(user_namespaces(facts));
    rows.extend(apparmor(facts));
    rows.extend([container(facts, full_holds), proc(facts), seccomp(facts), control_groups(facts), bubblewrap(facts)]);
    rows
}

fn kernel(facts: &MachineFacts) -> Row {
    let release = facts.kernel_release.as_deref().unwrap_or("release unknown");
    let found = match &facts.distribution {
        Some(distribution) => format!("{release}, {distribution}"),
        None => release.to_owned(),
    };
    match version(release) {
        Some(version) if version < OLDEST_FOR_FULL => Row::warning(
            "kernel",
            found,
            "level `full` takes Linux 5.12 or later, `partial` 6.2 or later",
            "install a newer kernel",
        ),
        _ => Row::ok("kernel", found),
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn security_modules(facts: &MachineFacts) -> Row {
    let Some(modules) = &facts.security_modules else {
        return Row::ok("security modules", "not shown to this process");
    };
    let found = modules.join(", ");
    if modules.iter().any(|module| module == "landlock") {
        return Row::ok("security modules", found);
    }
    Row::warning(
        "security modules",
        found,
        "Landlock is not among them, so level `partial` is not possible and `full` lacks its second layer",
        "add `landlock` to the `lsm=` list on the kernel's command line and start the machine again",
    )
}

fn landlock(facts: &MachineFacts) -> Row {
    match facts.landlock_abi {
        0 => Row::warning(
            "Landlock",
            "off",
            "level `partial` is not possible, and `full` lacks its second layer",
            "use Linux 6.2 or later with `landlock` in the `lsm=` list; inside a container, let its filter pass the \
             `landlock_*` calls",
        ),
        abi if abi < OLDEST_LANDLOCK => Row::warning(
            "Landlock",
            format!("version {abi}"),
            "level `partial` takes version 3, the first that knows shortening a file",
            "use Linux 6.2 or later",
        ),
        abi if abi < LANDLOCK_SCOPES => {
            let lacks = "at level `partial` it cannot close signals and Unix sockets without a path (version 6 can)";
            Row::ok("Landlock", format!("version {abi}; {lacks}"))
        }
        abi => Row::ok("Landlock", format!("version {abi}")),
    }
}

fn user_namespaces(facts: &MachineFacts) -> Row {
    const CHECK: &str = "user namespaces";
    const CAUSE: &str = "plugward cannot make the namespaces of level `full` by itself";
    match (facts.user_namespaces_max, facts.user_namespaces_switch, facts.apparmor_restricts) {
        (None, ..) => {
            Row::warning(CHECK, "not built into this kernel", CAUSE, "use a kernel built with user namespaces")
        }
        (Some(0), ..) => Row::warning(
            CHECK,
            "off (`user.max_user_namespaces` is 0)",
            CAUSE,
            "as root: sysctl -w user.max_user_namespaces=15000, and the same line in a file in /etc/sysctl.d",
        ),
        (_, Some(false), _) if !facts.is_root => Row::warning(
            CHECK,
            "off for ordinary users (`kernel.unprivileged_userns_clone` is 0)",
            CAUSE,
            "as root: sysctl -w kernel.unprivileged_userns_clone=1, and the same line in a file in /etc/sysctl.d",
        ),
        (Some(most), _, Some(true)) => {
            let found = format!("{most} per user, for programs with an AppArmor profile that says `userns` only");
            match (facts.plugward_profile, facts.bwrap && facts.bwrap_profile) {
                (true, _) => Row::ok(CHECK, found),
                (false, true) => Row::ok(CHECK, format!("{found}; bubblewrap has one and stands in for plugward")),
                (false, false) => Row::warning(
                    CHECK,
                    found,
                    CAUSE,
                    "install plugward's profile (packaging/README.md), or bubblewrap with its profile",
                ),
            }
        }
        (Some(most), ..) => Row::ok(CHECK, format!("{most} per user")),
    }
}

/// Nothing on a machine without AppArmor.
fn apparmor(facts: &MachineFacts) -> Option<Row> {
    let is_active = facts.security_modules.as_ref().is_some_and(|list| list.iter().any(|name| name == "apparmor"));
    if !is_active && facts.apparmor_restricts.is_none() {
        return None;
    }
    let label = facts.apparmor_label.as_deref().unwrap_or("unknown");
    let profile = if facts.plugward_profile { "installed" } else { "not installed" };
    let found = format!("this process is `{label}`; profile for plugward {profile}");
    let is_useless = facts.plugward_profile && !label.starts_with("plugward") && facts.apparmor_restricts == Some(true);
    Some(if is_useless {
        Row::warning(
            "AppArmor",
            found,
            "the profile is not in force for this program, which may be at another path than the profile names",
            "put plugward where the profile expects it, or change the path in it; then: apparmor_parser -r on the file",
        )
    } else {
        Row::ok("AppArmor", found)
    })
}

fn container(facts: &MachineFacts, full_holds: bool) -> Row {
    match &facts.container {
        None => Row::ok("container", "none seen"),
        Some(engine) if full_holds => Row::ok("container", format!("{engine}; level `full` holds inside it")),
        Some(engine) => Row::warning(
            "container",
            engine.clone(),
            "engines usually deny user namespaces and mounts to what runs inside, and level `full` with them",
            "run plugward beside the container, or let the engine's filter pass namespaces and mounts for this one",
        ),
    }
}

fn no_proc() -> Row {
    Row::broken(
        "/proc",
        "not mounted",
        "plugins are started through it, and it tells what the kernel allows",
        "as root: mount -t proc proc /proc",
    )
}

fn proc(facts: &MachineFacts) -> Row {
    if facts.covered_proc.is_empty() {
        return Row::ok("/proc", "whole");
    }
    Row::warning(
        "/proc",
        format!("covered at {}", facts.covered_proc.join(", ")),
        "the kernel then refuses a `/proc` inside the sandbox; most programs do without, some run times do not",
        "start the container with an uncovered /proc (`--security-opt systempaths=unconfined`)",
    )
}

fn seccomp(facts: &MachineFacts) -> Row {
    match facts.seccomp_mode {
        None => Row::warning(
            "call filters",
            "not built into this kernel",
            "no level is possible without them",
            "use a kernel built with seccomp filters",
        ),
        Some(0) => Row::ok("call filters", "the kernel has them; plugward itself is under none"),
        Some(_) => {
            Row::ok("call filters", "the kernel has them; plugward itself is under one, which may deny what it needs")
        }
    }
}

fn control_groups(facts: &MachineFacts) -> Row {
    const CHECK: &str = "control groups";
    const CAUSE: &str = "memory that plugins share, and the processor, are then not limited as a whole";
    const FIX: &str = "start plugward as the user service in packaging/systemd, which asks for its own group";
    const FIX_VERSION: &str = "boot with `systemd.unified_cgroup_hierarchy=1` (a container: the machine it runs on)";
    let groups = &facts.control_groups;
    let Some(mount) = &groups.v2_mount else {
        return Row::warning(CHECK, "version 2 is not mounted", CAUSE, FIX_VERSION);
    };
    if !groups.held_by_version_1.is_empty() {
        let held = groups.held_by_version_1.join(", ");
        let found = format!("version 2 at {mount} is there, and version 1 holds {held}");
        return Row::warning(CHECK, found, CAUSE, FIX_VERSION);
    }
    if groups.own_group.as_deref() == Some("/") {
        let found = format!("version 2 at {mount}; plugward runs in its uppermost group, which is handed to nobody");
        return Row::warning(CHECK, found, CAUSE, FIX);
    }
    let group = groups.own_group.as_deref().unwrap_or("unknown");
    let missing: Vec<&str> =
        CONTROLLERS.into_iter().filter(|name| !groups.controllers.iter().any(|there| there == name)).collect();
    if !groups.is_delegated {
        return Row::warning(CHECK, format!("version 2 at {mount}, group `{group}` is not this user's"), CAUSE, FIX);
    }
    if missing.is_empty() {
        return Row::ok(CHECK, format!("version 2 at {mount}, group `{group}` with {}", groups.controllers.join(", ")));
    }
    let found = format!("version 2 at {mount}, group `{group}` without {}", missing.join(", "));
    let fix = "switch them on above that group (`cgroup.subtree_control`); on a Raspberry Pi, memory also takes \
               `cgroup_enable=memory` on the kernel's command line";
    Row::warning(CHECK, found, CAUSE, fix)
}

fn bubblewrap(facts: &MachineFacts) -> Row {
    match (facts.bwrap, facts.bwrap_is_setuid) {
        (true, false) => Row::ok("bubblewrap", "/usr/bin/bwrap"),
        (true, true) => Row::warning(
            "bubblewrap",
            "/usr/bin/bwrap has the rights of root (setuid)",
            "plugward gives up gaining rights by executing before it runs bubblewrap, so it runs without them",
            "nothing, unless plugward cannot make namespaces itself; then allow it to",
        ),
        (false, _) => Row::ok("bubblewrap", "not installed; only needed where plugward itself may make no namespaces"),
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
