//! How bodies, paths and queries are read: by rule, with the place of every mistake, and never repeated back.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Api, Reply};
use crate::api::payload::{MAX_CALL_BYTES, MAX_COMMAND_BYTES};

/// Stands for whatever a person may have pasted into the wrong place.
const SECRET: &str = "hunter2-do-not-repeat";

fn mistakes(reply: &Reply) -> Vec<(String, String)> {
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (422, "VALIDATION_ERROR"), "{}", reply.text);
    let body = reply.json();
    let errors = body["error"]["details"]["errors"].as_array().unwrap();
    let mistake = |error: &Value| {
        assert_eq!(error.as_object().unwrap().keys().collect::<Vec<_>>(), ["type", "loc", "msg"]);
        let loc: Vec<&str> = error["loc"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
        (error["type"].as_str().unwrap().to_owned(), loc.join("."))
    };
    errors.iter().map(mistake).collect()
}

#[tokio::test]
async fn each_mistake_in_a_body_is_told_with_its_kind_and_place_and_without_its_value() {
    let api = Api::new().await;
    api.install("notes", r#"["notes.read"]"#).await;
    let install = "/api/plugins/install";
    let approve = "/api/plugins/notes/approve";
    let permissions = "/api/plugins/notes/permissions";
    let call = "/api/tools/call";
    let long = SECRET.repeat(200);
    let table = [
        ("POST", install, "{}".to_owned(), "missing body.package_path"),
        ("POST", install, format!(r#"{{"package_path": {{"{SECRET}":1}}}}"#), "string_type body.package_path"),
        ("POST", install, r#"{"package_path": null}"#.to_owned(), "string_type body.package_path"),
        ("POST", install, r#"{"package_path": ""}"#.to_owned(), "string_too_short body.package_path"),
        ("POST", install, format!(r#"{{"package_path": "/{long}"}}"#), "string_too_long body.package_path"),
        ("POST", install, format!(r#"{{"package_path": "{SECRET}"}}"#), "path_type body.package_path"),
        ("POST", install, format!(r#"{{"package_path":"/x","extra":"{SECRET}"}}"#), "extra_forbidden body.extra"),
        ("POST", install, format!(r#"{{"package_path":"/x","a {SECRET}":1}}"#), "extra_forbidden body.(another key)"),
        (
            "POST",
            install,
            format!(r#"{{"package_path":"/x","package_path":"/{SECRET}"}}"#),
            "duplicate_key body.package_path",
        ),
        ("POST", install, format!(r#"["{SECRET}"]"#), "object_type body"),
        ("POST", install, format!(r#""{SECRET}""#), "object_type body"),
        ("POST", install, "null".to_owned(), "object_type body"),
        ("POST", install, format!(r#"{{"package_path": {SECRET}}}"#), "json_invalid body"),
        ("POST", install, format!(r#"{{"package_path": "/{SECRET}"#), "json_invalid body"),
        ("POST", install, format!(r#"{{"package_path":"/x"}} {SECRET}"#), "json_invalid body"),
        ("POST", install, "{\"package_path\": NaN}".to_owned(), "json_invalid body"),
        ("POST", install, "\u{feff}{}".to_owned(), "json_invalid body"),
        ("POST", approve, "{}".to_owned(), "missing body.digest"),
        ("POST", approve, format!(r#"{{"digest":"{SECRET}"}}"#), "digest_format body.digest"),
        ("POST", approve, r#"{"digest":true}"#.to_owned(), "string_type body.digest"),
        ("PUT", permissions, "{}".to_owned(), "missing body.permissions"),
        ("PUT", permissions, format!(r#"{{"permissions":"{SECRET}"}}"#), "list_type body.permissions"),
        ("PUT", permissions, format!(r#"{{"permissions":["a",{{"{SECRET}":1}}]}}"#), "string_type body.permissions.1"),
        (
            "PUT",
            permissions,
            format!(r#"{{"permissions":[{}"a"]}}"#, r#""a","#.repeat(256)),
            "too_long body.permissions",
        ),
        ("POST", call, r#"{"arguments":{}}"#.to_owned(), "missing body.tool"),
        ("POST", call, format!(r#"{{"tool":"a.b","arguments":["{SECRET}"]}}"#), "object_type body.arguments"),
        ("POST", call, format!(r#"{{"tool":"a.b","arguments":"{SECRET}"}}"#), "object_type body.arguments"),
        ("POST", call, r#"{"tool":"a.b","timeout_ms":0}"#.to_owned(), "int_range body.timeout_ms"),
        ("POST", call, r#"{"tool":"a.b","timeout_ms":1.5}"#.to_owned(), "int_range body.timeout_ms"),
        ("POST", call, r#"{"tool":"a.b","timeout_ms":"5"}"#.to_owned(), "int_range body.timeout_ms"),
        ("POST", call, r#"{"tool":"a.b","timeout_ms":-1}"#.to_owned(), "int_range body.timeout_ms"),
        ("POST", call, r#"{"tool":"a.b","timeout_ms":1e30}"#.to_owned(), "int_range body.timeout_ms"),
        ("POST", "/api/permission-requests/x", format!(r#"{{"answer":"{SECRET}"}}"#), "literal_error body.answer"),
        ("POST", "/api/permission-requests/x", r#"{"answer":"ALLOW_ONCE"}"#.to_owned(), "literal_error body.answer"),
        (
            "POST",
            "/api/plugins/notes/enable",
            format!(r#"{{"{SECRET}":1}}"#),
            &format!("extra_forbidden body.{SECRET}"),
        ),
        ("POST", "/api/plugins/notes/disable", "[]".to_owned(), "object_type body"),
    ];
    for (method, path, body, expected) in table {
        let reply = api.send(method, path, body.as_str()).await;
        let told: Vec<String> = mistakes(&reply).iter().map(|(kind, loc)| format!("{kind} {loc}")).collect();
        assert_eq!(told, [expected], "{method} {path} {body}");
        // A key that is a plain word is a place; values never are.
        assert!(expected.contains(SECRET) || !reply.text.contains(SECRET), "{}", reply.text);
    }
    let all = api.post(call, r#"{"arguments":7,"timeout_ms":"x","tool_call_id":1,"bogus":2}"#).await;
    let places: Vec<String> = mistakes(&all).into_iter().map(|(_, loc)| loc).collect();
    assert_eq!(places, ["body.tool", "body.arguments", "body.timeout_ms", "body.tool_call_id", "body.bogus"]);
    // A body of mistakes only does not make an answer of its size.
    let many: String = (0..5000).map(|index| format!(r#""k{index}":1,"#)).collect();
    let reply = api.post(call, &format!("{{{many}\"tool\":\"a.b\"}}")).await;
    assert_eq!(mistakes(&reply).len(), 20);
}

#[tokio::test]
async fn bodies_that_are_not_text_are_invalid_json() {
    let api = Api::new().await;
    for body in [&b"\xff\xfe"[..], b"{\"package_path\": \"\xff\"}", b"\0", b"{\"\xed\xa0\x80\":1}"] {
        let reply = api.send("POST", "/api/plugins/install", body).await;
        let (kind, _) = mistakes(&reply).remove(0);
        assert!(kind == "json_invalid" || kind == "object_type", "{kind}");
    }
}

#[tokio::test]
async fn only_plain_json_is_read() {
    let api = Api::new().await;
    let send = async |headers: &[(&str, &str)]| {
        let builder = Request::builder().method("POST").uri("/api/plugins/install").header("host", "localhost");
        let builder = builder.header("authorization", api.bearer());
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        api.send_request(builder.body(Body::from("{}")).unwrap()).await
    };
    let refused: [&[(&str, &str)]; 7] = [
        &[],
        &[("content-type", "")],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "application/jsonp")],
        &[("content-type", "application/json"), ("content-type", "text/plain")],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
    ];
    for headers in refused {
        let reply = send(headers).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (415, "UNSUPPORTED_MEDIA_TYPE"), "{headers:?}");
    }
    for accepted in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(send(&[("content-type", accepted)]).await.status, 422, "{accepted}");
    }
    // Nothing to read, nothing to declare.
    assert_eq!(api.post("/api/plugins/none/enable", "").await.status, 404);
    assert_eq!(api.post("/api/plugins/none/enable", "{}").await.status, 404);
}

#[tokio::test]
async fn bodies_are_read_up_to_their_limit_and_no_further() {
    let api = Api::new().await;
    let of = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    for (path, limit) in [("/api/plugins/install", MAX_COMMAND_BYTES), ("/api/tools/call", MAX_CALL_BYTES)] {
        assert_eq!(api.post(path, &of(limit)).await.status, 422, "{path}");
        let reply = api.post(path, &of(limit + 1)).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (413, "REQUEST_BODY_TOO_LARGE"), "{path}");
        assert!(reply.text.contains(&limit.to_string()));
    }
    assert_eq!(api.post("/api/plugins/none/enable", &of(MAX_COMMAND_BYTES + 1)).await.status, 413);
}

/// What is in a path is looked up, never opened; whatever it is, the answer is a plain "not found".
#[tokio::test]
async fn hostile_ids_find_nothing() {
    let api = Api::new().await;
    api.install("notes", "[]").await;
    let long = "a".repeat(8000);
    let ids = [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "%2Fetc%2Fpasswd",
        "%00",
        "notes%00",
        "a%0d%0ax-injected:%201",
        "%1b%5b31m",
        "NOTES",
        "notes%20",
        "%E2%80%AE",
        "-",
        "'%20or%201=1",
        long.as_str(),
    ];
    for id in ids {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/host"),
            ("GET", "/review"),
            ("POST", "/enable"),
            ("POST", "/disable"),
            ("POST", "/host/restart"),
        ] {
            let reply = api.send(method, &format!("/api/plugins/{id}{rest}"), "").await;
            assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "PLUGIN_NOT_FOUND"), "{id}{rest}");
            assert!(reply.text.len() < 2000, "{}", reply.text);
            let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }
    let reply = api.get("/api/plugins/%ff%fe").await;
    assert_eq!(mistakes(&reply), [("string_unicode".to_owned(), "path".to_owned())]);
    // Positive control: the plugin beside all these is there and can be named in any spelling of its path.
    assert_eq!(api.get("/api/plugins/%6eotes").await.status, 200);
}

#[tokio::test]
async fn queries_are_read_by_the_same_rules() {
    let api = Api::new().await;
    let table = [
        ("limit=0", "int_range query.limit"),
        ("limit=501", "int_range query.limit"),
        ("limit=%2B5", "int_range query.limit"),
        ("limit=abc", "int_range query.limit"),
        ("before=-1", "int_range query.before"),
        ("before=99999999999999999999", "int_range query.before"),
        ("since=yesterday", "datetime_type query.since"),
        ("since=1969-01-01T00:00:00Z", "datetime_type query.since"),
        ("plugin_id=", "string_too_short query.plugin_id"),
        ("limit=1&limit=2", "duplicate_key query.limit"),
        ("order=asc", "extra_forbidden query.order"),
    ];
    for (query, expected) in table {
        let reply = api.get(&format!("/api/traces?{query}")).await;
        let told: Vec<String> = mistakes(&reply).iter().map(|(kind, loc)| format!("{kind} {loc}")).collect();
        assert_eq!(told, [expected], "{query}");
    }
    for query in ["", "?", "?limit=500&before=0&plugin_id=notes&tool=a.b&outcome=ok&since=2026-01-01T00:00:00Z"] {
        let reply = api.get(&format!("/api/traces{query}")).await;
        assert_eq!(reply.json(), json!({ "items": [], "next_before": null, "has_more": false }), "{query}");
    }
}
