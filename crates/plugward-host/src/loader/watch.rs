//! Learns that something in the folders changed, and never what.
//!
//! Owns the kernel's notices on Linux and the pauses between looks where there are none: other systems, network file
//! systems, too many folders. A notice that is lost costs a pause, no more. Refuses to interpret notices: whoever is told
//! looks again at everything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::FolderWatch;

/// Pause between two looks beside notices: what no notice tells, such as a change behind a link, shows by then.
const LOOK_ANYWAY: Duration = Duration::from_secs(30);

/// Pause between two looks where the kernel tells nothing although it was asked to.
const WITHOUT_NOTICES: Duration = Duration::from_secs(2);

/// Folders that notices are asked for. The kernel's own limit is usually 8,192 for one user, and others want some.
const MAX_WATCHED: usize = 2048;

/// Notices of changes.
pub(super) struct Watch {
    pause: Duration,
    told_of_limit: bool,
    #[cfg(target_os = "linux")]
    notices: Option<linux::Notices>,
}

impl Watch {
    pub(super) fn new(mode: FolderWatch) -> Self {
        #[cfg(target_os = "linux")]
        let notices = if mode == FolderWatch::Events { linux::Notices::open() } else { None };
        #[cfg(target_os = "linux")]
        let has_notices = notices.is_some();
        #[cfg(not(target_os = "linux"))]
        let has_notices = false;
        let pause = match mode {
            FolderWatch::Poll(pause) => pause,
            FolderWatch::Events if has_notices => LOOK_ANYWAY,
            FolderWatch::Events => WITHOUT_NOTICES,
        };
        Self {
            pause,
            told_of_limit: false,
            #[cfg(target_os = "linux")]
            notices,
        }
    }

    /// Asks for notices of changes in these folders. Those asked for before go on.
    pub(super) fn follow(&mut self, folders: &[PathBuf]) {
        let folders: BTreeSet<&PathBuf> = folders.iter().collect();
        if folders.len() > MAX_WATCHED && !std::mem::replace(&mut self.told_of_limit, true) {
            tracing::warn!("more than {MAX_WATCHED} folders of plugins: changes in the deepest show late");
        }
        let mut folders: Vec<&PathBuf> = folders.into_iter().collect();
        folders.sort_by_key(|folder| folder.components().count());
        #[cfg(target_os = "linux")]
        if let Some(notices) = &self.notices {
            folders.into_iter().take(MAX_WATCHED).for_each(|folder| notices.follow(folder));
        }
    }

    /// Resolves when it is time to look again.
    pub(super) async fn changed(&self) {
        #[cfg(target_os = "linux")]
        if let Some(notices) = &self.notices {
            let _ = tokio::time::timeout(self.pause, notices.next()).await;
            return;
        }
        tokio::time::sleep(self.pause).await;
    }

    /// Resolves when nothing was noticed for `quiet`, at the latest after `longest`.
    pub(super) async fn settle(&self, quiet: Duration, longest: Duration) {
        let wait = async {
            #[cfg(target_os = "linux")]
            if let Some(notices) = &self.notices {
                while tokio::time::timeout(quiet, notices.next()).await.is_ok() {}
                return;
            }
            tokio::time::sleep(quiet).await;
        };
        let _ = tokio::time::timeout(longest, wait).await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// Bytes of notices read at once; their content does not matter.
    const READ_BYTES: usize = 16 * 1024;

    pub(super) struct Notices(AsyncFd<OwnedFd>);

    impl Notices {
        /// None where the kernel refuses, which limits of other programs can make it do.
        #[allow(deprecated, reason = "the descriptor is owned and stays open; what replaces this asks for `unsafe`")]
        pub(super) fn open() -> Option<Self> {
            let opened = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
            let opened = opened.map_err(std::io::Error::from);
            match opened.and_then(|fd| AsyncFd::with_interest(fd, Interest::READABLE)) {
                Ok(fd) => Some(Self(fd)),
                Err(error) => {
                    tracing::warn!("changes of plugin files are not told by the kernel and show late: {error}");
                    None
                }
            }
        }

        pub(super) fn follow(&self, folder: &Path) {
            let flags = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            // Gone again, or past the kernel's limit: the look after the pause will tell.
            if let Err(error) = inotify::add_watch(self.0.get_ref(), folder, flags) {
                tracing::debug!(folder = %folder.display(), "not watched: {error}");
            }
        }

        /// Resolves at the next notice, and takes all there are.
        pub(super) async fn next(&self) {
            let Ok(mut ready) = self.0.readable().await else { return std::future::pending().await };
            let mut buffer = [0; READ_BYTES];
            while rustix::io::read(self.0.get_ref(), &mut buffer).is_ok_and(|read| read > 0) {}
            ready.clear_ready();
        }
    }
}
