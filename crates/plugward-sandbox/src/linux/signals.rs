//! Signals of the launcher as readable events, and clean dispositions for the plugin.
//!
//! Owns the `unsafe` calls on signal state. Refuses handlers: no code of ours runs in signal context.

use std::{
    io, mem,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// Signals a person, a service supervisor or a closing terminal sends to end the launcher.
const END_REQUESTS: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Faults of the launcher itself; blocking them would only hide the crash.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// Most events taken per call, so that a flood of signals cannot keep the launcher from its other work.
const MAX_EVENTS: usize = 64;

/// Signals of this process as a descriptor; see [`SignalEvents::take`].
pub(super) struct SignalEvents(OwnedFd);

/// What has arrived since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    /// Someone asked the launcher to end.
    pub(super) end_requested: bool,
}

impl SignalEvents {
    /// Resets every disposition to its default and turns the signals of this process into events.
    ///
    /// Ignored signals survive execution, so a host started under `nohup` would otherwise give its plugins a SIGHUP
    /// they never asked to ignore.
    pub(super) fn take_over() -> io::Result<Self> {
        reset_dispositions();
        let all = signal_set(libc::sigfillset, &FAULTS, libc::sigdelset)?;
        let mut awaited_signals = vec![libc::SIGCHLD];
        awaited_signals.extend(END_REQUESTS);
        let awaited = signal_set(libc::sigemptyset, &awaited_signals, libc::sigaddset)?;
        block(&all)?;
        #[allow(unsafe_code, reason = "signalfd has no safe wrapper")]
        // SAFETY: `awaited` is an initialised set that lives across the call; -1 asks for a new descriptor.
        let descriptor = unsafe { libc::signalfd(-1, &raw const awaited, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        #[allow(unsafe_code, reason = "taking ownership of a raw descriptor")]
        // SAFETY: the call above has just returned this descriptor and nothing else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self(descriptor))
    }

    /// Takes the events that are there, without waiting.
    pub(super) fn take(&self) -> Arrived {
        let mut arrived = Arrived::default();
        for _ in 0..MAX_EVENTS {
            let mut event = [0_u8; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(&self.0, &mut event) {
                Ok(count) if count == event.len() => {
                    // `ssi_signo` is the first field of the structure.
                    let signal = u32::from_ne_bytes([event[0], event[1], event[2], event[3]]);
                    arrived.end_requested |=
                        END_REQUESTS.iter().any(|request| i64::from(*request) == i64::from(signal));
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        arrived
    }
}

impl AsFd for SignalEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Goes to the kernel directly, because libc refuses to touch the two signals it keeps for itself, and a host's starter
/// may have left those ignored too.
fn reset_dispositions() {
    /// Zeroes, no shorter than the kernel's structure on any architecture: default action, no flags, empty mask.
    const DEFAULT: [u64; 8] = [0; 8];
    /// Highest signal number of the kernel.
    const LAST_SIGNAL: libc::c_int = 64;
    /// Size of the kernel's signal mask, one bit for each.
    const MASK_BYTES: libc::size_t = 8;
    for signal in 1..=LAST_SIGNAL {
        #[allow(unsafe_code, reason = "rt_sigaction has no safe wrapper")]
        // SAFETY: the kernel reads at most the size of its structure from `DEFAULT` and writes nothing (null); no
        // handler of this process is relied on, because it has a single thread that only reads signals as events. The
        // kernel refuses SIGKILL and SIGSTOP, and that refusal is what we want.
        let _refused = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), ptr::null_mut::<libc::c_void>(), MASK_BYTES)
        };
    }
}

type Fill = unsafe extern "C" fn(*mut libc::sigset_t) -> libc::c_int;
type Change = unsafe extern "C" fn(*mut libc::sigset_t, libc::c_int) -> libc::c_int;

fn signal_set(fill: Fill, signals: &[libc::c_int], change: Change) -> io::Result<libc::sigset_t> {
    #[allow(unsafe_code, reason = "signal sets have no safe wrapper")]
    // SAFETY: `fill` (sigfillset or sigemptyset) initialises the set before `change` (sigaddset or sigdelset) uses it.
    unsafe {
        let mut set = mem::MaybeUninit::uninit();
        if fill(set.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in signals {
            if change(set.as_mut_ptr(), *signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(set.assume_init())
    }
}

/// Unblocks every signal. Allocates nothing, for use between fork and exec, where the mask would be inherited.
pub(super) fn unblock_all() -> io::Result<()> {
    block(&signal_set(libc::sigemptyset, &[], libc::sigaddset)?)
}

/// Blocks every signal that [`SignalEvents::take_over`] blocks, for a program between the launcher and the plugin that must
/// not end by a request. Allocates nothing.
pub(super) fn block_all() -> io::Result<()> {
    block(&signal_set(libc::sigfillset, &FAULTS, libc::sigdelset)?)
}

/// Makes `set` the signals that are blocked, and no others.
fn block(set: &libc::sigset_t) -> io::Result<()> {
    #[allow(unsafe_code, reason = "sigprocmask has no safe wrapper")]
    // SAFETY: `set` is initialised; the old mask is not asked for.
    let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, set, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
