//! The layers of the sandbox, one bit each.
//!
//! Owns the list, so that a test can leave one out and see that the suite notices. Refuses leaving one out anywhere else:
//! outside tests only [`Layers::ALL`] is ever made.

use super::wire::Purpose;

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layers(u32);

macro_rules! layers {
    ($($bit:literal $constant:ident $name:literal $(#[doc = $doc:literal])+;)*) => {
        impl Layers {
            $($(#[doc = $doc])+ pub(super) const $constant: Self = Self(1 << $bit);)*

            /// Every layer with its name.
            #[cfg_attr(not(feature = "mutation"), allow(dead_code, reason = "names are for tests that leave one out"))]
            pub(super) const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$constant)),*];
        }
    };
}

layers! {
    0 FILES "files" #[doc = "A file tree of its own: without it the host's tree stays visible."];
    1 READ_ONLY "read-only" #[doc = "Packages and system files cannot be changed, data cannot be executed."];
    2 PROCESSES "processes" #[doc = "Process namespace."];
    3 NETWORK "network" #[doc = "Network namespace."];
    4 IPC "ipc" #[doc = "Namespace of shared memory and queues."];
    5 NAMES_SPACE "host-name" #[doc = "Namespace of the host name."];
    6 CAPABILITIES "capabilities" #[doc = "No capability is left."];
    7 LANDLOCK "landlock" #[doc = "Landlock rules."];
    8 SECCOMP "seccomp" #[doc = "System call filter."];
    9 LIMITS "limits" #[doc = "Limits on resources."];
    10 PERMISSION "permission" #[doc = "Leave to make namespaces: without it this is a machine that denies it to this program."];
    11 DESCRIPTORS "descriptors" #[doc = "What the host's own starter left open is closed."];
    12 NO_NEW_PRIVILEGES "no-new-privileges" #[doc = "No program that is executed gains a right; the kernel takes no filter without."];
}

impl Layers {
    /// All of them: the only value outside tests.
    pub(super) const ALL: Self = Self(u32::MAX);

    /// No layer: without it, the others count for plugins alone, and the probe has all.
    const PROBE_TOO: Self = Self(1 << 31);

    pub(super) const fn has(self, layer: Self) -> bool {
        self.0 & layer.0 != 0
    }

    /// Those of the probe, or of a plugin.
    pub(super) fn of(self, purpose: Purpose) -> Self {
        if purpose == Purpose::Witness && !self.has(Self::PROBE_TOO) { Self::ALL } else { self }
    }

    /// All but one, after a probe with all.
    #[cfg(feature = "mutation")]
    pub(super) const fn without_after_probe(layer: Self) -> Self {
        Self(Self::without(layer).0 & !Self::PROBE_TOO.0)
    }

    /// All but one.
    #[cfg(feature = "mutation")]
    pub(super) const fn without(layer: Self) -> Self {
        Self(Self::ALL.0 & !layer.0)
    }
}
