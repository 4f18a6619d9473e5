//! Webhooks (`type: integration`): what is sent where, and at which events. Owns the events there are, which of them a
//! filter picks, the payload (`payload`) and the description of a webhook. Refuses to send anything, and text templates:
//! a payload is a tree of JSON before a value comes near it.

mod payload;

use std::fmt;
use std::time::Duration;

pub use payload::{Payload, PayloadError};

pub(crate) use payload::{FIELDS, PAYLOAD_BYTES_MAX};

use crate::access::{UrlError, WebUrl};
use crate::visible::quoted;

/// Names of the variables of a webhook's backend, none of which reaches a process: where it is sent, and its signing key.
pub const WEBHOOK_URL: &str = "webhook_url";
/// The key that signs it.
pub const WEBHOOK_SECRET: &str = "secret";
/// What stands before the name of a header.
pub const WEBHOOK_HEADER: &str = "header ";

/// Something that happens in a host and may be told to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostOccasion {
    /// A plugin takes calls.
    PluginReady,
    /// A plugin fell over and will be started again.
    PluginUnhealthy,
    /// A plugin failed, and a person has to look.
    PluginError,
    /// A plugin was stopped or switched off.
    PluginStopped,
    /// What a plugin would run is not what was approved.
    PluginHeld,
    /// A plugin was removed.
    PluginRemoved,
    /// Other tools than before can be called.
    ToolsChanged,
    /// A call waits for a person's permission.
    RequestWaiting,
}

/// The occasions by name.
const OCCASIONS: [(&str, HostOccasion); 8] = [
    ("plugin.ready", HostOccasion::PluginReady),
    ("plugin.unhealthy", HostOccasion::PluginUnhealthy),
    ("plugin.error", HostOccasion::PluginError),
    ("plugin.stopped", HostOccasion::PluginStopped),
    ("plugin.held", HostOccasion::PluginHeld),
    ("plugin.removed", HostOccasion::PluginRemoved),
    ("tools.changed", HostOccasion::ToolsChanged),
    ("request.waiting", HostOccasion::RequestWaiting),
];

impl HostOccasion {
    /// Its name in files and payloads.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        OCCASIONS.iter().find(|(_, occasion)| *occasion == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for HostOccasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that picks no occasion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {} is unknown: there are {}", quoted(.0), OCCASIONS.map(|(name, _)| name).join(", "))]
pub struct UnknownOccasion(pub String);

/// One entry of a filter: a name, a family (`plugin.*`), or `*` for all.
pub(crate) fn occasions_of(word: &str) -> Result<Vec<HostOccasion>, UnknownOccasion> {
    let family = word.strip_suffix('*').filter(|family| family.is_empty() || family.ends_with('.'));
    let is_picked = |name: &str| name == word || family.is_some_and(|family| name.starts_with(family));
    let found: Vec<HostOccasion> =
        OCCASIONS.iter().filter(|(name, _)| is_picked(name)).map(|(_, occasion)| *occasion).collect();
    if found.is_empty() { Err(UnknownOccasion(word.to_owned())) } else { Ok(found) }
}

/// The names a filter may have.
pub(crate) fn occasion_names() -> impl Iterator<Item = &'static str> {
    OCCASIONS.iter().map(|(name, _)| *name).chain(["*", "plugin.*"])
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Where it is sent, with references in its path left as they are written.
    pub url: String,
    /// What it is sent at, each once.
    pub occasions: Vec<HostOccasion>,
    /// What is sent.
    pub payload: Payload,
    /// Headers beside those of the host, by name, in the order of the file.
    pub headers: Vec<String>,
    /// Whether it is signed.
    pub is_signed: bool,
    /// Time for one attempt.
    pub timeout: Duration,
    /// Attempts after the first.
    pub retries: u32,
    /// Pause before the first of them; it doubles.
    pub retry_delay: Duration,
}

impl Webhook {
    /// What it does, one line each, for whoever has to agree to it.
    #[must_use]
    pub fn in_words(&self) -> Vec<String> {
        let names: Vec<&str> = self.occasions.iter().map(|occasion| occasion.as_str()).collect();
        let signed = if self.is_signed { "signed" } else { "NOT signed: whoever knows the address can send the same" };
        vec![
            format!("POST {}", self.url),
            format!("at {}", names.join(", ")),
            format!("with {}", self.payload),
            signed.to_owned(),
            format!("within {} ms, tried again {} times", self.timeout.as_millis(), self.retries),
        ]
    }
}

/// Reads the URL of a webhook, whose path may have references: what they stand for is not known yet, and cannot change
/// the host. The URL of the file with each reference as a letter.
pub(crate) fn url_shape(text: &str) -> Result<WebUrl, UrlError> {
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(end) = rest[start..].find('}') else { break };
        shape.push_str(&rest[..start]);
        // In a scheme, a host or a port this is refused as what it is.
        shape.push_str(if shape.matches('/').count() > 2 { "x" } else { "${" });
        rest = &rest[start + end + 1..];
    }
    shape.push_str(rest);
    WebUrl::new(&shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_picks_what_it_names() {
        assert_eq!(occasions_of("plugin.ready").unwrap(), [HostOccasion::PluginReady]);
        assert_eq!(occasions_of("plugin.*").unwrap().len(), 6);
        assert_eq!(occasions_of("*").unwrap().len(), OCCASIONS.len());
        for bad in ["", "plugin", "plugin.", "plug*", "ready", "**", "session.start"] {
            assert!(occasions_of(bad).is_err(), "{bad}");
        }
    }

    /// A variable of the environment must not decide which host is called: that is what a person agreed to.
    #[test]
    fn references_stand_in_the_path_only() {
        assert_eq!(url_shape("https://a.test/${KEY}?x=${B:-c}").unwrap().to_string(), "https://a.test/x?x=x");
        for bad in
            ["https://${HOST}/x", "https://a.test:${PORT}/", "${ALL}", "https://a${B}.test/x", "https://a.test${P}"]
        {
            assert!(url_shape(bad).is_err(), "{bad}");
        }
    }
}
