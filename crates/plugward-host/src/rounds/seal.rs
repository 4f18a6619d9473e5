//! Texts of a plugin that pass through a client and come back: bound to what they were given for.
//!
//! ```text
//! 1.<expiry, seconds>.<HMAC-SHA256, hexadecimal>.<the plugin's text, as it was written>
//! ```
//!
//! Owns this form and the key. The tag covers the plugin, its version, the client, the request and the expiry, so a text
//! opens for nothing else (MR-03). Refuses to hide what it carries: the plugin gave it to the client.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;
use serde_json::value::RawValue;

/// How long a text can come back. A person answers within minutes; what is an hour old was forgotten.
const LIFE: Duration = Duration::from_secs(60 * 60);

/// Longest text of a plugin, in bytes. It travels three times for each round.
pub(crate) const MAX_STATE_BYTES: usize = 64 * 1024;

/// Form of the text; another one would have another number.
const FORM: &str = "1";

/// 256 bits cannot be guessed, and are what the hash works with.
const KEY_BYTES: usize = 32;

/// Setting under which the key is kept: a client may come back after a restart.
pub(crate) const KEY_SETTING: &str = "round-key";

/// What a text is given for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    /// The plugin that wrote it.
    pub(crate) plugin: &'a str,
    /// Its version: another one may read another meaning into it.
    pub(crate) version: &'a str,
    /// Who gets it.
    pub(crate) client: &'a str,
    /// Method of the request.
    pub(crate) method: &'a str,
    /// Digest of what the request asks for.
    pub(crate) subject: &'a [u8],
}

/// The key. Never shown.
pub(crate) struct Seal([u8; KEY_BYTES]);

impl fmt::Debug for Seal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Seal(..)")
    }
}

impl Seal {
    /// A key that nobody knows.
    pub(crate) fn fresh() -> Result<Self, getrandom::Error> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// As it is kept.
    pub(crate) fn to_setting(&self) -> String {
        hex(&self.0)
    }

    /// What was kept.
    pub(crate) fn from_setting(text: &str) -> Option<Self> {
        Some(Self(unhex(text)?.try_into().ok()?))
    }

    /// The text for the client, as a JSON string.
    pub(crate) fn close(&self, purpose: Purpose<'_>, state: &RawValue, now: SystemTime) -> Option<Box<RawValue>> {
        if state.get().len() > MAX_STATE_BYTES {
            return None;
        }
        let expiry = seconds(now + LIFE);
        let tag = hmac::sign(&self.key(), &covered(purpose, expiry, state.get()));
        let text = format!("{FORM}.{expiry}.{}.{}", hex(tag.as_ref()), state.get());
        serde_json::value::to_raw_value(&text).ok()
    }

    /// The plugin's text, as it was written, if this is what was given for the purpose and its time is not over.
    pub(crate) fn open(&self, purpose: Purpose<'_>, sealed: &str, now: SystemTime) -> Option<Box<RawValue>> {
        let mut parts = sealed.splitn(4, '.');
        let (form, expiry) = (parts.next()?, parts.next()?.parse::<u64>().ok()?);
        let (tag, state) = (unhex(parts.next()?)?, parts.next()?);
        if form != FORM || state.len() > MAX_STATE_BYTES {
            return None;
        }
        // Compared in constant time, and before anything is believed.
        hmac::verify(&self.key(), &covered(purpose, expiry, state), &tag).ok()?;
        if expiry < seconds(now) {
            return None;
        }
        RawValue::from_string(state.to_owned()).ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// What a tag is about.
fn covered(purpose: Purpose<'_>, expiry: u64, state: &str) -> Vec<u8> {
    let Purpose { plugin, version, client, method, subject } = purpose;
    let parts =
        [plugin.as_bytes(), version.as_bytes(), client.as_bytes(), method.as_bytes(), subject, state.as_bytes()];
    let mut bytes = Vec::with_capacity(state.len() + 256);
    for part in parts {
        // With their lengths, so that no part can lend bytes to the next.
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&expiry.to_be_bytes());
    bytes
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSE: Purpose<'static> =
        Purpose { plugin: "fx", version: "1.0.0", client: "http:a", method: "tools/call", subject: b"digest" };

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn state() -> Box<RawValue> {
        RawValue::from_string(r#""\u0041.b.c \u00e9""#.to_owned()).unwrap()
    }

    fn closed(seal: &Seal) -> String {
        serde_json::from_str(seal.close(PURPOSE, &state(), now()).unwrap().get()).unwrap()
    }

    #[test]
    fn what_was_given_comes_back_as_it_was_written() {
        // MR-04: a plugin may compare bytes.
        let seal = Seal::fresh().unwrap();
        assert_eq!(seal.open(PURPOSE, &closed(&seal), now()).unwrap().get(), state().get());
        let later = Seal::from_setting(&seal.to_setting()).unwrap();
        assert!(later.open(PURPOSE, &closed(&seal), now()).is_some(), "after a restart too");
    }

    #[test]
    fn it_opens_for_nothing_else() {
        // MR-03: another client, another plugin, another request, another version, another key, or later.
        let seal = Seal::fresh().unwrap();
        let text = closed(&seal);
        let others = [
            Purpose { plugin: "fy", ..PURPOSE },
            Purpose { version: "1.0.1", ..PURPOSE },
            Purpose { client: "http:b", ..PURPOSE },
            Purpose { method: "prompts/get", ..PURPOSE },
            Purpose { subject: b"other", ..PURPOSE },
            Purpose { plugin: "fx1", version: ".0.0", ..PURPOSE },
        ];
        for other in others {
            assert!(seal.open(other, &text, now()).is_none(), "{other:?}");
        }
        assert!(Seal::fresh().unwrap().open(PURPOSE, &text, now()).is_none());
        assert!(seal.open(PURPOSE, &text, now() + LIFE).is_some());
        assert!(seal.open(PURPOSE, &text, now() + LIFE + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn what_was_changed_on_the_way_does_not_open() {
        let seal = Seal::fresh().unwrap();
        let text = closed(&seal);
        assert!(seal.open(PURPOSE, &format!("{text}-TAMPERED"), now()).is_none());
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            assert!(seal.open(PURPOSE, &changed, now()).is_none(), "{changed}");
        }
        for odd in ["", "1", "1.2.3", "1.99999999999.zz.\"a\"", "1.9999999999..\"a\"", "é.1.00.x"] {
            assert!(seal.open(PURPOSE, odd, now()).is_none(), "{odd}");
        }
        assert!(Seal::from_setting("00").is_none() && Seal::from_setting("zz").is_none());
    }

    #[test]
    fn a_text_too_long_is_not_carried() {
        let long = serde_json::value::to_raw_value(&"x".repeat(MAX_STATE_BYTES)).unwrap();
        assert!(Seal::fresh().unwrap().close(PURPOSE, &long, now()).is_none());
    }
}
