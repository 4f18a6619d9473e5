//! Servers elsewhere as plugins: what a person agrees to, what is sent, and what becomes of a call when the other side, or
//! the way there, fails.

#![allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use plugward_host::{CallReport, HostError, PluginView};
use serde_json::{Value, json};

use crate::support::http_server::{Heard, HttpServer, Reply, event};
use crate::support::{Package, Settings, TestHost, eventually};

/// Value of the header that only the server may see.
const KEY: &str = "sk-remote-0123456789";

fn manifest(url: &str, lines: &[&str]) -> String {
    let mut yaml = format!(
        "id: far\nname: Far\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: streamable_http\n  url: {url}\n  headers: \
         {{Authorization: 'Bearer ${{FAR_TOKEN}}'}}\n"
    );
    for line in lines {
        yaml.push_str(&format!("  {line}\n"));
    }
    yaml
}

async fn host() -> TestHost {
    let mut settings = Settings::default();
    settings.host_environment.push(("FAR_TOKEN".to_owned(), KEY.to_owned()));
    TestHost::with(settings).await
}

async fn try_run(host: &TestHost, url: &str, lines: &[&str]) -> Result<PluginView, HostError> {
    host.install_package(&Package::with_manifest(&manifest(url, lines))).await;
    host.host.enable("far").await
}

async fn run(host: &TestHost, server: &HttpServer, lines: &[&str]) -> PluginView {
    try_run(host, &server.url(), lines).await.unwrap()
}

fn result(heard: &Heard, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": heard.message["id"], "result": result})
}

fn text(heard: &Heard, text: &str) -> Value {
    result(heard, json!({"content": [{"type": "text", "text": text}]}))
}

fn tools() -> Value {
    json!({"tools": [{"name": "echo", "description": "Echo", "inputSchema": {"type": "object"}}]})
}

/// What a server with sessions says to everything but calls; `None` for those.
fn legacy(heard: &Heard, session: &str) -> Option<Reply> {
    let initialized = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "far", "version": "7"}});
    Some(match (heard.method.as_str(), heard.asks()) {
        ("GET", _) => Reply::status(405).with("Allow", "POST"),
        ("DELETE", _) => Reply::status(200),
        (_, "server/discover") => {
            let error = json!({"code": -32000, "message": "Bad Request: Server not initialized"});
            Reply::json(400, &json!({"jsonrpc": "2.0", "id": null, "error": error}))
        }
        (_, "initialize") => Reply::json(200, &result(heard, initialized)).with("Mcp-Session-Id", session),
        (_, "tools/list") => Reply::json(200, &result(heard, tools())),
        (_, "tools/call") => return None,
        // A notification or an answer of ours.
        _ => Reply::status(202),
    })
}

fn modern(heard: &Heard) -> Option<Reply> {
    let complete = |mut value: Value| {
        value["resultType"] = json!("complete");
        value["ttlMs"] = json!(0);
        value["cacheScope"] = json!("private");
        Reply::json(200, &result(heard, value))
    };
    let tools = json!({"tools": [
        {"name": "echo", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"}}}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "object", "x-mcp-header": "A"}}}},
    ]});
    match heard.asks() {
        "server/discover" => {
            Some(complete(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})))
        }
        "tools/list" => Some(complete(tools)),
        "tools/call" => None,
        _ => Some(Reply::status(404)),
    }
}

fn first_text(report: CallReport) -> String {
    let output = report.outcome.unwrap().output();
    output["content"][0]["text"].as_str().unwrap().to_owned()
}

fn failure(report: CallReport) -> String {
    report.outcome.unwrap_err().message("far.echo")
}

// B028, LG-06: what is sent to a server with sessions, from the review to the end of the session.
#[tokio::test]
async fn a_server_with_sessions_is_reviewed_called_and_let_go() {
    let server =
        HttpServer::start(|heard| legacy(heard, "s-1").unwrap_or_else(|| Reply::json(200, &text(heard, "hi"))));
    let host = host().await;
    host.host.install(Package::with_manifest(&manifest(&server.url(), &[])).path(), None).await.unwrap();
    let review = host.host.review("far").await.unwrap();
    assert_eq!((review.runs, review.argv.as_slice()), ("remote", [server.url()].as_slice()));
    assert_eq!(review.environment, [("Authorization".to_owned(), "***".to_owned())]);
    assert!(review.isolation.contains("nothing of it runs on this machine"), "{}", review.isolation);
    assert!(review.canonical.contains("Bearer host:FAR_TOKEN") && !review.canonical.contains(KEY));
    assert_eq!(server.heard().len(), 0, "a review must not call anybody");
    host.approve("far").await;
    let view = host.host.enable("far").await.unwrap();
    let place = format!("net:{}", server.address);
    assert_eq!((view.granted_permissions, view.enforcement.is_none()), (vec![place], true));
    assert!(view.detail.contains("runs elsewhere"), "{}", view.detail);
    assert_eq!(first_text(host.call("far.echo", json!({"a": 1})).await), "hi");
    let call = server.asked("tools/call").remove(0);
    for (name, value) in [
        ("mcp-session-id", "s-1"),
        ("mcp-protocol-version", "2025-11-25"),
        ("authorization", &format!("Bearer {KEY}")),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(call.header(name), value, "{name}");
    }
    assert_eq!(call.message["params"]["arguments"], json!({"a": 1}));
    assert_eq!(server.asked("initialize")[0].header("mcp-session-id"), "");
    assert_eq!(server.asked("notifications/initialized").len(), 1);
    // A server without a stream of notices is asked for one once.
    eventually("the stream is asked for", || (!server.of("GET").is_empty()).then_some(())).await;
    host.host.disable("far").await.unwrap();
    assert_eq!(server.of("DELETE")[0].header("mcp-session-id"), "s-1");
    assert_eq!(server.of("GET").len(), 1);
}

// Invariant 8: another place, or another header, is another plugin to agree to; a new token is not.
#[tokio::test]
async fn what_is_sent_where_is_what_was_agreed_to() {
    let server =
        HttpServer::start(|heard| legacy(heard, "s-1").unwrap_or_else(|| Reply::json(200, &text(heard, "hi"))));
    let host = host().await;
    run(&host, &server, &[]).await;
    let home = host.close().await;
    let mut settings = Settings::default();
    settings.host_environment.push(("FAR_TOKEN".to_owned(), "sk-another-9876543210".to_owned()));
    let host = TestHost::at(home, settings).await;
    assert!(host.host.review("far").await.unwrap().approved, "a new token needs no new approval");
    host.host.remove("far").await.unwrap();
    let other = format!("{}?x=1", server.url());
    host.host.install(Package::with_manifest(&manifest(&other, &[])).path(), None).await.unwrap();
    let heard = server.heard().len();
    let error = host.host.enable("far").await.unwrap_err();
    assert!(error.message.contains("nobody granted") || error.message.contains("not approved"), "{error}");
    assert_eq!(server.heard().len(), heard, "nobody may be called before a person agreed");
}

#[tokio::test]
async fn an_answer_may_come_as_events_with_progress_and_pings_between() {
    let server = HttpServer::start(|heard| {
        legacy(heard, "s-1").unwrap_or_else(|| {
            let token = &heard.message["params"]["_meta"]["progressToken"];
            let progress = json!({"progressToken": token, "progress": 1});
            let events = [
                ": hello\n\n".to_owned(),
                event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})),
                event(&json!({"jsonrpc": "2.0", "id": "p-1", "method": "ping"})),
                event(&json!({"jsonrpc": "2.0", "id": "p-2", "method": "sampling/createMessage", "params": {}})),
                event(&text(heard, "done")),
            ];
            Reply::events(&events)
        })
    });
    let host = host().await;
    run(&host, &server, &[]).await;
    let (sender, mut progress) = tokio::sync::mpsc::channel(4);
    let mut request = crate::support::request("far.echo", json!({}));
    request.progress = Some(sender);
    assert_eq!(first_text(host.host.call(request).await), "done");
    let note: Value = serde_json::from_str(progress.recv().await.unwrap().get()).unwrap();
    assert_eq!(note["progress"], 1);
    // LG-03: a ping is answered; what was never offered is refused (B038).
    let answers = eventually("both requests are answered", || {
        let answers: Vec<Value> = server.heard().into_iter().map(|heard| heard.message).collect();
        let of = |id: &str| answers.iter().find(|answer| answer["id"] == id && answer["method"].is_null()).cloned();
        Some((of("p-1")?, of("p-2")?))
    });
    let (pong, refusal) = answers.await;
    assert_eq!(pong["result"], json!({}));
    assert_eq!(refusal["error"]["code"], -32601);
}

// B008: a server that forgot the session is greeted once more, and the call goes through, once.
#[tokio::test]
async fn a_lost_session_is_begun_anew_once_for_all_who_lost_it() {
    let current = Arc::new(Mutex::new(1u32));
    let (known, greeted) = (Arc::clone(&current), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&greeted);
    let calls = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&calls);
    let server = HttpServer::start(move |heard| {
        let current = *known.lock().unwrap();
        if heard.asks() == "initialize" {
            counted.fetch_add(1, Ordering::Relaxed);
        } else if heard.method == "POST"
            && !heard.header("mcp-session-id").is_empty()
            && heard.header("mcp-session-id") != format!("s-{current}")
        {
            return Reply::status(404);
        }
        legacy(heard, &format!("s-{current}")).unwrap_or_else(|| {
            done.fetch_add(1, Ordering::Relaxed);
            Reply::json(200, &text(heard, "ok"))
        })
    });
    let host = host().await;
    run(&host, &server, &[]).await;
    *current.lock().unwrap() = 2;
    let calls_made = futures(&host, 8).await;
    assert!(calls_made.iter().all(|text| text == "ok"), "{calls_made:?}");
    assert_eq!((greeted.load(Ordering::Relaxed), calls.load(Ordering::Relaxed)), (2, 8));
    assert_eq!(host.host.plugin("far").await.unwrap().restarts, 0);
}

/// The texts of calls made at the same time.
async fn futures(host: &TestHost, count: usize) -> Vec<String> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let host = host.host.clone();
        tasks.spawn(async move { host.call(crate::support::request("far.echo", json!({}))).await });
    }
    tasks.join_all().await.into_iter().map(first_text).collect()
}

// LG-06: a stream that ended early goes on where it ended, after the pause the server asked for.
#[tokio::test]
async fn a_stream_that_breaks_off_is_resumed_where_it_ended() {
    let asked = Arc::new(Mutex::new((None::<Value>, None::<Instant>)));
    let shared = Arc::clone(&asked);
    let server = HttpServer::start(move |heard| {
        if heard.method == "GET" && !heard.header("last-event-id").is_empty() {
            let (id, ended) = shared.lock().unwrap().clone();
            let waited = ended.unwrap().elapsed() >= Duration::from_millis(300);
            let answer = json!({"jsonrpc": "2.0", "id": id,
                "result": {"content": [{"type": "text", "text": format!("{} {waited}", heard.header("last-event-id"))}]}});
            return Reply::events(&[event(&answer)]);
        }
        legacy(heard, "s-1").unwrap_or_else(|| {
            *shared.lock().unwrap() = (Some(heard.message["id"].clone()), Some(Instant::now()));
            Reply::events(&["id: e-9\nretry: 300\ndata:\n\n".to_owned()])
        })
    });
    let host = host().await;
    run(&host, &server, &[]).await;
    assert_eq!(first_text(host.call("far.echo", json!({})).await), "e-9 true");
    assert_eq!(server.asked("tools/call").len(), 1);
}

// HT-03, HT-07, HT-09 to HT-12: what each request of the stateless revision says in its headers.
#[tokio::test]
async fn a_server_without_sessions_is_told_everything_with_each_request() {
    let server =
        HttpServer::start(|heard| modern(heard).unwrap_or_else(|| Reply::events(&[event(&text(heard, "hi"))])));
    let host = host().await;
    run(&host, &server, &[]).await;
    // HT-10: a tool whose annotation breaks a rule is left out.
    assert_eq!(host.tool_names("far"), ["echo"]);
    assert_eq!(first_text(host.call("far.echo", json!({"region": "Zürich"})).await), "hi");
    let call = server.asked("tools/call").remove(0);
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo"),
        ("mcp-param-region", "=?base64?WsO8cmljaA==?="),
        ("mcp-session-id", ""),
    ] {
        assert_eq!(call.header(name), value, "{name}");
    }
    let meta = &call.message["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "plugward");
    assert_eq!((server.asked("initialize").len(), server.of("GET").len()), (0, 0));
    host.host.disable("far").await.unwrap();
    assert_eq!(server.of("DELETE").len(), 0);
}

// HT-14: what changes nothing is asked again with another id; a tool is never run twice.
#[tokio::test]
async fn a_broken_stream_repeats_a_list_and_no_call() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let server = HttpServer::start(move |heard| {
        if heard.asks() == "tools/list" && counted.fetch_add(1, Ordering::Relaxed) == 0 {
            return Reply::events(&[": begun\n\n".to_owned()]);
        }
        modern(heard).unwrap_or_else(|| Reply::events(&[": begun\n\n".to_owned()]))
    });
    let host = host().await;
    run(&host, &server, &[]).await;
    let ids: Vec<Value> = server.asked("tools/list").iter().map(|heard| heard.message["id"].clone()).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    let text = failure(host.call("far.echo", json!({})).await);
    assert!(text.contains("whether it acted on the request, nobody here can tell"), "{text}");
    assert_eq!(server.asked("tools/call").len(), 1);
}

// SSRF: a redirect is where nobody granted anything.
#[tokio::test]
async fn a_redirect_is_not_followed_and_told() {
    let target = HttpServer::start(|_| Reply::status(200));
    let location = target.url();
    let server = HttpServer::start(move |_| Reply::status(307).with("Location", location.clone()));
    let host = host().await;
    let error = try_run(&host, &server.url(), &[]).await.unwrap_err();
    assert!(error.message.contains("redirects (status 307)"), "{error}");
    assert!(error.message.contains(&target.address.to_string()), "{error}");
    assert_eq!(target.heard().len(), 0);
    // It would be the same the next time: nobody tries again unasked.
    let view = host.host.plugin("far").await.unwrap();
    assert!(!view.detail.contains("starting again"), "{}", view.detail);
}

// B046: a person is told what it takes, and the key that was refused is told nowhere.
#[tokio::test]
async fn a_server_that_wants_authorization_says_what_for() {
    let challenge = "Bearer resource_metadata=\"https://far.example.test/.well-known/oauth-protected-resource\"";
    let server = HttpServer::start(move |_| Reply::status(401).with("WWW-Authenticate", challenge));
    let host = host().await;
    let error = try_run(&host, &server.url(), &[]).await.unwrap_err();
    assert!(error.message.contains("needs authorization (status 401)"), "{error}");
    assert!(error.message.contains("https://far.example.test/.well-known/oauth-protected-resource"), "{error}");
    let view = host.host.plugin("far").await.unwrap();
    assert!(!view.detail.contains("starting again"), "{}", view.detail);
    assert!(!format!("{error} {view:?}").contains(KEY));
}

// The first HTTP transport: one stream for everything, which names where messages go.
#[tokio::test]
async fn a_server_of_the_first_transport_is_found_out_and_spoken_to() {
    let stream: Arc<Mutex<Option<mpsc::SyncSender<String>>>> = Arc::default();
    let opened = Arc::clone(&stream);
    let server = HttpServer::start(move |heard| match (heard.method.as_str(), heard.path.as_str()) {
        ("GET", "/mcp") => {
            let (sender, events) = mpsc::sync_channel(16);
            sender.send("event: endpoint\ndata: /messages?session=4\n\n".to_owned()).unwrap();
            *opened.lock().unwrap() = Some(sender);
            Reply::Events(Vec::new(), events)
        }
        ("POST", "/messages?session=4") => {
            let answer = match heard.asks() {
                "initialize" => result(
                    heard,
                    json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                        "serverInfo": {"name": "old", "version": "1"}}),
                ),
                "tools/list" => result(heard, tools()),
                "tools/call" => text(heard, "from the stream"),
                _ => return Reply::status(202),
            };
            opened.lock().unwrap().as_ref().unwrap().send(event(&answer)).unwrap();
            Reply::status(202)
        }
        _ => Reply::status(404),
    });
    let host = host().await;
    let view = run(&host, &server, &[]).await;
    assert_eq!(view.error, None);
    assert_eq!(first_text(host.call("far.echo", json!({})).await), "from the stream");
    // The end of its stream is its end, and it is begun again.
    drop(stream.lock().unwrap().take());
    eventually("a second stream", || (server.of("GET").len() >= 2).then_some(())).await;
    let host = &host;
    eventually("it is ready again", || (host.tool_names("far") == ["echo"]).then_some(())).await;
    assert_eq!(first_text(host.call("far.echo", json!({})).await), "from the stream");
}

#[tokio::test]
async fn messages_are_not_sent_to_another_host_than_was_approved() {
    let other = HttpServer::start(|_| Reply::status(202));
    let elsewhere = other.url();
    let server = HttpServer::start(move |heard| match heard.method.as_str() {
        "GET" => Reply::events(&[format!("event: endpoint\ndata: {elsewhere}\n\n")]),
        _ => Reply::status(404),
    });
    let host = host().await;
    let error = try_run(&host, &server.url(), &[]).await.unwrap_err();
    assert!(error.message.contains("it wants messages at another place"), "{error}");
    assert_eq!(other.heard().len(), 0);
}

// Requirement 57: a server that cannot be reached is looked for again, with pauses, until it is there.
#[tokio::test]
async fn a_server_that_went_away_is_found_again() {
    let answer = |heard: &Heard| legacy(heard, "s-1").unwrap_or_else(|| Reply::json(200, &text(heard, "back")));
    let server = HttpServer::start(answer);
    let address = server.address;
    let host = host().await;
    run(&host, &server, &[]).await;
    server.stop();
    let host = &host;
    // The first may go by a connection that was still open.
    for _ in 0..4 {
        let text = failure(host.call("far.echo", json!({})).await);
        assert!(!text.contains("back"), "{text}");
    }
    eventually("its tools are withdrawn", || host.tool_names("far").is_empty().then_some(())).await;
    let error = host.host.plugin("far").await.unwrap().error.unwrap();
    assert!(error.contains("cannot be reached"), "{error}");
    let _server = HttpServer::on(TcpListener::bind(address).unwrap(), answer);
    eventually("it is ready", || (host.tool_names("far") == ["echo"]).then_some(())).await;
    assert_eq!(first_text(host.call("far.echo", json!({})).await), "back");
}

// A slow server delays its own calls and nobody else's; what nobody waits for is taken back at the server.
#[tokio::test]
async fn a_call_that_takes_too_long_ends_and_is_taken_back() {
    let held: Mutex<Vec<mpsc::SyncSender<String>>> = Mutex::default();
    let server = HttpServer::start(move |heard| {
        legacy(heard, "s-1").unwrap_or_else(|| {
            if heard.message["params"]["arguments"]["quick"] == true {
                return Reply::json(200, &text(heard, "quick"));
            }
            let (sender, events) = mpsc::sync_channel(16);
            held.lock().unwrap().push(sender);
            Reply::Events(Vec::new(), events)
        })
    });
    let host = host().await;
    run(&host, &server, &["tool_timeout_seconds: 1"]).await;
    let slow = host.call("far.echo", json!({}));
    let quick = async { first_text(host.call("far.echo", json!({"quick": true})).await) };
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!(quick, "quick");
    assert!(failure(slow).contains("1"), "the limit is told");
    let taken_back = eventually("the server is told", || server.asked("notifications/cancelled").pop()).await;
    let call =
        server.asked("tools/call").into_iter().find(|heard| heard.message["params"]["arguments"]["quick"].is_null());
    assert_eq!(taken_back.message["params"]["requestId"], call.unwrap().message["id"]);
}

// Invariant 7: memory is bounded whatever a server sends.
#[tokio::test]
async fn an_answer_larger_than_a_message_may_be_is_a_failed_call_and_no_more() {
    let server = HttpServer::start(|heard| {
        legacy(heard, "s-1").unwrap_or_else(|| {
            let large = text(heard, &"x".repeat(200_000));
            match heard.message["params"]["arguments"]["as"].as_str() {
                Some("json") => Reply::json(200, &large),
                Some("events") => Reply::events(&[event(&large)]),
                _ => Reply::json(200, &text(heard, "small")),
            }
        })
    });
    let host = host().await;
    run(&host, &server, &["max_message_bytes: 100000"]).await;
    for form in ["json", "events"] {
        let text = failure(host.call("far.echo", json!({"as": form})).await);
        assert!(text.contains("100000"), "{form}: {text}");
    }
    assert_eq!(first_text(host.call("far.echo", json!({})).await), "small");
}

// A notice on the stream of a session leads to another look at the tools.
#[tokio::test]
async fn changed_tools_are_noticed_on_the_stream_of_the_session() {
    let notices: Arc<Mutex<Option<mpsc::SyncSender<String>>>> = Arc::default();
    let opened = Arc::clone(&notices);
    let server = HttpServer::start(move |heard| {
        if heard.method == "GET" {
            let (sender, events) = mpsc::sync_channel(16);
            *opened.lock().unwrap() = Some(sender);
            return Reply::Events(Vec::new(), events);
        }
        legacy(heard, "s-1").unwrap_or_else(|| Reply::json(200, &text(heard, "hi")))
    });
    let host = host().await;
    run(&host, &server, &[]).await;
    let sender = eventually("the stream is open", || notices.lock().unwrap().clone()).await;
    let before = server.asked("tools/list").len();
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    sender.send(event(&notice)).unwrap();
    eventually("the tools are read again", || (server.asked("tools/list").len() > before).then_some(())).await;
}
