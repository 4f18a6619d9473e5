//! Answers to a plugin that asks for names.
//!
//! Owns reading one question and writing its answer. Refuses to pass any question on: a name is a message too, and what a
//! plugin asks for stays on this machine.

use std::net::Ipv4Addr;

/// Longest question in bytes; the limit of the protocol for datagrams without extensions.
pub(super) const MAX_QUESTION_BYTES: usize = 512;

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_INTERNET: u16 = 1;
/// A response, recursion done.
const RESPONSE: [u8; 2] = [0x80, 0x80];
const RECURSION_DESIRED: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
/// Seconds an answer may be kept: long enough for the connection it was asked for.
const TIME_TO_LIVE_S: u32 = 30;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// In the usual form, in lower case; bytes that belong in no name are kept, so that they can be shown.
    pub(super) name: String,
    /// Whether it is about IPv6, which programs ask about beside IPv4.
    pub(super) is_beside: bool,
    kind: u16,
    /// Where the question ends in its message.
    end: usize,
}

/// Reads a question; `None` for what is none, which gets no answer.
pub(super) fn read(message: &[u8]) -> Option<Question> {
    let header = message.get(..HEADER_BYTES)?;
    // A plain query with one question. What else it holds (cookies, sizes) is left alone.
    if header[2] & 0xf8 != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let mut labels = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase()),
            // A pointer has no place in a question.
            _ => return None,
        }
        at += length;
    }
    let fixed = message.get(at..at + 4)?;
    let (kind, class) = (u16::from_be_bytes([fixed[0], fixed[1]]), u16::from_be_bytes([fixed[2], fixed[3]]));
    if class != CLASS_INTERNET || labels.is_empty() {
        return None;
    }
    Some(Question { name: labels.join("."), is_beside: kind == TYPE_AAAA, kind, end: at + 4 })
}

/// The answer to `question`, asked by `message`: this address, or that there is no such name.
pub(super) fn answer(message: &[u8], question: &Question, address: Option<Ipv4Addr>) -> Vec<u8> {
    let mut answer = message.get(..question.end).unwrap_or_default().to_vec();
    if answer.len() < HEADER_BYTES {
        return Vec::new();
    }
    answer[2] = RESPONSE[0] | (answer[2] & RECURSION_DESIRED);
    answer[3] = RESPONSE[1] | if address.is_none() { NO_SUCH_NAME } else { 0 };
    answer[6..HEADER_BYTES].fill(0);
    // A name that has an address has no other records.
    if let Some(address) = address.filter(|_| question.kind == TYPE_A) {
        answer[7] = 1;
        // The name is the one asked for, by a pointer to it.
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        answer.extend_from_slice(&TIME_TO_LIVE_S.to_be_bytes());
        answer.extend_from_slice(&[0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    answer
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A question as programs ask it.
    pub(crate) fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0]);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message
    }

    /// What a program finds by name must be what the host gave, and nothing where it gave nothing.
    #[test]
    fn answers_carry_the_address_or_say_that_there_is_none() {
        let message = query("API.example.test", 1);
        let question = read(&message).unwrap();
        assert_eq!((question.name.as_str(), question.is_beside), ("api.example.test", false));
        let found = answer(&message, &question, Some(Ipv4Addr::new(127, 8, 0, 1)));
        assert_eq!(&found[..8], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1]);
        assert!(found.ends_with(&[0, 4, 127, 8, 0, 1]));
        let missing = answer(&message, &question, None);
        assert_eq!((missing[3] & 15, missing.len()), (3, message.len()));
        // There is no address of the other kind, which is not the same as no name.
        let other = query("api.example.test", 28);
        let question = read(&other).unwrap();
        let empty = answer(&other, &question, Some(Ipv4Addr::LOCALHOST));
        assert!(question.is_beside && empty[3] & 15 == 0 && empty[7] == 0 && empty.len() == other.len());
    }

    /// Extensions a resolver adds must not keep it from its answer.
    #[test]
    fn extensions_are_left_out_of_the_answer() {
        let mut message = query("a.test", 1);
        let plain = message.len();
        message[11] = 1;
        message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        let question = read(&message).unwrap();
        let missing = answer(&message, &question, None);
        assert_eq!((missing.len(), missing[11]), (plain, 0));
    }

    #[test]
    fn what_is_no_question_gets_no_answer() {
        let good = query("a.test", 1);
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), None, "cut at {length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            message
        };
        for bad in [changed(2, 0x80), changed(2, 0x28), changed(5, 2), changed(12, 0xc0), changed(good.len() - 1, 3)] {
            assert_eq!(read(&bad), None);
        }
        assert_eq!(read(&query("a\0.test", 1)).unwrap().name, "a\0.test", "shown as it is, after escaping");
    }
}
