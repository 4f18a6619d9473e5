//! The headers of the protocol.
//!
//! Owns their names and the rule that headers and body of a request in the stateless revisions say the same (HT-07 to
//! HT-13): whoever stands between client and server acts on the headers, we act on the body. Refuses to mend either.

use axum::http::header::{HeaderMap, HeaderName};
use plugward_protocol::RpcError;
use plugward_protocol::mcp::codes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::mirror::Mirrored;

/// The revision of a message.
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The session of a message, in revisions with a handshake.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Where a stream is to be resumed, in revisions with a handshake.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The method of a request.
const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// What a request is about.
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Begins the headers that repeat arguments.
const PARAMETER_PREFIX: &str = "mcp-param-";

const ENCODED_BEGIN: &str = "=?base64?";
const ENCODED_END: &str = "?=";

/// The value of a header that stands once.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(str::trim),
        _ => None,
    }
}

/// Checks the headers that every request has against its body; `name` is what it is about, where the method has that.
///
/// # Errors
/// -32020.
pub(super) fn check(headers: &HeaderMap, version: &str, method: &str, name: Option<&str>) -> Result<(), RpcError> {
    same(headers, &PROTOCOL_VERSION, version)?;
    same(headers, &METHOD, method)?;
    name.map_or(Ok(()), |name| same_encoded(headers, &NAME, name))
}

/// Checks the headers that repeat arguments of a tool call.
///
/// # Errors
/// -32020.
pub(super) fn check_mirrored(headers: &HeaderMap, mirrored: &[Mirrored], arguments: &RawValue) -> Result<(), RpcError> {
    if mirrored.is_empty() {
        return Ok(());
    }
    // What cannot be compared does not pass.
    let arguments: Value = serde_json::from_str(arguments.get())
        .map_err(|_| RpcError::new(codes::HEADER_MISMATCH, "arguments nest too deep to be compared with headers"))?;
    for mirrored in mirrored {
        let Ok(name) = HeaderName::try_from(format!("{PARAMETER_PREFIX}{}", mirrored.name)) else { continue };
        let value = mirrored.path.iter().try_fold(&arguments, |value, key| value.get(key));
        match value {
            None | Some(Value::Null) if headers.contains_key(&name) => {
                return Err(mismatch(&name, "has a value, and the body has none"));
            }
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => same_encoded(headers, &name, text)?,
            Some(Value::Bool(flag)) => same_encoded(headers, &name, if *flag { "true" } else { "false" })?,
            Some(Value::Number(number)) => {
                let sent = decoded(headers, &name)?;
                let is_same =
                    sent == number.to_string() || sent.parse::<f64>().is_ok_and(|sent| Some(sent) == number.as_f64());
                if !is_same {
                    return Err(mismatch(&name, "does not match the body"));
                }
            }
            // Not a kind that is repeated; the schema of the tool says what becomes of it.
            Some(Value::Array(_) | Value::Object(_)) => {}
        }
    }
    Ok(())
}

fn same(headers: &HeaderMap, name: &HeaderName, expected: &str) -> Result<(), RpcError> {
    match single(headers, name) {
        Some(value) if value == expected => Ok(()),
        Some(_) => Err(mismatch(name, "does not match the body")),
        None => Err(mismatch(name, "is missing, stands more than once or is not ASCII")),
    }
}

fn same_encoded(headers: &HeaderMap, name: &HeaderName, expected: &str) -> Result<(), RpcError> {
    if decoded(headers, name)? == expected { Ok(()) } else { Err(mismatch(name, "does not match the body")) }
}

fn decoded(headers: &HeaderMap, name: &HeaderName) -> Result<String, RpcError> {
    let value =
        single(headers, name).ok_or_else(|| mismatch(name, "is missing, stands more than once or is not ASCII"))?;
    let encoded = value.strip_prefix(ENCODED_BEGIN).and_then(|rest| rest.strip_suffix(ENCODED_END));
    match encoded {
        None => Ok(value.to_owned()),
        Some(encoded) => base64(encoded)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| mismatch(name, "is not valid base64 of UTF-8")),
    }
}

fn mismatch(name: &HeaderName, what: &str) -> RpcError {
    RpcError::new(codes::HEADER_MISMATCH, format!("header `{name}` {what}"))
}

/// Standard base64 with padding, and nothing else: two spellings of one value would let a check be passed.
fn base64(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut decoded = Vec::with_capacity(bytes.len() / 4 * 3);
    let (mut group, mut count) = (0_u32, 0);
    for byte in &bytes[..bytes.len() - padding] {
        group = group << 6 | u32::from(digit(*byte)?);
        count += 1;
        if count == 4 {
            decoded.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, count) = (0, 0);
        }
    }
    match (count, padding) {
        (0, 0) => {}
        // The bits that are left over have to be zero.
        (2, 2) if group & 0xf == 0 => decoded.push(u8::try_from(group >> 4).ok()?),
        (3, 1) if group & 0x3 == 0 => decoded.extend_from_slice(&(group >> 2).to_be_bytes()[2..]),
        _ => return None,
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn call(pairs: &[(&str, &str)], name: &str) -> Result<(), i64> {
        let mut all = vec![("MCP-Protocol-Version", "2026-07-28"), ("mcp-method", "tools/call")];
        all.extend(pairs);
        check(&headers(&all), "2026-07-28", "tools/call", Some(name)).map_err(|error| error.code)
    }

    #[test]
    fn headers_and_body_say_the_same() {
        // HT-07, HT-09, HT-12: a balancer that let `read` pass must not have let `delete` pass.
        assert_eq!(call(&[("Mcp-Name", "read")], "read"), Ok(()));
        assert_eq!(call(&[("Mcp-Name", "  read ")], "read"), Ok(()));
        assert_eq!(call(&[("Mcp-Name", "=?base64?cmVhZA==?=")], "read"), Ok(()));
        assert_eq!(call(&[("Mcp-Name", "=?base64?5LiW55WM?=")], "世界"), Ok(()));
        for bad in
            ["Read", "delete", "", "=?base64?cmVhZA?=", "=?base64?cmVhZB==?=", "=?BASE64?cmVhZA==?=", "=?base64?/w==?="]
        {
            assert_eq!(call(&[("Mcp-Name", bad)], "read"), Err(-32020), "{bad}");
        }
        assert_eq!(call(&[], "read"), Err(-32020));
        assert_eq!(call(&[("Mcp-Name", "read"), ("Mcp-Name", "read")], "read"), Err(-32020));
        let list = |pairs: &[(&str, &str)]| check(&headers(pairs), "2026-07-28", "tools/list", None);
        assert!(list(&[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")]).is_ok());
        assert!(list(&[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "Tools/list")]).is_err());
        assert!(list(&[("mcp-protocol-version", "2026-07-28")]).is_err());
        assert!(list(&[("mcp-method", "tools/list")]).is_err());
        assert!(list(&[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")]).is_err());
    }

    #[test]
    fn repeated_arguments_match_where_they_are_given() {
        let mirrored = |name: &str, path: &[&str]| Mirrored {
            name: name.to_owned(),
            path: path.iter().map(|key| (*key).to_owned()).collect(),
        };
        let all = [mirrored("Region", &["where", "region"]), mirrored("Count", &["n"]), mirrored("Dry", &["dry"])];
        let check = |pairs: &[(&str, &str)], arguments: Value| {
            let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
            check_mirrored(&headers(pairs), &all, &arguments).is_ok()
        };
        let arguments = json!({"where": {"region": "eu"}, "n": 42, "dry": true});
        assert!(check(
            &[("mcp-param-region", "eu"), ("mcp-param-count", "42.0"), ("mcp-param-dry", "true")],
            arguments.clone()
        ));
        assert!(check(&[], json!({"where": {}, "n": null})));
        assert!(check(&[("mcp-param-other", "x")], json!({})), "what is not known is left alone");
        for bad in [
            &[("mcp-param-region", "us"), ("mcp-param-count", "42"), ("mcp-param-dry", "true")][..],
            &[("mcp-param-region", "eu"), ("mcp-param-count", "43"), ("mcp-param-dry", "true")],
            &[("mcp-param-region", "eu"), ("mcp-param-count", "42"), ("mcp-param-dry", "True")],
            &[("mcp-param-region", "eu"), ("mcp-param-count", "42")],
        ] {
            assert!(!check(bad, arguments.clone()), "{bad:?}");
        }
        assert!(!check(&[("mcp-param-region", "eu")], json!({})));
        // Nothing gets past the comparison by being odd.
        let deep = RawValue::from_string(format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200))).unwrap();
        assert!(check_mirrored(&headers(&[]), &all, &deep).is_err());
        assert!(check_mirrored(&headers(&[]), &[], &deep).is_ok());
    }

    #[test]
    fn base64_has_one_spelling_for_each_value() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")] {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for bad in ["Zg", "Zg=", "Zh==", "Zm9=", "Zm9v=", "====", "Zg==Zg==", "Zm 9", "Zm9-", "Z===", "=Zg="] {
            assert_eq!(base64(bad), None, "{bad}");
        }
    }
}
