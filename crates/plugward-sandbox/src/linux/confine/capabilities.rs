//! Giving up every capability, for good.
//!
//! Owns the order: bounding set first, which takes a capability of its own, then the flags that keep a user id from
//! giving capabilities back, then the sets. Refuses leaving one.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        set_capabilities, set_capabilities_secure_bits,
    },
};

/// Highest number the kernel's interface has room for; it answers "invalid" beyond the last one it knows.
const LAST_POSSIBLE: libc::c_ulong = 63;

/// First half, before a change of user: no program this process starts can gain a capability. Does nothing for a process
/// that has none to begin with. Allocates nothing.
pub(super) fn close_all_ways_back() -> io::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    drop_bounding_set()?;
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    Ok(())
}

/// Second half: gives up every capability and makes sure that it is so. Allocates nothing.
pub(super) fn drop_all() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    let left = capabilities(None)?;
    if left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty() {
        Ok(())
    } else {
        Err(Errno::PERM.into())
    }
}

fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..=LAST_POSSIBLE {
        #[allow(unsafe_code, reason = "rustix names capabilities by type, and the kernel may know newer ones")]
        // SAFETY: this command reads a number and touches no memory.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result != 0 {
            let error = io::Error::last_os_error();
            // Beyond the last one there is nothing to give up.
            return if error.raw_os_error() == Some(libc::EINVAL) && capability > 0 { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}
