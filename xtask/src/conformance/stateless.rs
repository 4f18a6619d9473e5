//! Checks that fail with a stateless fixture behind, and why: a list of its own, because what is missing differs.

use super::{Expected, NO_RECONNECTION, NO_SUBSCRIPTIONS, NO_TASKS, expected};

/// The list.
pub(super) const EXPECTED: &[Expected] = &[
    expected("2025-11-25", "resources-subscribe", NO_SUBSCRIPTIONS),
    expected("2025-11-25", "resources-unsubscribe", NO_SUBSCRIPTIONS),
    expected("2025-11-25", "server-sse-polling", NO_RECONNECTION),
    expected("2026-07-28", "tasks-capability-", NO_TASKS),
    expected("2026-07-28", "tasks-dispatch-", NO_TASKS),
    expected("2026-07-28", "tasks-lifecycle", NO_TASKS),
    expected("2026-07-28", "tasks-mrtr-", NO_TASKS),
    expected("2026-07-28", "tasks-request-", NO_TASKS),
    expected("2026-07-28", "tasks-required-", NO_TASKS),
    expected("2026-07-28", "tasks-status-", NO_TASKS),
    expected("2026-07-28", "tasks-wire-", NO_TASKS),
];
