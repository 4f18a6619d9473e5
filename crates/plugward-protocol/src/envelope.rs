//! Messages as text, for transports that carry one at a time instead of lines.
//!
//! Owns the exact text, each without a line break: some transports end a message at one. Refuses to queue or to remember
//! anything; a byte stream has its [`Connection`](crate::Connection).

use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::message::RpcError;
use crate::wire;

/// The answer to a request that succeeded.
#[must_use]
pub fn result(id: &RequestId, result: &RawValue) -> String {
    in_one_line(wire::result(&id.to_string(), result.get()))
}

/// The answer to a request that failed; without an id when nobody knows which one it was.
#[must_use]
pub fn error(id: Option<&RequestId>, error: &RpcError) -> String {
    match id {
        Some(id) => in_one_line(wire::error(&id.to_string(), error)),
        // The id is left out and not `null`: newer revisions know no other way to say it.
        None => in_one_line(wire::error("null", error).replacen("\"id\":null,", "", 1)),
    }
}

/// A request, under a number of the sender's.
#[must_use]
pub fn request(id: u64, method: &str, params: Option<&RawValue>) -> String {
    in_one_line(wire::request(id, method, params))
}

/// A notification.
#[must_use]
pub fn notification(method: &str, params: Option<&RawValue>) -> String {
    in_one_line(wire::notification(method, params))
}

/// Several answers as one message, where the revision has such.
#[must_use]
pub fn batch(answers: &[String]) -> String {
    wire::batch(answers)
}

/// Raw values may carry line breaks between tokens; inside strings JSON does not allow them.
fn in_one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_line_breaks_and_errors_an_id_or_none() {
        let pretty = RawValue::from_string("{\n\r\"a\": \"x\\ny\"\n}".to_owned()).unwrap();
        assert_eq!(result(&1.into(), &pretty), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{  \"a\": \"x\\ny\" }}");
        assert_eq!(notification("m", None), r#"{"jsonrpc":"2.0","method":"m"}"#);
        let odd = RpcError::new(-32600, "\"id\":null,");
        assert_eq!(error(None, &odd), r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"\"id\":null,"}}"#);
        assert!(error(Some(&"x".into()), &odd).contains(r#""id":"x","#));
        assert_eq!(
            request(3, "m", Some(&pretty)),
            "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"m\",\"params\":{  \"a\": \"x\\ny\" }}"
        );
        assert_eq!(batch(&["1".to_owned(), "2".to_owned()]), "[1,2]");
    }
}
