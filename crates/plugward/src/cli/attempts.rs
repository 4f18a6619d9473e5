//! Hosts a plugin tried to reach, as people read them.
//!
//! Owns the lines and their order: what nobody granted first. Refuses to advise: whether a host should be granted is for
//! somebody who knows what the plugin is for.

use super::output::{Tone, paint, safe};
use crate::wire::{NetworkAttemptBody, PluginBody};

/// How outcomes read, the ones to look at first.
const HEADINGS: [(&str, Tone, &str, &str); 3] = [
    ("refused", Tone::Warn, "!", "tried, not allowed"),
    ("failed", Tone::Bad, "✗", "allowed, not reached"),
    ("allowed", Tone::Good, "✓", "connected"),
];

/// Adds the list to a text; nothing if there is none.
pub(super) fn attempts(text: &mut String, plugin: &PluginBody) {
    for (outcome, tone, sign, heading) in HEADINGS {
        let mut attempts = plugin.network_attempts.iter().filter(|attempt| attempt.outcome == outcome).peekable();
        if attempts.peek().is_none() {
            continue;
        }
        text.push_str(&format!("{heading}:\n"));
        for attempt in attempts {
            text.push_str(&format!("  {} {}\n", paint(tone, sign), line(attempt)));
        }
    }
    if plugin.network_attempts_unlisted > 0 {
        text.push_str(&format!("  and {} more attempts, at hosts not listed\n", plugin.network_attempts_unlisted));
    }
}

fn line(attempt: &NetworkAttemptBody) -> String {
    let times = if attempt.count == 1 { "once".to_owned() } else { format!("{} times", attempt.count) };
    let mut line = format!("{} ({times}, last {})", safe(&attempt.place), attempt.last_at);
    if !attempt.reason.is_empty() {
        line.push_str(&format!(": {}", safe(&attempt.reason)));
    }
    if attempt.outcome == "allowed" {
        line.push_str(&format!(", {} bytes sent, {} received", attempt.sent_bytes, attempt.received_bytes));
    }
    line
}
