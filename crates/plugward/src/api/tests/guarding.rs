//! Who is let in, and what every answer carries.

use axum::body::Body;
use axum::http::Request;

use super::Api;

/// B029: any page a person opens can send requests to this machine; only its `Host` and `Origin` give it away.
#[tokio::test]
async fn a_web_page_is_refused_on_every_path_before_its_token_and_body_matter() {
    let api = Api::new().await;
    let table: [(&str, Option<&str>, u16); 16] = [
        ("localhost:7000", None, 200),
        ("127.0.0.1:7000", Some("http://localhost:5173"), 200),
        ("[::1]:7000", None, 200),
        ("LocalHost", Some("https://127.0.0.1"), 200),
        ("127.0.0.1:7000", Some("https://evil.example"), 403),
        ("evil.example", None, 403),
        ("127.0.0.1:7000", Some("http://localhost.evil.example"), 403),
        ("127.0.0.1.evil.example:7000", None, 403),
        ("127.0.0.1:7000", Some("null"), 403),
        ("127.0.0.1:7000", Some(""), 403),
        ("127.0.0.1:7000", Some("file://"), 403),
        ("127.0.0.1:7000", Some("chrome-extension://localhost"), 403),
        ("127.0.0.1:7000", Some("http://localhost@evil.example"), 403),
        ("192.168.0.1:7000", None, 403),
        ("localhost.:7000", None, 403),
        ("", None, 403),
    ];
    for (host, origin, status) in table {
        for (method, path) in [("GET", "/api/plugins"), ("GET", "/healthz"), ("GET", "/openapi.json")] {
            let mut request =
                Request::builder().method(method).uri(path).header("host", host).header("authorization", api.bearer());
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let reply = api.send_request(request.body(Body::empty()).unwrap()).await;
            assert_eq!(reply.status, status, "{method} {path} from {origin:?} to `{host}`: {}", reply.text);
        }
    }
    // Refused for where it comes from, whatever else is wrong with it.
    for path in ["/api/plugins/install", "/api/nothing", "/", "/healthz"] {
        let request = Request::builder()
            .method("POST")
            .uri(path)
            .header("host", "127.0.0.1")
            .header("origin", "https://evil.example")
            .header("content-type", "text/plain")
            .body(Body::from("x".repeat(1024 * 1024)))
            .unwrap();
        let reply = api.send_request(request).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (403, "ORIGIN_NOT_ALLOWED"), "{path}");
    }
}

#[tokio::test]
async fn two_hosts_or_none_are_refused_and_a_whole_address_counts_as_one() {
    let api = Api::new().await;
    let request = |uri: &str, hosts: &[&str]| {
        let builder = Request::builder().uri(uri).header("authorization", api.bearer());
        hosts.iter().fold(builder, |builder, host| builder.header("host", *host)).body(Body::empty()).unwrap()
    };
    let table: [(&str, &[&str], u16); 5] = [
        ("/api/plugins", &[], 400),
        ("/api/plugins", &["127.0.0.1", "127.0.0.1"], 400),
        ("/api/plugins", &["127.0.0.1", "evil.example"], 400),
        ("http://evil.example/api/plugins", &["127.0.0.1"], 403),
        ("http://127.0.0.1/api/plugins", &["127.0.0.1"], 200),
    ];
    for (uri, hosts, status) in table {
        assert_eq!(api.send_request(request(uri, hosts)).await.status, status, "{uri} {hosts:?}");
    }
}

/// Another program, or another person, on the machine must not drive the host.
#[tokio::test]
async fn everything_but_two_paths_needs_the_token() {
    let api = Api::new().await;
    let good = api.bearer();
    let zeros = format!("Bearer {}", "0".repeat(64));
    let with_tail = format!("{good}0");
    let cut = good[..good.len() - 1].to_owned();
    let wrong: [&[&str]; 9] = [
        &[],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &[&zeros],
        &[&with_tail],
        &[&cut],
        &["Basic dXNlcjpwYXNz"],
        &[&good, &good],
    ];
    let paths = [
        ("GET", "/api/plugins"),
        ("POST", "/api/plugins/install"),
        ("DELETE", "/api/plugins/notes"),
        ("POST", "/api/tools/call"),
        ("GET", "/api/no-such-path"),
        ("GET", "/"),
        ("GET", "/healthz/"),
        ("GET", "//healthz"),
        ("OPTIONS", "/api/plugins"),
    ];
    for headers in wrong {
        for (method, path) in paths {
            let builder = Request::builder().method(method).uri(path).header("host", "localhost");
            let builder = headers.iter().fold(builder, |builder, value| builder.header("authorization", *value));
            let reply = api.send_request(builder.body(Body::empty()).unwrap()).await;
            assert_eq!((reply.status.as_u16(), reply.code().as_str()), (401, "UNAUTHORIZED"), "{path} {headers:?}");
            let challenge = reply.headers["www-authenticate"].to_str().unwrap();
            assert!(challenge.starts_with("Bearer"), "{challenge}");
            assert!(!reply.text.contains(api.token.reveal()), "an answer holds the token");
        }
    }
    // A token in the address would end in logs and histories; it is not looked for there.
    let path = format!("/api/plugins?token={}", api.token.reveal());
    let request = Request::builder().uri(path).header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(api.send_request(request).await.status, 401);
    // Positive control, and the two paths that tell nothing.
    assert_eq!(api.get("/api/plugins").await.status, 200);
    for path in ["/healthz", "/openapi.json"] {
        let request = Request::builder().uri(path).header("host", "localhost").body(Body::empty()).unwrap();
        assert_eq!(api.send_request(request).await.status, 200, "{path}");
    }
    assert_eq!(api.get("/healthz").await.json(), serde_json::json!({ "status": "ok" }));
}

#[tokio::test]
async fn every_answer_carries_the_same_headers_and_an_id_of_its_own() {
    let api = Api::new().await;
    api.install("notes", "[]").await;
    let mut ids = std::collections::HashSet::new();
    let replies = [
        (200, api.get("/api/plugins").await),
        (404, api.get("/api/plugins/none").await),
        (404, api.get("/api/nothing").await),
        (405, api.send("PATCH", "/api/plugins", "").await),
        (422, api.post("/api/plugins/install", "{").await),
        (204, api.send("DELETE", "/api/plugins/notes", "").await),
        (200, api.get("/openapi.json").await),
    ];
    for (status, reply) in replies {
        assert_eq!(reply.status, status, "{}", reply.text);
        assert_eq!(reply.headers["cache-control"], "no-store");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert!(ids.insert(reply.headers["x-request-id"].clone()), "an id was used twice");
        assert!(!reply.headers.contains_key("access-control-allow-origin"), "no page is ever let in");
        if status == 204 {
            assert_eq!(reply.text, "");
        } else {
            assert_eq!(reply.headers["content-type"], "application/json");
        }
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_envelope_too() {
    let api = Api::new().await;
    for path in ["/", "/api", "/api/", "/api/plugins/", "/api/plugins/a/b/c", "/metrics", "/api/../healthz/x"] {
        let reply = api.get(path).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "RESOURCE_NOT_FOUND"), "{path}");
    }
    for (method, path, allow) in
        [("POST", "/api/plugins", "GET,HEAD"), ("GET", "/api/plugins/install/", ""), ("PUT", "/api/tools/call", "POST")]
    {
        let reply = api.send(method, path, "").await;
        if allow.is_empty() {
            assert_eq!(reply.status, 404, "{path}");
        } else {
            assert_eq!((reply.status.as_u16(), reply.code().as_str()), (405, "METHOD_NOT_ALLOWED"), "{path}");
            assert_eq!(reply.headers["allow"], allow);
        }
    }
}
