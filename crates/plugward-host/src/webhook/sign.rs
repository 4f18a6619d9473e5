//! The signature of a webhook, in the form of the Standard Webhooks specification: an HMAC with SHA-256 over id, time and
//! body, so that a receiver can tell who sent it, when, and that it was not changed. Owns the key and the encoding.
//! Refuses keys too short to be one.

use ring::hmac;

/// Shortest key, in bytes. What is shorter can be guessed from one signed message.
const KEY_BYTES_MIN: usize = 16;

/// What stands before a key that is written in base64, as services hand them out.
const KEY_PREFIX: &str = "whsec_";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A secret that is no key. Says nothing of what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    #[error("begins with `{KEY_PREFIX}` and is no base64")]
    Encoding,
    #[error("has less than {KEY_BYTES_MIN} bytes")]
    TooShort,
}

/// A key shared with the receiver.
pub(super) struct SigningKey(hmac::Key);

impl SigningKey {
    /// `text` is the key itself, or `whsec_` and the key in base64.
    pub(super) fn new(text: &str) -> Result<Self, KeyError> {
        let bytes = match text.strip_prefix(KEY_PREFIX) {
            Some(encoded) => decode(encoded).ok_or(KeyError::Encoding)?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.len() < KEY_BYTES_MIN {
            return Err(KeyError::TooShort);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The value of the header for a message with this id, sent at this second.
    pub(super) fn sign(&self, id: &str, timestamp_s: u64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{timestamp_s}.{body}").as_bytes());
        format!("v1,{}", encode(tag.as_ref()))
    }
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = ALPHABET[usize::try_from(group >> (18 - 6 * place) & 63).unwrap_or(0)];
            text.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if digits.len() % 4 == 1 || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_it_is_written() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!((encode(bytes.as_bytes()).as_str(), decode(text)), (text, Some(bytes.as_bytes().to_vec())));
        }
        assert!(decode("a").is_none() && decode("a b=").is_none() && decode("====").is_none());
    }

    /// Checked with another implementation: `openssl dgst -sha256 -hmac 0123456789abcdef -binary | base64`.
    #[test]
    fn a_message_is_signed_with_id_time_and_body() {
        let key = SigningKey::new("0123456789abcdef").unwrap();
        assert_eq!(key.sign("id", 7, "{}"), SIGNED);
        let encoded = SigningKey::new("whsec_MDEyMzQ1Njc4OWFiY2RlZg==").unwrap();
        assert_eq!(encoded.sign("id", 7, "{}"), SIGNED);
        for (id, time, body) in [("ie", 7, "{}"), ("id", 8, "{}"), ("id", 7, "{ }")] {
            assert_ne!(key.sign(id, time, body), SIGNED);
        }
    }

    const SIGNED: &str = "v1,jORZ8emPs46SDf3jtLBSr3eduJVaG6hCPb00m3V5k8Y=";

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(SigningKey::new("short").err(), Some(KeyError::TooShort));
        assert_eq!(SigningKey::new("whsec_AAAA").err(), Some(KeyError::TooShort));
        assert_eq!(SigningKey::new("whsec_!!!!").err(), Some(KeyError::Encoding));
    }
}
