//! Random identifiers: trace and span ids of the W3C trace context, request ids.
//!
//! Owns their making from the system's randomness. Refuses to be a source of secrets for anything but themselves.

/// `N` random bytes in lower-case hex.
pub(crate) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    if getrandom::fill(&mut bytes).is_err() {
        // No randomness: identifiers stay unique within this process, which is all that traces need.
        static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let count = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
        let place = N.saturating_sub(count.len());
        bytes[place..].copy_from_slice(&count[count.len() - (N - place)..]);
    }
    hex(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
    use super::*;

    #[test]
    fn ids_have_the_length_asked_for_and_differ() {
        let (a, b) = (random_hex::<16>(), random_hex::<16>());
        assert_eq!((a.len(), random_hex::<8>().len()), (32, 16));
        assert_ne!(a, b);
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
