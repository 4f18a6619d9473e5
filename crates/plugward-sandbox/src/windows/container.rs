//! The AppContainer of a plugin: an identity with rights to what was granted to it.
//!
//! Owns making it, its capabilities, and the entries in the access lists of declared paths. Refuses granting the right to
//! execute where a plugin writes.

use std::{ffi::c_void, io, path::Path, ptr};

use windows_sys::Win32::{
    Foundation::{ERROR_SUCCESS, LocalFree},
    Security::{
        ACL,
        Authorization::{
            EXPLICIT_ACCESS_W, GRANT_ACCESS, GetNamedSecurityInfoW, SE_FILE_OBJECT, SetEntriesInAclW,
            SetNamedSecurityInfoW, TRUSTEE_IS_SID, TRUSTEE_IS_UNKNOWN, TRUSTEE_W,
        },
        CONTAINER_INHERIT_ACE, CreateWellKnownSid, DACL_SECURITY_INFORMATION, FreeSid,
        Isolation::{CreateAppContainerProfile, DeriveAppContainerSidFromAppContainerName},
        OBJECT_INHERIT_ACE, PSID, SECURITY_CAPABILITIES, SECURITY_MAX_SID_SIZE, SID_AND_ATTRIBUTES,
        WELL_KNOWN_SID_TYPE, WinCapabilityInternetClientSid, WinCapabilityPrivateNetworkClientServerSid,
    },
};

use super::handles::wide_ended;
use crate::{LaunchSpec, Network, SandboxSpec, SpawnError, windows_text::container_name};

/// Reading and executing files, and listing folders (`FILE_GENERIC_READ | FILE_GENERIC_EXECUTE`).
const READ_AND_EXECUTE: u32 = 0x0012_00a9;
/// Reading, writing and deleting (`FILE_GENERIC_READ | FILE_GENERIC_WRITE | DELETE | FILE_DELETE_CHILD`), without executing
/// files; the bit for that lets folders be entered, which needs no right of its own.
const READ_AND_WRITE: u32 = 0x0013_01df & !0x20;
/// A capability is in force.
const ENABLED: u32 = 4;
/// What the system answers if the container is there already.
const ALREADY_EXISTS: i32 = 0x8007_00b7_u32.cast_signed();

/// A container and its capabilities.
pub(super) struct Container {
    identity: PSID,
    capabilities: Vec<[u8; SECURITY_MAX_SID_SIZE as usize]>,
}

/// Capabilities as the system takes them; borrows a container.
pub(super) struct Capabilities<'a> {
    list: Vec<SID_AND_ATTRIBUTES>,
    container: &'a Container,
}

impl Container {
    /// Makes the container of a plugin, or finds it again.
    pub(super) fn open(spec: &LaunchSpec, sandbox: &SandboxSpec) -> io::Result<Self> {
        // Rights stay in access lists, so a container belongs to one set of folders.
        let mut key = spec.cwd.as_os_str().as_encoded_bytes().to_vec();
        for path in sandbox.readable().chain(sandbox.writable()) {
            key.push(0);
            key.extend_from_slice(path.as_os_str().as_encoded_bytes());
        }
        let name = container_name(&key);
        let wide = wide_ended(name.as_ref());
        let mut identity: PSID = ptr::null_mut();
        #[allow(unsafe_code, reason = "AppContainers have no safe wrapper")]
        // SAFETY: all texts end with a mark and live across the calls; no capabilities are given; the place for the
        // identity lives across the calls and is freed by `Drop`.
        let result = unsafe {
            let made = CreateAppContainerProfile(
                wide.as_ptr(),
                wide.as_ptr(),
                wide.as_ptr(),
                ptr::null(),
                0,
                &raw mut identity,
            );
            if made == ALREADY_EXISTS {
                DeriveAppContainerSidFromAppContainerName(wide.as_ptr(), &raw mut identity)
            } else {
                made
            }
        };
        if result < 0 || identity.is_null() {
            return Err(io::Error::from_raw_os_error(result & 0xffff));
        }
        let mut container = Self { identity, capabilities: Vec::new() };
        if sandbox.network == Network::Open {
            for kind in [WinCapabilityInternetClientSid, WinCapabilityPrivateNetworkClientServerSid] {
                container.capabilities.push(well_known(kind)?);
            }
        }
        Ok(container)
    }

    /// Adds its rights to the access lists of the declared paths.
    pub(super) fn grant(&self, spec: &LaunchSpec, sandbox: &SandboxSpec) -> Result<(), SpawnError> {
        let failed = |path: &Path, layer: &'static str, error: io::Error| SpawnError::Layer {
            level: sandbox.level,
            layer,
            path: Some(path.to_owned()),
            cause: error.into(),
            fix: "; it has to exist, and this user has to be allowed to change who may use it",
        };
        for path in sandbox.readable().chain([spec.executable.as_path()]) {
            self.allow(path, READ_AND_EXECUTE).map_err(|error| failed(path, "a readable path", error))?;
        }
        for path in sandbox.writable() {
            self.allow(path, READ_AND_WRITE).map_err(|error| failed(path, "a writable path", error))?;
        }
        Ok(())
    }

    fn allow(&self, path: &Path, rights: u32) -> io::Result<()> {
        let name = wide_ended(path.as_os_str());
        let entry = EXPLICIT_ACCESS_W {
            grfAccessPermissions: rights,
            grfAccessMode: GRANT_ACCESS,
            grfInheritance: OBJECT_INHERIT_ACE | CONTAINER_INHERIT_ACE,
            Trustee: TRUSTEE_W {
                TrusteeForm: TRUSTEE_IS_SID,
                TrusteeType: TRUSTEE_IS_UNKNOWN,
                ptstrName: self.identity.cast(),
                ..TRUSTEE_W::default()
            },
        };
        let (mut old, mut new): (*mut ACL, *mut ACL) = (ptr::null_mut(), ptr::null_mut());
        let mut descriptor: *mut c_void = ptr::null_mut();
        #[allow(unsafe_code, reason = "access lists have no safe wrapper")]
        // SAFETY: the name ends with a mark; the entry, the places for the lists and the identity live across the calls;
        // what the calls allocate is freed once, after its last use. The old list is part of the descriptor.
        let result = unsafe {
            let mut result = GetNamedSecurityInfoW(
                name.as_ptr(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut old,
                ptr::null_mut(),
                &raw mut descriptor,
            );
            if result == ERROR_SUCCESS {
                result = SetEntriesInAclW(1, &raw const entry, old, &raw mut new);
            }
            if result == ERROR_SUCCESS {
                result = SetNamedSecurityInfoW(
                    name.as_ptr(),
                    SE_FILE_OBJECT,
                    DACL_SECURITY_INFORMATION,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    new,
                    ptr::null(),
                );
            }
            LocalFree(new.cast());
            LocalFree(descriptor);
            result
        };
        if result == ERROR_SUCCESS {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(i32::try_from(result).unwrap_or(i32::MAX)))
        }
    }

    /// Its capabilities, for the start of a process.
    pub(super) fn capabilities(&self) -> Capabilities<'_> {
        let list = self
            .capabilities
            .iter()
            .map(|sid| SID_AND_ATTRIBUTES { Sid: sid.as_ptr().cast_mut().cast(), Attributes: ENABLED })
            .collect();
        Capabilities { list, container: self }
    }
}

impl Capabilities<'_> {
    /// The structure the system reads. It points into `self`.
    pub(super) fn as_system(&mut self) -> SECURITY_CAPABILITIES {
        SECURITY_CAPABILITIES {
            AppContainerSid: self.container.identity,
            Capabilities: self.list.as_mut_ptr(),
            CapabilityCount: u32::try_from(self.list.len()).unwrap_or(0),
            Reserved: 0,
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "AppContainers have no safe wrapper")]
        // SAFETY: the identity came from a call that asks for this, and is used no more.
        unsafe {
            FreeSid(self.identity);
        }
    }
}

/// A capability that every system knows.
fn well_known(kind: WELL_KNOWN_SID_TYPE) -> io::Result<[u8; SECURITY_MAX_SID_SIZE as usize]> {
    let mut sid = [0; SECURITY_MAX_SID_SIZE as usize];
    let mut size = SECURITY_MAX_SID_SIZE;
    #[allow(unsafe_code, reason = "identities have no safe wrapper")]
    // SAFETY: the buffer has the size given, which lives across the call; no domain is given.
    super::handles::check(unsafe {
        CreateWellKnownSid(kind, ptr::null_mut(), sid.as_mut_ptr().cast(), &raw mut size)
    })?;
    Ok(sid)
}
