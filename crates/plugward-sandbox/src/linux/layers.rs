//! The layers of the sandbox and their parts, one bit each.
//!
//! Owns the list, so that a test can leave one out and see that the suite notices. Refuses leaving one out anywhere else:
//! outside tests only [`Layers::ALL`] is ever made.

use super::wire::Purpose;

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layers(u64);

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
    13 USER "user" #[doc = "A user of the plugin's own, where the host is root."];
    14 ENVIRONMENT "environment" #[doc = "The plugin's environment is what its specification says and nothing of the launcher's."];
    15 INNER_DESCRIPTORS "descriptors-inside" #[doc = "The first process of the namespaces closes once more what it was not given."];
    16 LANDLOCK_FILES "landlock-files" #[doc = "Landlock's rules on files."];
    17 LANDLOCK_NETWORK "landlock-network" #[doc = "Landlock's rules on the network."];
    18 LANDLOCK_SCOPE "landlock-scope" #[doc = "Landlock's scope of signals and of Unix sockets without a path."];
    19 FILTER_CALLS "filter-calls" #[doc = "Calls that the filter refuses as such."];
    20 FILTER_ARGUMENTS "filter-arguments" #[doc = "Calls that it refuses by their arguments."];
    21 FILTER_CLONE3 "filter-clone3" #[doc = "`clone3` does not exist."];
    22 FILTER_SOCKETS "filter-sockets" #[doc = "Families of sockets."];
    23 FILTER_FAST_OPEN "filter-fast-open" #[doc = "Sending that connects as well, where hosts are listed."];
    24 FILTER_SET_ID "filter-set-id" #[doc = "Files that run as their owner."];
    25 FILTER_BUFFERS "filter-buffers" #[doc = "Sizes of the kernel's buffers."];
    26 FILTER_HIDING "filter-hiding" #[doc = "Processes that hide from their own user."];
    27 FILTER_METADATA "filter-metadata" #[doc = "Metadata of files, below level `full`."];
    28 FILTER_ARCHITECTURE "filter-architecture" #[doc = "Calls of another architecture."];
    29 FILTER_X32 "filter-x32" #[doc = "Calls by the numbers of x32."];
    30 FILTER_NEWER "filter-newer" #[doc = "Calls that the filter does not know yet."];
}

impl Layers {
    /// All of them: the only value outside tests.
    pub(super) const ALL: Self = Self(u64::MAX);

    /// No layer: without it, the others count for plugins alone, and the probe has all.
    const PROBE_TOO: Self = Self(1 << 63);

    pub(super) const fn has(self, layer: Self) -> bool {
        self.0 & layer.0 != 0
    }

    /// Those of the probe, or of a plugin.
    pub(super) fn of(self, purpose: Purpose) -> Self {
        if purpose == Purpose::Witness && !self.has(Self::PROBE_TOO) { Self::ALL } else { self }
    }

    /// These, after a probe with all.
    #[cfg(feature = "mutation")]
    pub(super) const fn after_probe(self) -> Self {
        Self(self.0 & !Self::PROBE_TOO.0)
    }

    /// All but one, or but several whose names `+` joins; `None` if one of them is no layer.
    #[cfg(any(test, feature = "mutation"))]
    pub(super) fn without(names: &str) -> Option<Self> {
        names.split('+').try_fold(Self::ALL, |left, name| {
            let (_, layer) = Self::NAMES.iter().find(|(known, _)| *known == name)?;
            Some(Self(left.0 & !layer.0))
        })
    }
}
