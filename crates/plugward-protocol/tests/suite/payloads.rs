//! The MCP payloads a host looks into.

use plugward_protocol::mcp::{
    CallParamsIn, CallParamsOut, CancelledParams, ListToolsPage, PayloadFault, list_cursor, list_params, progress_for,
    progress_token,
};
use plugward_protocol::{ConnectionConfig, RequestId};

use crate::support::{Driven, raw};

#[test]
fn a_page_of_tools_keeps_its_items_and_its_cursor() {
    // Requirement 8, case B068: `""` is a cursor, null and absent are the end; items are not judged here.
    let page = |text: &str| ListToolsPage::parse(&raw(text));
    let found = page(r#"{"tools":[{"name":"a","x":1.0},7,null],"nextCursor":""}"#).unwrap();
    assert_eq!(found.tools.iter().map(|tool| tool.get()).collect::<Vec<_>>(), [r#"{"name":"a","x":1.0}"#, "7", "null"]);
    assert_eq!(found.next_cursor.as_deref(), Some(""));
    assert_eq!(page(r#"{"tools":[],"nextCursor":null}"#).unwrap().next_cursor, None);
    assert_eq!(page(r#"{"tools":[]}"#).unwrap().next_cursor, None);
    for (text, message) in [
        ("[]", "tool list is not an object"),
        ("{}", "tool list has no member `tools`"),
        (r#"{"tools":{}}"#, "`tools` of tool list is not an array"),
        (r#"{"tools":[],"tools":[1]}"#, "tool list has the member `tools` more than once"),
        (r#"{"tools":[],"nextCursor":3}"#, "`nextCursor` of tool list is not a string"),
    ] {
        assert_eq!(page(text).unwrap_err().to_string(), message);
    }
    assert!(list_params(None).is_none());
    assert_eq!(list_params(Some("a\"b")).unwrap().get(), r#"{"cursor":"a\"b"}"#);
    assert_eq!(list_cursor(None), Ok(None));
    assert_eq!(list_cursor(Some(&raw(r#"{"cursor":null}"#))), Ok(None));
    assert_eq!(list_cursor(Some(&raw(r#"{"cursor":""}"#))), Ok(Some(String::new())));
    assert!(list_cursor(Some(&raw(r#"{"cursor":1}"#))).is_err());
    assert!(list_cursor(Some(&raw("[1]"))).is_err());
}

#[test]
fn call_params_out_keep_the_callers_meta_and_replace_its_token() {
    let mut driven = Driven::ready_client(ConnectionConfig::client(), "{}");
    let id = driven.connection.reserve_id();
    let (arguments, meta) = (raw(r#"{"n":9007199254740993}"#), raw(r#"{"progressToken":"theirs","trace":1.0}"#));
    let call = CallParamsOut { name: "a\"b", arguments: Some(&arguments), meta: Some(&meta), progress: Some(id) };
    assert_eq!(
        call.to_raw().unwrap().get(),
        format!(
            r#"{{"name":"a\"b","arguments":{{"n":9007199254740993}},"_meta":{{"trace":1.0,"progressToken":{id}}}}}"#
        )
    );
    let bare = CallParamsOut { name: "t", arguments: None, meta: None, progress: None };
    assert_eq!(bare.to_raw().unwrap().get(), r#"{"name":"t"}"#);
    // Without progress the caller's token must not leak to the server.
    let silent = CallParamsOut { meta: Some(&meta), ..bare };
    assert_eq!(silent.to_raw().unwrap().get(), r#"{"name":"t","_meta":{"trace":1.0}}"#);
    let list = raw("[1]");
    assert!(CallParamsOut { arguments: Some(&list), ..bare }.to_raw().is_err());
    assert!(CallParamsOut { meta: Some(&list), ..bare }.to_raw().is_err());
}

#[test]
fn call_params_in_are_read_or_refused() {
    // Case B075: -32602 with a text that says what is wrong.
    let parse = |text: &str| CallParamsIn::parse(Some(&raw(text)));
    let call = parse(r#"{"name":"t","arguments":{"a":1.0},"_meta":{"progressToken":7},"x":1}"#).unwrap();
    assert_eq!((call.name.as_str(), call.arguments.get()), ("t", r#"{"a":1.0}"#));
    assert_eq!(call.progress_token, Some(RequestId::from(7)));
    for text in [r#"{"name":"t"}"#, r#"{"name":"t","arguments":null,"_meta":null}"#] {
        let call = parse(text).unwrap();
        assert_eq!((call.arguments.get(), call.meta.is_none(), call.progress_token), ("{}", true, None));
    }
    for (text, message) in [
        ("[1]", "params is not an object"),
        (r#"{"arguments":{}}"#, "params has no member `name`"),
        (r#"{"name":1}"#, "`name` of params is not a string"),
        (r#"{"name":"t","arguments":[]}"#, "`arguments` of params is not an object"),
        (r#"{"name":"t","_meta":"x"}"#, "`_meta` of params is not an object"),
        (r#"{"name":"safe","name":"evil"}"#, "params has the member `name` more than once"),
        (r#"{"name":"t","arguments":{},"arguments":{"a":1}}"#, "params has the member `arguments` more than once"),
        (r#"{"name":"t","_meta":{"progressToken":1.5}}"#, "`progressToken` of _meta is not an integer or a string"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
    assert_eq!(CallParamsIn::parse(None).unwrap_err(), PayloadFault::NotAnObject { what: "params" });
}

#[test]
fn notifications_name_their_request() {
    let cancelled = CancelledParams::parse(Some(&raw(r#"{"requestId":"a","reason":7}"#))).unwrap();
    assert_eq!((cancelled.request_id, cancelled.reason), (RequestId::from("a"), None));
    assert!(CancelledParams::parse(Some(&raw(r#"{"requestId":true}"#))).is_err());
    assert!(CancelledParams::parse(None).is_err());
    let progress = raw(r#"{"progressToken":12,"progress":0.50,"total":1e3,"message":"x"}"#);
    assert_eq!(progress_token(Some(&progress)), Ok(RequestId::from(12)));
    assert!(progress_token(Some(&raw(r#"{"progressToken":null}"#))).is_err());
    assert_eq!(
        progress_for(&progress, &RequestId::from("theirs")).unwrap().get(),
        r#"{"progressToken":"theirs","progress":0.50,"total":1e3,"message":"x"}"#
    );
}
