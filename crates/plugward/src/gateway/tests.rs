//! Sessions over an in-memory stream, with a host that has no plugins: what clients may send wrong, and how sessions
//! end. What needs plugins is tested over the real binary.

mod modern;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plugward_host::{Environment, Host, HostConfig, Naming, SupervisionSettings};
use plugward_policy::Catalogue;
use plugward_protocol::ConnectionConfig;
use plugward_sandbox::Launcher;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::driver::{Driver, Limits};
use super::{Options, Server};

/// Longest wait for anything in a test. Generous: machines that run tests are slow and busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes the stream holds each way, like a pipe.
const STREAM_BYTES: usize = 64 * 1024;

struct Session {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    end: JoinHandle<anyhow::Result<()>>,
    _home: TempDir,
}

impl Session {
    async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = HostConfig {
            home: home.path().to_owned(),
            environment: Environment::Development,
            catalogue: Catalogue::seed(),
            launcher: Launcher::at("/nonexistent", [""; 0]),
            host_environment: Vec::new(),
            naming: Naming::Prefixed,
            restart_base_delay: Duration::from_millis(50),
            supervision: SupervisionSettings::default(),
            trust: plugward_host::Trust::default(),
            operator: "test".to_owned(),
        };
        let host = Host::open(config).await.unwrap();
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        let (reader, writer) = tokio::io::split(theirs);
        let end = tokio::spawn(Driver::new(Server::new(host, Options::default()), limits).run(reader, writer));
        let (output, input) = tokio::io::split(ours);
        Self { input, output: BufReader::new(output).lines(), end, _home: home }
    }

    async fn initialized() -> Self {
        let mut session = Self::start().await;
        session.handshake().await;
        session
    }

    async fn handshake(&mut self) {
        self.send(&initialize("2025-06-18").to_string()).await;
        assert!(self.line().await["result"].is_object());
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    async fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes()).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        tokio::time::timeout(PATIENCE, self.input.write_all(bytes)).await.unwrap().unwrap();
    }

    async fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request.to_string()).await;
        self.line().await
    }

    /// The next message of the server.
    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line.expect("the session ended")).unwrap()
    }

    /// Nothing was written in reply to what was sent so far: the answer to a ping comes next.
    async fn silence(&mut self) {
        let id = json!("nothing-before-this");
        assert_eq!(
            self.request(id.clone(), "ping", json!({})).await,
            json!({"jsonrpc": "2.0", "id": id, "result": {}})
        );
    }

    async fn error(&mut self, line: &str) -> (Value, i64) {
        self.send(line).await;
        let answer = self.line().await;
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{line}: no error in {answer}"));
        (answer["id"].clone(), code)
    }

    /// Closes the input and gives what was still written, and how the session ended.
    async fn close(mut self) -> (Vec<Value>, anyhow::Result<()>) {
        self.input.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(PATIENCE, &mut self.end).await.unwrap().unwrap();
        while let Ok(Some(line)) = self.output.next_line().await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (rest, end)
    }
}

fn initialize(version: &str) -> Value {
    let client = json!({"name": "demo-client", "version": "0"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

#[tokio::test]
async fn malformed_input_gets_the_right_error_and_the_session_goes_on() {
    // B075: one bad line of a client must not cost it the session, nor get the answer of another request.
    let mut session = Session::initialized().await;
    assert_eq!(session.error("{not json").await, (Value::Null, -32700));
    session.send("").await;
    session.silence().await;
    assert_eq!(session.error(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"}]"#).await, (Value::Null, -32600));
    assert_eq!(session.error("[]").await, (Value::Null, -32600));
    assert_eq!(session.error("17").await, (Value::Null, -32600));
    assert_eq!(session.error(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#).await, (Value::Null, -32600));
    assert_eq!(session.error(r#"{"id":3,"method":"ping"}"#).await, (json!(3), -32600));
    assert_eq!(session.error(r#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#).await, (Value::Null, -32600));
    assert_eq!(session.error(r#"{"jsonrpc":"2.0","id":4,"method":"no/such"}"#).await, (json!(4), -32601));
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/no_such"}"#).await;
    session.silence().await;
    assert_eq!(
        session.error(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[1]}"#).await,
        (json!(5), -32602)
    );
    assert_eq!(
        session.error(r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"arguments":{}}}"#).await,
        (json!(6), -32602)
    );
    session.send(r#"{"jsonrpc":"2.0","method":"ping","params":{"id":77,"x":{"id":78}},"id":"s-9"}"#).await;
    assert_eq!(session.line().await, json!({"jsonrpc": "2.0", "id": "s-9", "result": {}}));
    session.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}\n").await;
    assert_eq!(session.line().await["error"]["code"], json!(-32700));
    assert_eq!(session.request(json!(7), "ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn wrong_params_of_every_method_are_refused() {
    let mut session = Session::initialized().await;
    for (method, params) in [
        ("tools/call", json!({"name": 7})),
        ("tools/call", json!({"name": "x", "arguments": []})),
        ("tools/call", json!({"name": "x", "arguments": "{}"})),
        ("tools/call", json!({"name": "x", "_meta": 1})),
        ("tools/call", json!({"name": "x", "_meta": {"progressToken": {}}})),
        ("tools/call", json!({"name": ""})),
        ("tools/list", json!([])),
        ("tools/list", json!({"cursor": 1})),
        ("tools/list", json!({"cursor": ""})),
        ("tools/list", json!({"cursor": "0000000000000000-1"})),
    ] {
        let answer = session.request(json!("p"), method, params.clone()).await;
        assert_eq!(answer["error"]["code"], json!(-32602), "{method} {params}: {answer}");
    }
    for bare in ["tools/call", "initialize"] {
        let (id, code) = session.error(&json!({"jsonrpc": "2.0", "id": 9, "method": bare}).to_string()).await;
        assert!(id == json!(9) && (code == -32602 || code == -32600), "{bare}: {code}");
    }
}

#[tokio::test]
async fn the_version_is_the_clients_if_we_speak_it_and_else_our_newest() {
    // B032: both sides could talk, so nobody may be turned away.
    let answered = async |requested: &str| {
        let mut session = Session::start().await;
        session.send(&initialize(requested).to_string()).await;
        session.line().await["result"]["protocolVersion"].as_str().unwrap().to_owned()
    };
    for spoken in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        assert_eq!(answered(spoken).await, spoken);
    }
    for strange in ["1999-01-01", "2026-07-28", "", "latest"] {
        assert_eq!(answered(strange).await, "2025-11-25");
    }
}

#[tokio::test]
async fn a_probe_of_the_next_revision_leaves_the_handshake_possible() {
    // B082: clients of both eras ask first and fall back.
    let mut session = Session::start().await;
    let answer = session.request(json!(1), "server/discover", json!({})).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32602)));
    session.handshake().await;
    assert_eq!(session.request(json!(3), "ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn nothing_is_served_before_the_handshake_but_ping() {
    let mut session = Session::start().await;
    for method in ["tools/list", "tools/call"] {
        let answer = session.request(json!("early"), method, json!({"name": "x"})).await;
        assert_eq!(answer["error"]["code"], json!(-32600), "{answer}");
    }
    session.silence().await;
    session.handshake().await;
    assert_eq!(session.request(json!(2), "tools/list", json!({})).await["result"], json!({"tools": []}));
}

#[tokio::test]
async fn every_capability_announced_works_and_empty_lists_are_no_errors() {
    // B013, B089: clients drop servers that answer lists with errors, and call what was announced.
    let mut session = Session::start().await;
    session.send(&initialize("2025-11-25").to_string()).await;
    let hello = session.line().await["result"].clone();
    assert_eq!(hello["capabilities"], json!({"tools": {"listChanged": true}}));
    assert_eq!(hello["serverInfo"]["name"], "plugward");
    assert_eq!(hello["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(hello["instructions"].as_str().unwrap().contains("plugward install"), "{hello}");
    for (method, empty) in [
        ("tools/list", json!({"tools": []})),
        ("prompts/list", json!({"prompts": []})),
        ("resources/list", json!({"resources": []})),
        ("resources/templates/list", json!({"resourceTemplates": []})),
    ] {
        assert_eq!(session.request(json!(2), method, json!({})).await["result"], empty, "{method}");
    }
    // It is there, and wants a level.
    assert_eq!(session.request(json!(3), "logging/setLevel", json!({})).await["error"]["code"], json!(-32602));
    for method in ["completion/complete", "resources/subscribe", "prompts/get", "tasks/list"] {
        assert_eq!(session.request(json!(3), method, json!({})).await["error"]["code"], json!(-32601), "{method}");
    }
}

#[tokio::test]
async fn batches_are_answered_where_the_version_has_them() {
    let mut session = Session::start().await;
    session.send(&initialize("2025-03-26").to_string()).await;
    session.line().await;
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"});
    session.send(&json!([ping, list, {"jsonrpc": "2.0", "method": "notifications/x"}]).to_string()).await;
    let answers = session.line().await;
    assert_eq!(answers.as_array().map(Vec::len), Some(2), "{answers}");
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"].is_object()), "{answers}");
}

#[tokio::test]
async fn byte_order_mark_crlf_and_blank_lines_are_no_faults() {
    // B062: clients on Windows write them.
    let mut session = Session::start().await;
    let hello = initialize("2025-06-18");
    session.send_bytes(format!("\u{feff}{hello}\r\n\r\n   \r\n").as_bytes()).await;
    assert!(session.line().await["result"].is_object());
    session.silence().await;
}

#[tokio::test]
async fn what_was_asked_before_the_end_of_input_is_answered() {
    // B086: `printf ... | plugward serve --stdio` has to print every answer, the last line's newline missing or not.
    let mut session = Session::start().await;
    let lines = [
        initialize("2025-06-18").to_string(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string(),
        json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}).to_string(),
    ];
    session.send_bytes(lines.join("\n").as_bytes()).await;
    let (rest, end) = session.close().await;
    let mut ids: Vec<i64> = rest.iter().map(|answer| answer["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    assert!(end.is_ok());
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_session() {
    let mut session = Session::initialized().await;
    session.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    let Session { input, output, end, _home } = session;
    drop((input, output));
    assert!(tokio::time::timeout(PATIENCE, end).await.unwrap().unwrap().is_ok());
}

/// Queue of the tests below. Half of it has to hold what one chunk of pings makes, as the real one holds far more.
const QUEUE_BYTES: usize = 256 * 1024;

fn small_limits(stall: Duration) -> Limits {
    let connection = ConnectionConfig { max_queued_bytes: QUEUE_BYTES, ..ConnectionConfig::server() };
    Limits { connection, stall, ..Limits::default() }
}

fn ping(id: usize) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n")
}

#[tokio::test]
async fn a_client_that_never_reads_costs_bounded_memory_and_then_its_session() {
    // N13: what is not read is not held for ever, and the person learns why the session ended.
    let mut session = Session::with(small_limits(Duration::from_millis(200))).await;
    session.handshake().await;
    let Session { mut input, output, end, _home } = session;
    let writer = tokio::spawn(async move {
        let mut sent = 0;
        while input.write_all(ping(sent).as_bytes()).await.is_ok() {
            sent += 1;
        }
        sent
    });
    let error = tokio::time::timeout(PATIENCE, end).await.unwrap().unwrap().unwrap_err().to_string();
    assert!(error.contains("has read nothing") || error.contains("does not read"), "{error}");
    let sent = tokio::time::timeout(PATIENCE, writer).await.unwrap().unwrap();
    // Two streams, one chunk read, one chunk to write and the queue: nothing else can have taken pings in.
    let bound = (4 * STREAM_BYTES + 2 * QUEUE_BYTES) / ping(0).len();
    assert!(sent < bound, "{sent} pings were taken from a client that reads nothing");
    drop(output);
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything() {
    // The positive control of the test above: slow is not gone.
    const PINGS: usize = 20_000;
    let mut session = Session::with(small_limits(Duration::from_secs(600))).await;
    session.handshake().await;
    let Session { mut input, mut output, end, _home } = session;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let writer = tokio::spawn(async move {
        for id in 0..PINGS {
            input.write_all(ping(id).as_bytes()).await.unwrap();
            counter.store(id + 1, Ordering::Relaxed);
        }
        input
    });
    // All tasks share this thread, so once turns change nothing everybody waits for the client to read.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert!(before < PINGS, "the session took in everything and held nothing back");
    for id in 0..PINGS {
        let line = tokio::time::timeout(PATIENCE, output.next_line()).await.unwrap().unwrap().unwrap();
        assert_eq!(line, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"));
    }
    drop(writer.await.unwrap());
    drop(output);
    assert!(tokio::time::timeout(PATIENCE, end).await.unwrap().unwrap().is_ok());
}
