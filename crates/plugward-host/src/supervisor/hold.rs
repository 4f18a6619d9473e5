//! Whether what would run is what was approved, as of the last look.
//!
//! Owns the order of looks that overlap: one that began before a difference was seen does not take that back. Refuses to
//! look itself.

/// The outcome of the last look at what would run.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    is_held: bool,
    /// Differences seen so far.
    seen: u64,
}

impl Hold {
    /// Whether something differed.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Differences seen so far: what a look begins with.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// A look saw a difference.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
        self.seen += 1;
    }

    /// A person agreed to what there is.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    /// A look that began when `seen` differences were known found none; returns whether that changed anything.
    pub(crate) fn release_after(&mut self, seen: u64) -> bool {
        let changes = self.is_held && self.seen == seen;
        self.is_held &= !changes;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_began_before_a_difference_does_not_take_it_back() {
        let mut hold = Hold::default();
        let early = hold.seen();
        hold.hold();
        assert!(!hold.release_after(early) && hold.is_held(), "a call that was slow to look hides a changed file");
        let late = hold.seen();
        assert!(hold.release_after(late) && !hold.is_held());
        assert!(!hold.release_after(late), "nothing changed, so nothing is to be told");
    }
}
