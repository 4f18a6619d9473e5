//! The job object of a plugin.
//!
//! Owns its limits and its end. Refuses letting a process out: no flag for breaking away is ever set.

use std::{
    io,
    os::windows::io::{AsRawHandle, OwnedHandle},
    ptr,
};

use windows_sys::Win32::{
    Foundation::HANDLE,
    System::JobObjects::{
        CreateJobObjectW, JOB_OBJECT_LIMIT_ACTIVE_PROCESS, JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
        JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, JOB_OBJECT_LIMIT_PROCESS_MEMORY, JOB_OBJECT_LIMIT_PROCESS_TIME,
        JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
        JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
        SetInformationJobObject, TerminateJobObject,
    },
};

use super::handles::{check, owned};
use crate::Limits;

/// The unit of times in jobs is 100 ns.
const TICKS_PER_S: u64 = 10_000_000;
/// Exit code of processes that are ended with their job.
const ENDED: u32 = 1;

/// A job that ends with its last handle, which only this process has.
#[derive(Debug)]
pub(super) struct Job(OwnedHandle);

impl Job {
    pub(super) fn new(limits: Option<&Limits>) -> io::Result<Self> {
        #[allow(unsafe_code, reason = "job objects have no safe wrapper")]
        // SAFETY: neither attributes nor a name are given.
        let job = Self(owned(unsafe { CreateJobObjectW(ptr::null(), ptr::null()) })?);
        let mut settings = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        let basic = &mut settings.BasicLimitInformation;
        basic.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
        if let Some(limits) = limits {
            if let Some(seconds) = limits.cpu_s {
                basic.LimitFlags |= JOB_OBJECT_LIMIT_PROCESS_TIME;
                let ticks = seconds.saturating_mul(TICKS_PER_S);
                basic.PerProcessUserTimeLimit = i64::try_from(ticks).unwrap_or(i64::MAX);
            }
            if let Some(processes) = limits.processes {
                basic.LimitFlags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
                basic.ActiveProcessLimit = u32::try_from(processes).unwrap_or(u32::MAX);
            }
            if let Some(bytes) = limits.memory_bytes {
                basic.LimitFlags |= JOB_OBJECT_LIMIT_PROCESS_MEMORY;
                settings.ProcessMemoryLimit = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        }
        let size = u32::try_from(size_of_val(&settings)).unwrap_or(0);
        #[allow(unsafe_code, reason = "job objects have no safe wrapper")]
        // SAFETY: the structure is the one of this class, initialised, and lives across the call.
        check(unsafe {
            SetInformationJobObject(job.raw(), JobObjectExtendedLimitInformation, (&raw const settings).cast(), size)
        })?;
        Ok(job)
    }

    pub(super) fn raw(&self) -> HANDLE {
        self.0.as_raw_handle().cast()
    }

    /// Ends every process in it.
    pub(super) fn end(&self) -> io::Result<()> {
        #[allow(unsafe_code, reason = "job objects have no safe wrapper")]
        // SAFETY: the handle is open as long as `self` lives.
        check(unsafe { TerminateJobObject(self.raw(), ENDED) })
    }

    /// How many processes are in it.
    pub(super) fn living(&self) -> io::Result<u32> {
        let mut facts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = u32::try_from(size_of_val(&facts)).unwrap_or(0);
        #[allow(unsafe_code, reason = "job objects have no safe wrapper")]
        // SAFETY: the structure is the one of this class and has the size given; the length is not asked for.
        check(unsafe {
            QueryInformationJobObject(
                self.raw(),
                JobObjectBasicAccountingInformation,
                (&raw mut facts).cast(),
                size,
                ptr::null_mut(),
            )
        })?;
        Ok(facts.ActiveProcesses)
    }
}
