//! One client in the crowd that gives its calls up, in both ways there are over HTTP, and looks how soon that is known.
//!
//! Owns the two times of a cancel: until its plugin has it, told by the plugin itself, and until its caller is free.
//! Refuses to judge them: how long anything takes among hundreds of clients is the machine's doing as well.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crowd::{Place, headers, request};
use super::crowd_client::Connection;
use super::http_client::modern;
use crate::support::PATIENCE;

/// Id of the plugin whose calls are given up: the fixture's mode `wait`.
pub(super) const PLUGIN: &str = "waits";

/// Pause between two calls that are given up: the crowd is what the host is busy with.
const PAUSE: Duration = Duration::from_millis(100);

/// What was measured.
#[derive(Default)]
pub(super) struct Times {
    /// Until the plugin said that it has the cancel; the time to ask it is in it.
    plugin: Vec<Duration>,
    /// Until the stream of the call ended; not of those whose cancel is the end of their connection.
    caller: Vec<Duration>,
}

impl Times {
    /// In one line.
    pub(super) fn line(mut self) -> String {
        assert!(!self.plugin.is_empty() && !self.caller.is_empty(), "no call was given up");
        let [plugin, caller] = [&mut self.plugin, &mut self.caller].map(|times| {
            times.sort_unstable();
            let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
            format!("p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))
        });
        let count = self.plugin.len();
        format!(
            "cancel: {count} calls given up; their plugin had said so after {plugin}; their caller was free after {caller}"
        )
    }
}

fn call(tool: &str) -> Value {
    json!({"name": format!("{PLUGIN}_{tool}")})
}

/// Asks the plugin until it has seen so many.
async fn await_seen(asks: &mut Connection, place: &Place, what: &str, count: u64) {
    let bearer = format!("Bearer {}", place.token);
    let name = format!("{PLUGIN}_report");
    let about = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", name.as_str())];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = modern(1, "tools/call", &call("report"));
        let reply = asks.ask("POST", &headers(&about, &bearer), Some(&asked)).await;
        let text = reply.messages[0]["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let seen: Value = serde_json::from_str(text).unwrap_or_default();
        if seen[what] == count {
            assert_eq!(seen["match"], true, "another call was cancelled");
            return;
        }
        assert!(Instant::now() < deadline, "{what} is not {count}: {:?}", reply.messages);
    }
}

/// Gives calls up until the crowd ends, by a message of a session and by the end of a connection in turns.
pub(super) async fn give_up(place: Place) -> Times {
    let bearer = format!("Bearer {}", place.token);
    let mut times = Times::default();
    let (mut asks, mut tells) = (Connection::open(place.address).await, Connection::open(place.address).await);
    let client = json!({"name": "crowd-cancels", "version": "0"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let greeted = tells.ask("POST", &headers(&[], &bearer), Some(&request(0, "initialize", &hello))).await;
    let session = greeted.header("mcp-session-id").to_owned();
    let own = [("Mcp-Session-Id", session.as_str())];
    for number in 1_u64.. {
        if Instant::now() >= place.until {
            break;
        }
        let mut calls = Connection::open(place.address).await;
        let is_in_session = number % 2 == 0;
        let (session, bearer) = (session.clone(), bearer.clone());
        let waiting = tokio::spawn(async move {
            if is_in_session {
                let own = [("Mcp-Session-Id", session.as_str())];
                calls.ask("POST", &headers(&own, &bearer), Some(&request(number, "tools/call", &call("wait")))).await;
            } else {
                let name = format!("{PLUGIN}_wait");
                let about = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", &name)];
                calls.ask("POST", &headers(&about, &bearer), Some(&modern(number, "tools/call", &call("wait")))).await;
            }
            Instant::now()
        });
        await_seen(&mut asks, &place, "opened", number).await;
        let begun = Instant::now();
        if is_in_session {
            let params = json!({"requestId": number});
            let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            let reply = tells.ask("POST", &headers(&own, &format!("Bearer {}", place.token)), Some(&note)).await;
            assert_eq!(reply.status, 202);
        } else {
            waiting.abort();
        }
        await_seen(&mut asks, &place, "cancelled", number).await;
        times.plugin.push(begun.elapsed());
        if is_in_session {
            times.caller.push(waiting.await.unwrap().duration_since(begun));
        }
        tokio::time::sleep(PAUSE).await;
    }
    times
}
