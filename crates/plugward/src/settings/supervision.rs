//! The `[supervision]` table of `config.toml`: how plugins are looked after where their manifests do not say.
//!
//! Owns its keys and ranges, which are those of the manifest's section. Refuses numbers that would mean nothing: zero
//! stands for "never" where that makes sense, and is an error elsewhere.

use std::time::Duration;

use plugward_host::SupervisionSettings;
use toml::Spanned;
use toml::de::DeValue;

use super::file::{Mistake, number, unknown};

const KEYS: [&str; 5] =
    ["breaker_failures", "breaker_open_seconds", "ping_seconds", "start_limit", "healthy_after_seconds"];

/// What the table says; absent keys are none.
#[derive(Debug, Default)]
pub(super) struct FileSupervision {
    breaker_failures: Option<u32>,
    breaker_open: Option<Duration>,
    ping_every: Option<Duration>,
    start_limit: Option<u32>,
    healthy_after: Option<Duration>,
}

impl FileSupervision {
    /// What holds with these settings.
    pub(super) fn over_defaults(&self) -> SupervisionSettings {
        let usual = SupervisionSettings::default();
        SupervisionSettings {
            breaker_failures: self.breaker_failures.unwrap_or(usual.breaker_failures),
            breaker_open: self.breaker_open.unwrap_or(usual.breaker_open),
            ping_every: self.ping_every.unwrap_or(usual.ping_every),
            start_limit: self.start_limit.unwrap_or(usual.start_limit),
            healthy_after: self.healthy_after.unwrap_or(usual.healthy_after),
        }
    }
}

pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<FileSupervision, Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(Mistake::new(value.span().start, "`supervision` must be a table"));
    };
    let mut found = FileSupervision::default();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        // Every range of a count ends far below `u32::MAX`.
        let count = |range| number(name, value, range).map(|number| u32::try_from(number).ok());
        let seconds = |range| number(name, value, range).map(|number| Some(Duration::from_secs(number)));
        match name {
            "breaker_failures" => found.breaker_failures = count(1..=1000)?,
            "breaker_open_seconds" => found.breaker_open = seconds(1..=3600)?,
            "ping_seconds" => found.ping_every = seconds(0..=3600)?,
            "start_limit" => found.start_limit = count(1..=1000)?,
            "healthy_after_seconds" => found.healthy_after = seconds(1..=86_400)?,
            _ => return Err(Mistake::new(key.span().start, unknown(name, &KEYS))),
        }
    }
    Ok(found)
}
