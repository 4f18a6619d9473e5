//! The launcher's life beside the running plugin.
//!
//! Owns reaping, the host's orders, and the end of the tree. Refuses to outlive the host, and to end before the kernel
//! confirms that no descendant is left (or the limit for trying has passed, which it reports). A plugin that passes one of
//! the limits kept by [`super::watch`] is killed like one that is ordered to be.
//!
//! ```text
//!            main exits: TERM to leftovers                    LEFTOVER_GRACE over
//!  running ------------------------------> leaving ---------------------------------> ending: KILL in rounds
//!     |                                       |  no child left                            |  no child left
//!     |  order K, host gone                   +------------------> report, end <----------+
//!     +------------------------------------------------------------------------------> ending
//!     |  order T: TERM to the tree, stays running
//!     |  termination signal: TERM to the tree, ending after `kill_after`
//! ```

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    process::{Pid, Signal, getpid, kill_process_group},
};

use super::{
    cgroup::Group,
    channel::{self, Received},
    collect::{self, Patience},
    observe::Observer,
    signals::SignalEvents,
    tree,
    watch::Watch,
    wire::{ORDER_KILL, ORDER_TERMINATE, RECORD_BYTES, Record},
};
use crate::{Exceeded, Limits, MainExit};

/// Time that processes left behind by the main one get between TERM and KILL. Short, because nobody can talk to them any
/// more; long enough to remove a lock file.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// Longest attempt to kill the tree. Measured worst case (six lineages forking every 2 ms) is 0.3 s; only processes
/// stuck in the kernel, which no signal reaches, take longer.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait between two rounds of killing; the end of a child wakes the launcher earlier.
const ROUND_WAIT: Duration = Duration::from_millis(5);
/// Most process ids remembered for the count of leftovers; beyond it the count is a lower bound.
const MAX_COUNTED: usize = 65_536;

/// Whether the kernel still knows a descendant of ours.
#[derive(PartialEq, Eq)]
enum Children {
    Left,
    None,
}

/// What the host wants.
#[derive(PartialEq, Eq)]
enum Order {
    Nothing,
    Terminate,
    Kill,
}

pub(super) struct Supervision {
    control: OwnedFd,
    signals: SignalEvents,
    launcher: i32,
    /// The plugin's main process, or the first process of its namespaces.
    main: Pid,
    /// The plugin's main process in every case.
    plugin: i32,
    /// Where that first process reports the end of the main one, while it does.
    reports: Option<OwnedFd>,
    /// Who watches the plugin, in a trial.
    observer: Option<Observer>,
    main_ended: bool,
    /// When patience with the tree ends, if it has been asked to end.
    kill_at: Option<Instant>,
    /// From TERM to KILL when someone other than the host asks the launcher to end.
    kill_after: Duration,
    leftovers: BTreeSet<i32>,
    /// The limits that nobody else keeps, where there are any.
    watch: Option<Watch>,
    group: Option<Group>,
    /// Those of the plugin, for what its end says about them.
    limits: Option<Limits>,
}

impl Supervision {
    pub(super) fn new(
        control: OwnedFd,
        signals: SignalEvents,
        main: Pid,
        plugin: i32,
        reports: Option<OwnedFd>,
        kill_after: Duration,
    ) -> Self {
        let launcher = getpid().as_raw_nonzero().get();
        let leftovers = BTreeSet::new();
        Self {
            control,
            signals,
            launcher,
            main,
            plugin,
            reports,
            observer: None,
            main_ended: false,
            kill_at: None,
            kill_after,
            leftovers,
            watch: None,
            group: None,
            limits: None,
        }
    }

    /// Adds the limits, the watch over those that nobody else keeps, and the control group of the plugin.
    pub(super) fn with_limits(self, limits: Option<Limits>, watch: Option<Watch>, group: Option<Group>) -> Self {
        Self { limits, watch, group, ..self }
    }

    /// Serves an observer beside everything else.
    pub(super) fn observed_by(self, observer: Option<Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Returns when the tree is gone or cannot be ended.
    pub(super) fn run(mut self) {
        loop {
            let ended_before = self.main_ended;
            if self.reap() == Children::None {
                return self.report_gone(0);
            }
            if self.main_ended && !ended_before {
                self.signal(Signal::TERM);
                self.kill_by(Instant::now() + LEFTOVER_GRACE);
            }
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                return self.end_tree();
            }
            if let Some(exceeded) = self.look() {
                self.tell(Record::from(exceeded));
                return self.end_tree();
            }
            let (order, end_requested) = self.wait_for_event();
            match order {
                Order::Kill => return self.end_tree(),
                Order::Terminate => self.signal(Signal::TERM),
                Order::Nothing => {}
            }
            if end_requested {
                self.signal(Signal::TERM);
                let kill_at = Instant::now().checked_add(self.kill_after);
                // A time beyond what the clock can hold is a mistake, not patience.
                self.kill_by(kill_at.unwrap_or_else(Instant::now));
            }
        }
    }

    /// Lets the watch look; tells what it saw that ends nothing.
    fn look(&mut self) -> Option<Exceeded> {
        let watch = self.watch.as_mut()?;
        let exceeded = watch.look(self.launcher);
        for reached in watch.take_reached() {
            self.tell(Record::from(reached));
        }
        exceeded
    }

    /// A host that cannot be told has left, which the next look at the socket shows.
    fn tell(&self, record: Record) {
        let _host_left = channel::send_short(self.control.as_fd(), &record.encode());
    }

    /// An earlier end of patience wins: a second request must not prolong the first.
    fn kill_by(&mut self, at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Waits for an order, a signal or the end of patience.
    fn wait_for_event(&mut self) -> (Order, bool) {
        let descriptors = [self.control.as_fd(), self.signals.as_fd()].into_iter();
        let mut polled: Vec<PollFd<'_>> = descriptors
            .chain(self.reports.iter().map(AsFd::as_fd))
            .chain(self.observer.iter().filter_map(Observer::news))
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let until = [self.kill_at, self.watch.as_ref().map(Watch::due)].into_iter().flatten().min();
        if channel::poll_until(&mut polled, until).is_err() {
            // Without events neither the host's death nor a child's would be noticed: better no plugin than that.
            return (Order::Kill, false);
        }
        drop(polled);
        if let Some(observer) = &mut self.observer {
            observer.serve();
        }
        let end_requested = self.signals.take().end_requested;
        (self.take_order(), end_requested)
    }

    /// Takes what the host has sent; its end of the socket closing is the strongest order.
    fn take_order(&self) -> Order {
        let mut order = Order::Nothing;
        loop {
            let mut bytes = [0; 16];
            match channel::receive_now(self.control.as_fd(), &mut bytes) {
                Ok(Received::Bytes(count)) => {
                    if bytes[..count].contains(&ORDER_KILL) {
                        return Order::Kill;
                    }
                    if bytes[..count].contains(&ORDER_TERMINATE) {
                        order = Order::Terminate;
                    }
                }
                Ok(Received::Nothing) => return order,
                Ok(Received::End) | Err(_) => return Order::Kill,
            }
        }
    }

    /// Collects every child that has ended, adopted orphans included, and reports the main one.
    fn reap(&mut self) -> Children {
        self.read_reports();
        loop {
            match collect::next(Patience::Now) {
                Ok(Some(ended)) if ended.pid == self.main => {
                    // What the first process said before its end counts; how it ended itself counts only without it.
                    self.read_reports();
                    if !self.main_ended
                        && let Some(exceeded) = self.limits.as_ref().and_then(|limits| ended.exceeded(limits))
                    {
                        self.tell(Record::from(exceeded));
                    }
                    self.note_main_exit(ended.end);
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return Children::Left,
                // No child means no descendant: every orphan of the tree would be a child of this subreaper.
                Err(_) => return Children::None,
            }
        }
    }

    /// Takes in what the first process of the namespaces reports.
    fn read_reports(&mut self) {
        let Some(reports) = &self.reports else { return };
        let mut record = [0; RECORD_BYTES];
        match channel::receive_now(reports.as_fd(), &mut record) {
            // Records are far smaller than what a socket takes at once, so they arrive whole.
            Ok(Received::Bytes(RECORD_BYTES)) => match Record::decode(record) {
                Ok(Record::MainExit(exit)) => self.note_main_exit(exit),
                Ok(exceeded @ Record::Exceeded { .. }) => {
                    self.tell(exceeded);
                    self.read_reports();
                }
                _ => {}
            },
            Ok(Received::Nothing) => {}
            _ => self.reports = None,
        }
    }

    fn note_main_exit(&mut self, exit: MainExit) {
        if !self.main_ended {
            self.main_ended = true;
            self.tell(Record::MainExit(exit));
        }
    }

    /// Signals the whole tree. A stopped process must run to act on a request, so it is continued after it.
    fn signal(&mut self, signal: Signal) {
        let Ok(tree) = tree::descendants(self.launcher) else {
            // Without `/proc` only the plugin's own process group is within reach.
            let _gone = kill_process_group(self.main, signal);
            return;
        };
        let expected = [self.main.as_raw_nonzero().get(), self.plugin];
        let main_ended = self.main_ended;
        let leftovers = &mut self.leftovers;
        if signal == Signal::KILL && expected[0] != expected[1] {
            // The first process comes first, and the kernel ends the others before they could be counted one by one.
            let living = tree.iter().filter(|pid| tree::stat(**pid).is_some_and(|stat| !stat.is_dead()));
            leftovers.extend(living.filter(|pid| !expected.contains(*pid)).take(MAX_COUNTED));
        }
        tree::signal_tree(self.launcher, &tree, signal, |pid| {
            let counts = !expected.contains(&pid) && (main_ended || signal == Signal::KILL);
            if counts && leftovers.len() < MAX_COUNTED {
                leftovers.insert(pid);
            }
        });
        if signal != Signal::KILL {
            tree::signal_tree(self.launcher, &tree, Signal::CONT, |_| {});
        }
    }

    /// Kills in rounds until the kernel knows no descendant any more.
    ///
    /// One round is not enough: a process that forks while the tree is read is missed, but its child is found in the
    /// next round, since it cannot leave this subreaper.
    fn end_tree(mut self) {
        // What ends from now on is ended by this, whatever it has used.
        self.limits = None;
        let give_up = Instant::now() + KILL_LIMIT;
        if let Some(group) = &self.group {
            group.kill();
        }
        while self.reap() == Children::Left {
            if Instant::now() >= give_up {
                let survivors = tree::descendants(self.launcher).map_or(1, |tree| tree.len());
                return self.report_gone(i32::try_from(survivors).unwrap_or(i32::MAX).max(1));
            }
            self.signal(Signal::KILL);
            let mut polled = [PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            let _next_round = channel::poll_until(&mut polled, Some(Instant::now() + ROUND_WAIT));
            let _noted = self.signals.take();
        }
        self.report_gone(0);
    }

    fn report_gone(self, survivors: i32) {
        if let Some(group) = &self.group {
            if let Some(used_bytes) = group.out_of_memory() {
                let limit_bytes = group.limits().memory_bytes.unwrap_or_default();
                self.tell(Record::from(Exceeded::Memory { used_bytes, limit_bytes }));
            }
            group.remove();
        }
        if let Some(observer) = self.observer {
            observer.finish();
        }
        let leftovers_killed = u32::try_from(self.leftovers.len()).unwrap_or(u32::MAX);
        let record = Record::Gone { survivors, leftovers_killed };
        // The host may be what is gone; then nobody needs the report.
        let _host_left = channel::send_short(self.control.as_fd(), &record.encode());
    }
}
