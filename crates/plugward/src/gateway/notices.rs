//! `notifications/tools/list_changed`: when a client has to be told.
//!
//! Owns what the client last saw or was told, and the pause that turns a storm into one notice. Refuses to tell what is
//! not true: a plugin that announces changes, restarts, or is replaced by an equal one changes nothing for the client
//! (case B039). Refuses clocks: the driver says what time it is.

use std::time::{Duration, Instant};

use super::tools_list::Fingerprint;

/// Changes this close together are one notice. Plugins that start together become ready within it; a person does not
/// notice it.
pub(super) const COALESCE: Duration = Duration::from_millis(100);

/// What one client knows about the tools.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The client confirmed the handshake; before that it must not be sent notifications.
    is_confirmed: bool,
    /// The tools as last listed or announced; a client that never listed has nothing that could be out of date.
    known: Option<Fingerprint>,
    /// When to compare.
    due_at: Option<Instant>,
}

impl Notices {
    /// The client confirmed the handshake.
    pub(super) fn confirmed(&mut self) {
        self.is_confirmed = true;
    }

    /// The set of tools may have changed.
    pub(super) fn changed(&mut self, now: Instant) {
        // A later change does not move the instant, or a plugin that flaps could put off the notice for ever.
        self.due_at.get_or_insert(now + COALESCE);
    }

    /// The client was sent this list. `is_current` is false when the tools may have changed since it was made.
    pub(super) fn listed(&mut self, now: Instant, seen: Fingerprint, is_current: bool) {
        self.known = Some(seen);
        if !is_current {
            self.changed(now);
        }
    }

    /// When [`take`](Self::take) is to be called.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at.filter(|_| self.is_confirmed && self.known.is_some())
    }

    /// Whether the client has to be told now, given the tools as they are.
    pub(super) fn take(&mut self, now: Instant, current: impl FnOnce() -> Fingerprint) -> bool {
        if self.due_at().is_none_or(|due_at| now < due_at) {
            return false;
        }
        self.due_at = None;
        let current = current();
        let is_news = self.known != Some(current);
        self.known = Some(current);
        is_news
    }

    /// The notice could not be sent: it is still owed.
    pub(super) fn unsent(&mut self, now: Instant) {
        self.known = Some(Fingerprint::UNKNOWN);
        self.changed(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Fingerprint = Fingerprint(1);
    const NEW: Fingerprint = Fingerprint(2);

    fn listed(now: Instant) -> Notices {
        let mut notices = Notices::default();
        notices.confirmed();
        notices.listed(now, OLD, true);
        notices
    }

    #[test]
    fn a_storm_is_one_notice_and_a_storm_about_nothing_is_none() {
        // Case B039: clients must not be made to list again and again.
        let start = Instant::now();
        let mut notices = listed(start);
        for ms in 0..90 {
            notices.changed(start + Duration::from_millis(ms));
        }
        assert_eq!(notices.due_at(), Some(start + COALESCE));
        assert!(!notices.take(start, || NEW), "too early");
        assert!(notices.take(start + COALESCE, || NEW));
        assert_eq!(notices.due_at(), None);
        notices.changed(start + 2 * COALESCE);
        assert!(!notices.take(start + 3 * COALESCE, || NEW), "the client was told about these already");
    }

    #[test]
    fn nobody_is_told_before_the_handshake_or_without_a_list() {
        let now = Instant::now();
        let mut notices = Notices::default();
        notices.changed(now);
        assert_eq!(notices.due_at(), None);
        notices.confirmed();
        assert!(!notices.take(now + COALESCE, || NEW), "a client that never listed has nothing to refresh");
        notices.listed(now, OLD, true);
        assert!(notices.take(now + COALESCE, || NEW));
    }

    #[test]
    fn a_list_that_was_out_of_date_when_it_was_sent_is_checked_again() {
        let now = Instant::now();
        let mut notices = listed(now);
        notices.listed(now, OLD, false);
        assert!(notices.take(now + COALESCE, || NEW));
    }

    #[test]
    fn a_notice_that_could_not_be_sent_is_tried_again() {
        let now = Instant::now();
        let mut notices = listed(now);
        notices.changed(now);
        assert!(notices.take(now + COALESCE, || NEW));
        notices.unsent(now + COALESCE);
        assert!(notices.take(now + 2 * COALESCE, || NEW));
    }
}
