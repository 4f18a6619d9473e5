//! Making a process with its container, its job and exactly three inherited handles.
//!
//! Owns the one call that does it, so that no instruction of a plugin runs before all of them hold. Refuses inheriting
//! anything else and the host's own environment.

use std::{
    io, mem,
    os::windows::io::{AsRawHandle, OwnedHandle},
    ptr,
};

use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, CREATE_UNICODE_ENVIRONMENT, CreateProcessW, DeleteProcThreadAttributeList,
    EXTENDED_STARTUPINFO_PRESENT, InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST, PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES,
    PROCESS_INFORMATION, STARTF_USESTDHANDLES, STARTUPINFOEXW, UpdateProcThreadAttribute,
};

use super::{
    PluginProcess, Spawned,
    container::Container,
    handles::{check, make_inheritable, owned, pipe, wide, wide_ended},
    job::Job,
};
use crate::{
    Enforcement, LaunchSpec, SpawnError,
    windows_text::{command_line, environment_block},
};

/// Job, handles, container.
const ATTRIBUTES: u32 = 3;

/// Starts a process in `job`, and in `container` if there is one.
pub(super) fn start(
    spec: &LaunchSpec,
    job: Job,
    container: Option<&Container>,
    enforcement: Enforcement,
) -> Result<Spawned, SpawnError> {
    let cannot = super::launcher_failure("open a pipe");
    let (plugin_stdin, stdin) = pipe().map_err(&cannot)?;
    let (stdout, plugin_stdout) = pipe().map_err(&cannot)?;
    let (stderr, plugin_stderr) = pipe().map_err(&cannot)?;
    let given = [plugin_stdin, plugin_stdout, plugin_stderr];
    for handle in &given {
        make_inheritable(handle).map_err(&cannot)?;
    }
    let (process, pid) = create(spec, &job, container, &given).map_err(|error| SpawnError::Exec {
        path: spec.executable.clone(),
        cause: error.into(),
        hint: "",
    })?;
    // The host's copies would keep the plugin's pipes open after its end.
    drop(given);
    let process = PluginProcess::new(process, pid, job, enforcement, spec.stop);
    Ok(Spawned { stdin, stdout, stderr, process })
}

/// The process and its id.
fn create(
    spec: &LaunchSpec,
    job: &Job,
    container: Option<&Container>,
    stdio: &[OwnedHandle; 3],
) -> io::Result<(OwnedHandle, u32)> {
    let program = wide_ended(spec.executable.as_os_str());
    let mut line = command_line(&spec.argv.iter().map(|argument| wide(argument)).collect::<Vec<_>>());
    let variables: Vec<_> = spec.env.iter().map(|(name, value)| (wide(name), wide(value))).collect();
    let environment = environment_block(&variables);
    let folder = wide_ended(spec.cwd.as_os_str());

    let jobs = [job.raw()];
    let handles = stdio.each_ref().map(|handle| handle.as_raw_handle().cast::<std::ffi::c_void>());
    let mut capabilities = container.map(Container::capabilities);
    let capabilities = capabilities.as_mut().map(super::container::Capabilities::as_system);
    let mut attributes = Attributes::new()?;
    attributes.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, &jobs)?;
    attributes.set(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, &handles)?;
    if let Some(capabilities) = &capabilities {
        attributes.set(PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, std::slice::from_ref(capabilities))?;
    }
    let mut startup = STARTUPINFOEXW::default();
    startup.StartupInfo.cb = u32::try_from(size_of::<STARTUPINFOEXW>()).unwrap_or(0);
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError] = handles;
    startup.lpAttributeList = attributes.list();
    let mut made = PROCESS_INFORMATION::default();
    #[allow(unsafe_code, reason = "a process with a container and a job has no safe wrapper")]
    // SAFETY: all texts end with their marks and live across the call, the command line can be written to; the start-up
    // structure is the extended one, as its flag says, and what its attributes point to lives across the call.
    check(unsafe {
        CreateProcessW(
            program.as_ptr(),
            line.as_mut_ptr(),
            ptr::null(),
            ptr::null(),
            1,
            EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT | CREATE_NO_WINDOW,
            environment.as_ptr().cast(),
            folder.as_ptr(),
            (&raw const startup).cast(),
            &raw mut made,
        )
    })?;
    drop(owned(made.hThread)?);
    Ok((owned(made.hProcess)?, made.dwProcessId))
}

/// A list of attributes for one new process.
struct Attributes {
    /// Words, because the list has to be aligned as pointers are.
    memory: Vec<usize>,
}

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut bytes = 0;
        #[allow(unsafe_code, reason = "attribute lists have no safe wrapper")]
        // SAFETY: without a list the call only tells the size. It fails as documented, so its result says nothing.
        unsafe {
            InitializeProcThreadAttributeList(ptr::null_mut(), ATTRIBUTES, 0, &raw mut bytes);
        }
        let mut attributes = Self { memory: vec![0; bytes.div_ceil(size_of::<usize>())] };
        #[allow(unsafe_code, reason = "attribute lists have no safe wrapper")]
        // SAFETY: the memory has the size that the call asked for.
        let result = unsafe { InitializeProcThreadAttributeList(attributes.list(), ATTRIBUTES, 0, &raw mut bytes) };
        if let Err(error) = check(result) {
            // Nothing was made that would have to be taken apart.
            mem::forget(attributes);
            return Err(error);
        }
        Ok(attributes)
    }

    fn list(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        self.memory.as_mut_ptr().cast()
    }

    /// Adds an attribute; `values` has to live until the process is made.
    fn set<T>(&mut self, attribute: u32, values: &[T]) -> io::Result<()> {
        let attribute = usize::try_from(attribute).unwrap_or(0);
        #[allow(unsafe_code, reason = "attribute lists have no safe wrapper")]
        // SAFETY: the list is initialised; the values have the size given. The caller keeps them.
        check(unsafe {
            UpdateProcThreadAttribute(
                self.list(),
                0,
                attribute,
                values.as_ptr().cast(),
                size_of_val(values),
                ptr::null_mut(),
                ptr::null(),
            )
        })
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "attribute lists have no safe wrapper")]
        // SAFETY: the list was initialised and is used no more.
        unsafe {
            DeleteProcThreadAttributeList(self.list());
        }
    }
}
