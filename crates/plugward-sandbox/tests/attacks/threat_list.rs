//! The list of threats, one entry each, in the order of `docs/threats.md`.
//!
//! Owns numbers, names, layers and where the evidence is. Refuses code.

use plugward_sandbox::Level;

/// One thing a plugin might do to its user.
pub(crate) struct Threat {
    pub(crate) number: u8,
    pub(crate) what: &'static str,
    /// What stops it, in the order in which it would meet it.
    pub(crate) layers: &'static str,
    pub(crate) evidence: Evidence,
}

/// What shows how it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Evidence {
    /// Rows of the table in `table.rs`.
    Rows(&'static [&'static str]),
    /// Tests of this suite, and the levels they hold for.
    Tests { tests: &'static [&'static str], held_at: &'static [Level] },
    /// Tests of other crates, where the host and not the sandbox stops it.
    Elsewhere(&'static [&'static str]),
    /// Nothing stops it, and why.
    Open(&'static str),
}

use Evidence::{Elsewhere, Open, Rows, Tests};

const ALL: &[Level] = &[Level::Full, Level::Partial, Level::Limited];
const STRONG: &[Level] = &[Level::Full, Level::Partial];
const FULL: &[Level] = &[Level::Full];

const fn threat(number: u8, what: &'static str, layers: &'static str, evidence: Evidence) -> Threat {
    Threat { number, what, layers, evidence }
}

#[rustfmt::skip]
pub(crate) const THREATS: &[Threat] = &[
    threat(1, "read the user's files", "file tree, Landlock", Rows(&["read a secret", "list the root"])),
    threat(2, "find out which files exist", "file tree", Rows(&["see that a file exists"])),
    threat(3, "read what another plugin keeps", "file tree, Landlock", Rows(&["list another plugin's data"])),
    threat(4, "write into its own code", "read-only mount, Landlock", Rows(&["change its own code", "change permissions of code"])),
    threat(5, "exchange its own code", "read-only mount, Landlock", Rows(&["replace its own code"])),
    threat(6, "get out through a symbolic link", "file tree, Landlock", Rows(&["read through a link"])),
    threat(7, "plant a link for its next start", "opening without links", Elsewhere(&["planted_links_are_refused", "links_and_second_names_are_left_alone"])),
    threat(8, "give a file of the user's a second name", "file tree, Landlock", Rows(&["link a file in"])),
    threat(9, "change or make files of the user's", "file tree, filter, Landlock", Rows(&["make a file outside", "change permissions", "change times", "change attributes"])),
    threat(10, "watch what the user opens", "file tree, filter", Rows(&["watch the user's files"])),
    threat(11, "read environment and arguments of other processes", "process namespace, Landlock", Rows(&["read another's environment", "read another's arguments"])),
    threat(12, "use descriptors, root or memory of other processes", "process namespace, Landlock", Rows(&["list another's descriptors", "read the host's files by another's root", "open another's memory"])),
    threat(13, "trace or hold other processes", "process namespace, filter", Rows(&["trace another process", "hold another process"])),
    threat(14, "signal other processes", "process namespace, Landlock scope", Rows(&["signal another process"])),
    threat(15, "limit or slow down other processes", "process namespace, filter", Rows(&["limit another process", "slow down another process"])),
    threat(16, "reach services of this machine or its network, metadata services included", "network namespace, filter", Rows(&["reach a local service", "reach it by another form"])),
    threat(17, "see the machine's network", "network namespace", Rows(&["the machine's network"])),
    threat(18, "reach a service by multipath or fast open", "network namespace, filter", Rows(&["reach it by fast open", "open a multipath socket"])),
    threat(19, "carry data out in datagrams, DNS included", "network namespace, filter", Rows(&["send a datagram"])),
    threat(20, "reach a host beside the ones it was granted", "network namespace with listeners, rules of the host", Elsewhere(&["beside_listed_hosts_there_is_nothing", "a_granted_host_is_reached_and_nothing_else", "the_proxy_leads_below_its_domain_and_nowhere_else", "tls_asks_for_the_host_that_was_granted"])),
    threat(21, "have a granted name lead to an address of this machine", "judgement of the address by the host", Elsewhere(&["a_granted_name_does_not_lead_to_near_services", "names_lead_where_they_say_and_nowhere_else"])),
    threat(22, "reach Unix sockets without a path", "network namespace, filter, Landlock scope", Rows(&["reach one without path"])),
    threat(23, "reach Unix sockets by path, such as a container engine's", "file tree, filter", Rows(&["reach a Unix socket"])),
    threat(24, "use odd socket families", "filter", Rows(&["ask the kernel's network", "reach the machine below", "read raw packets", "use kernel ciphers"])),
    threat(25, "use calls with a history of holes", "filter", Rows(&["ring of calls", "faults in user space", "the user's keys", "weaker address layout", "calls of x32", "no filter"])),
    threat(26, "make namespaces of its own", "filter", Rows(&["nested namespace", "nested namespace by clone", "nested namespace by clone3"])),
    threat(27, "make calls by the numbers of another architecture", "filter", Tests { tests: &["runtimes::static_program_needs_nothing"], held_at: ALL }),
    threat(28, "gain rights from setuid programs or capabilities", "no new privileges, capabilities, filter", Rows(&["setuid programs", "make a setuid program", "make one in one step", "capabilities", "capabilities to regain"])),
    threat(29, "find descriptors the host left open", "launcher", Elsewhere(&["inherits_no_descriptor_of_the_host", "launcher_memory_is_closed_to_its_plugin"])),
    threat(30, "find secrets in its environment", "launcher", Elsewhere(&["environment_is_exactly_what_was_given", "its_environment_is_what_was_agreed_to"])),
    threat(31, "type into the user's terminal", "own session, filter", Rows(&["type for the user", "type, with a dressed-up number"])),
    threat(32, "start processes without end", "limits in the user namespace", Rows(&["many processes"])),
    threat(33, "leave daemons behind", "process namespace, adoption by the launcher", Tests { tests: &["limits::daemons_end_with_their_namespace", "limits::many_at_once_leave_nothing"], held_at: STRONG }),
    threat(34, "outrun its end by forking", "process namespace", Tests { tests: &["ends::two_hundred_ends_leave_nothing", "limits::killed_host_side_leaves_nothing"], held_at: FULL }),
    threat(35, "take all private memory", "limits", Rows(&["much memory"])),
    threat(36, "take memory that is shared or in files without a name", "control group where there is one, a look ten times a second elsewhere", Tests { tests: &["limits::shared_memory_ends_at_the_limit", "limits::memory_of_unreadable_programs_ends_the_plugin"], held_at: STRONG }),
    threat(37, "fill temporary folders", "sized private folders, Landlock", Rows(&["fill /tmp"])),
    threat(38, "fill the disk with one file", "limits", Rows(&["a large file"])),
    threat(39, "use up descriptors", "limits", Rows(&["many descriptors"])),
    threat(40, "burn processor time", "limits", Tests { tests: &["limits::processor_time_ends"], held_at: ALL }),
    threat(41, "never answer", "deadlines of the host", Elsewhere(&["b067_a_call_that_is_never_answered_ends_at_its_limit_and_takes_no_other_along"])),
    threat(42, "write a line without end", "limits of the host", Elsewhere(&["requirement_128_step_4_a_line_without_end", "memory_is_bounded_before_a_full_line_is_there"])),
    threat(43, "flood standard error", "ring of the host", Elsewhere(&["requirement_100_a_flood_on_stderr_neither_blocks_nor_grows"])),
    threat(44, "not read what the host writes", "bounded queues of the host", Elsewhere(&["invariant_9_a_plugin_that_does_not_read_delays_no_other", "a_server_that_never_reads_costs_a_fixed_amount_of_memory"])),
    threat(45, "send deep, huge or broken messages", "limits of the host", Elsewhere(&["nesting_is_bounded", "invalid_utf8_is_refused_and_still_names_its_request", "batches_follow_the_rule"])),
    threat(46, "steer the terminal of a reader", "escaping by the host", Elsewhere(&["excerpts_of_noise_are_short_and_harmless", "a_hostile_name_cannot_forge_a_line_of_a_message"])),
    threat(47, "answer in the name of others or ask for what was not offered", "matching by the host", Elsewhere(&["late_duplicate_and_foreign_answers_match_nothing", "b038_questions_of_a_server_are_answered_and_resolve_none_of_ours"])),
    threat(48, "share memory with other programs", "file tree, ipc namespace, filter", Rows(&["shared memory by file", "shared memory by key", "semaphores by key"])),
    threat(49, "leave its memory in a core image", "limits", Rows(&["core image"])),
    threat(50, "learn which machine this is", "host name, process and mount namespaces", Rows(&["the machine's name", "the machine's processes", "the machine's mounts"])),
    threat(51, "measure others by time and caches", "none", Open("no process can be kept from measuring time on a shared processor")),
    threat(52, "break the kernel", "filter, in part", Open("the filter makes the kernel's surface smaller, and a hole in what is left is a way out")),
    threat(53, "kill what holds it", "process namespace, signals of the launcher", Tests { tests: &["limits::first_process_and_launcher_cannot_be_killed"], held_at: STRONG }),
    threat(54, "end and come back without end", "pauses and limit of the host", Elsewhere(&["b023_a_server_that_keeps_failing_is_tried_with_growing_pauses_and_then_given_up", "pauses_double_with_jitter_and_end"])),
    threat(55, "run or load programs it wrote", "noexec mounts, Landlock", Rows(&["run a dropped program", "map a dropped library"])),
    threat(56, "fill the disk with many files, or with files without names", "a look at its home", Tests { tests: &["limits::own_data_ends_at_the_limit"], held_at: STRONG }),
    threat(57, "run longer than was agreed to", "clock of the launcher", Tests { tests: &["limits::time_to_run_ends"], held_at: FULL }),
    threat(58, "have a trial touch the machine, or propose more than it wanted", "a look that enters no mount of others, judgement of names", Elsewhere(&["a_mount_that_others_answer_for_is_not_entered", "wanted_hosts_are_told_by_name_and_port", "dangerous_places_are_told_and_not_proposed"])),
    threat(59, "make the host itself call where it should not, by webhooks, redirects and addresses of servers elsewhere", "judgement of the address by the host", Elsewhere(&["the_address_that_was_judged_is_dialled", "near_services_are_not_reached_by_a_far_name", "redirects_are_refused_and_other_answers_are_not", "a_server_has_to_prove_its_name"])),
    threat(60, "reach another host by a name inside TLS that plugward cannot read, such as the encrypted one of a front", "none beyond the granted host", Open("what a granted host does with a request that it decrypts is its own; grant hosts that serve others only if you trust all of them")),
    threat(61, "take memory of the kernel in buffers of sockets and pipes", "a look ten times a second that counts each as full, small ones in a network with listeners", Tests { tests: &["limits::kernel_buffers_end_at_the_limit", "hosts::connections_hold_little"], held_at: STRONG }),
    threat(62, "make such buffers larger than they are counted", "filter", Rows(&["a larger buffer of a socket", "a larger pipe", "pages given to a pipe"])),
    threat(63, "hide its memory and descriptors from who counts them", "filter", Rows(&["hide from who counts"])),
];
