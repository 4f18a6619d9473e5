//! Random identifiers: trace and span ids of the W3C trace context, request ids.
//!
//! Owns their making from the system's randomness. Refuses to be a source of secrets for anything but themselves.

use std::time::SystemTime;

/// Bytes of a trace id that tell when it was made, of 16.
const TIME_BYTES: usize = 6;

/// Bytes of a span id.
const SPAN_BYTES: usize = 8;

/// `N` random bytes in lower-case hex.
pub(crate) fn random_hex<const N: usize>() -> String {
    hex(&random::<N>())
}

/// A new trace id and the id of its first span. The trace id begins with the milliseconds since the epoch, so that the
/// index over traces grows at its end instead of everywhere; the ten bytes after that are random, more than the seven
/// that the W3C asks for.
pub(crate) fn new_trace(now: SystemTime) -> (String, String) {
    // From one source at once: asking the system costs more than the bytes.
    let bytes = random::<{ 16 + SPAN_BYTES }>();
    let (mut trace, mut span) = ([0; 16], [0; SPAN_BYTES]);
    trace.copy_from_slice(&bytes[..16]);
    span.copy_from_slice(&bytes[16..]);
    let ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().to_be_bytes();
    trace[..TIME_BYTES].copy_from_slice(&ms[ms.len() - TIME_BYTES..]);
    (hex(&trace), hex(&span))
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    if getrandom::fill(&mut bytes).is_err() {
        // No randomness: identifiers stay unique within this process, which is all that traces need.
        static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let count = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
        // Everywhere in it: whichever part becomes an id of its own has the count.
        bytes.iter_mut().rev().zip(count.iter().rev().cycle()).for_each(|(byte, count)| *byte = *count);
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Trace id and parent span id of a W3C `traceparent`, if it is one.
pub(crate) fn parse_traceparent(text: &str) -> Option<(String, String)> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let valid = is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    // Version 00 has exactly four parts; later ones may append more.
    let whole = version != "00" || parts.next().is_none();
    (valid && whole && !is_zero(trace) && !is_zero(span)).then(|| (trace.to_owned(), span.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ids_have_the_length_asked_for_and_differ() {
        let (a, b) = (random_hex::<16>(), random_hex::<16>());
        assert_eq!((a.len(), random_hex::<8>().len()), (32, 16));
        assert_ne!(a, b);
        assert_eq!(hex(&[0, 0x1f, 0xa0]), "001fa0");
    }

    #[test]
    fn later_traces_have_greater_ids_and_no_two_are_alike() {
        let (then, later) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_millis(1));
        let (early, late) = (new_trace(then), new_trace(later));
        assert!(early.0.starts_with("000000000000") && late.0.starts_with("000000000001"), "{early:?} {late:?}");
        assert_eq!((early.0.len(), early.1.len()), (32, 16));
        assert!(new_trace(then).0 != early.0 && new_trace(then).1 != early.1);
    }

    #[test]
    fn only_a_well_formed_traceparent_is_followed() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(parse_traceparent(good).is_some());
        for bad in [
            "",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert!(parse_traceparent(bad).is_none(), "{bad}");
        }
    }
}
