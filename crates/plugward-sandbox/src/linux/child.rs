//! From the launcher to the plugin's first instruction.
//!
//! Owns the fork and the execution of the plugin, with exactly the arguments and variables given. Refuses a search of
//! `PATH` and the shell that `execvp` starts for files it cannot execute: what was approved runs, or nothing does.

use std::{
    ffi::{CString, OsStr, OsString},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    process::{Command, Stdio},
    ptr,
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid},
};

use super::{
    channel::PASSED_DESCRIPTORS,
    confine::Confinement,
    failure::{Failure, Step},
    signals,
    wire::{RECORD_BYTES, Record},
};
use crate::LaunchSpec;

/// Everything `execve` needs, built before the fork because nothing may be allocated after it.
struct ExecImage {
    executable: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    argv_pointers: Vec<*const libc::c_char>,
    envp_pointers: Vec<*const libc::c_char>,
}

#[allow(unsafe_code, reason = "raw pointers into owned strings")]
// SAFETY: the pointers point into the heap buffers of `argv` and `envp`, which the same value owns and nothing changes;
// moving the value to another thread moves neither buffer.
unsafe impl Send for ExecImage {}

#[allow(unsafe_code, reason = "raw pointers into owned strings")]
// SAFETY: no method changes anything, see `Send` above.
unsafe impl Sync for ExecImage {}

impl ExecImage {
    fn new(spec: &LaunchSpec, leaked: &[(OsString, OsString)]) -> io::Result<Self> {
        let argv = spec.argv.iter().map(|argument| c_string(argument)).collect::<io::Result<Vec<_>>>()?;
        let envp = leaked
            .iter()
            .chain(&spec.env)
            .map(|(name, value)| {
                let mut variable = name.clone();
                variable.push("=");
                variable.push(value);
                c_string(&variable)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let argv_pointers = pointers(&argv);
        let envp_pointers = pointers(&envp);
        Ok(Self { executable: c_string(spec.executable.as_os_str())?, argv, envp, argv_pointers, envp_pointers })
    }

    /// Replaces this process; returns only with the reason why it could not.
    fn execute(&self) -> io::Error {
        debug_assert!(self.argv_pointers.len() > self.argv.len() && self.envp_pointers.len() > self.envp.len());
        #[allow(unsafe_code, reason = "execve with an explicit environment has no safe wrapper")]
        // SAFETY: all strings are NUL-terminated and owned by `self`; both pointer lists end with a null pointer.
        unsafe {
            libc::execve(self.executable.as_ptr(), self.argv_pointers.as_ptr(), self.envp_pointers.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn c_string(string: &OsStr) -> io::Result<CString> {
    CString::new(string.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// What runs as the plugin's main process.
pub(super) enum Task {
    /// The plugin's program.
    Plugin,
    /// Code of ours that tries what a plugin must not do, and ends with its own status.
    Witness(Box<dyn Fn() -> i32 + Send + Sync>),
}

/// Starts the plugin with `stdio` as descriptors 0, 1 and 2 in the current directory, under `confinement`; returns once its
/// program executes.
///
/// All other descriptors of this process are marked close-on-exec. The plugin leads a process group of its own
/// (requirement 40), and the kernel kills it if this process dies.
pub(super) fn start(
    spec: &LaunchSpec,
    stdio: [OwnedFd; PASSED_DESCRIPTORS],
    confinement: Confinement,
    task: Task,
) -> Result<Pid, Failure> {
    let failed = Failure::at::<io::Error>(Step::Exec);
    let image = ExecImage::new(spec, &confinement.leaked_environment()).map_err(failed)?;
    let parent = getpid();
    // A failure before the execution needs more words than the one number the standard library passes on.
    let (failures, reporter) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(Failure::at(Step::Exec))?;
    let [stdin, stdout, stderr] = stdio.map(Stdio::from);
    let mut command = Command::new(&spec.executable);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    #[allow(unsafe_code, reason = "the plugin's last preparations happen between fork and exec")]
    // SAFETY: this process has a single thread, so no lock can be held by a thread that the fork does not copy; the
    // closure makes system calls only and allocates nothing (errors carry a number). The witness allocates, which a fork
    // of a single thread may.
    unsafe {
        command.pre_exec(move || {
            setpgid(None, None)?;
            signals::unblock_all()?;
            if let Err(failure) = confinement.apply() {
                let _parent_left = rustix::io::write(&reporter, &Record::Failed(failure).encode());
                return Err(io::Error::from_raw_os_error(failure.errno));
            }
            // After the last change of user, which would take it back.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above took effect.
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            match &task {
                // The standard library has set up the descriptors by now, and reports this error to the parent.
                Task::Plugin => Err(image.execute()),
                Task::Witness(attempts) => exit_now(attempts()),
            }
        });
    }
    let child = command.spawn().map_err(|error| reported(&failures).unwrap_or_else(|| failed(error)))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| failed(io::Error::from_raw_os_error(libc::ESRCH)))
}

/// What the child said about its failure, if it was not the execution itself.
fn reported(failures: &OwnedFd) -> Option<Failure> {
    let mut record = [0; RECORD_BYTES];
    match rustix::io::read(failures, &mut record) {
        Ok(RECORD_BYTES) => match Record::decode(record) {
            Ok(Record::Failed(failure)) => Some(failure),
            _ => None,
        },
        _ => None,
    }
}

/// Ends this copy of the process without running anything that belongs to the original.
fn exit_now(status: i32) -> ! {
    #[allow(unsafe_code, reason = "ending a forked copy at once has no safe wrapper")]
    // SAFETY: the call takes a number and does not return.
    unsafe {
        libc::_exit(status)
    }
}
