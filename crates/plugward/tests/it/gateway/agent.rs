//! One client that can be any of four: over pipes or HTTP, with a session or without.
//!
//! Owns the differences between them, so that what is asked of the gateway is written once. Refuses to judge answers.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Client;
use super::http_client::{Face, Reply};
use crate::support::plugward;

/// The notice that the tools are others now.
const CHANGED: &str = "notifications/tools/list_changed";

/// How a client reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Over pipes, after a handshake.
    Pipes,
    /// Over pipes, without one.
    PipesStateless,
    /// Over HTTP, in a session.
    Http,
    /// Over HTTP, without one.
    HttpStateless,
}

/// A client that is ready to call. It can answer for a person and for a model.
pub(super) struct Agent {
    line: Line,
    way: Way,
    next_id: u64,
    /// Answers to requests that nobody asks about any more.
    pub(super) strays: Vec<Value>,
    /// Changes of the tools that were told and not looked at yet.
    changes: usize,
}

enum Line {
    Pipes(Client),
    Http {
        face: Face,
        session: Option<String>,
        /// What is said unasked.
        told: Reply,
    },
}

/// What one request brought.
pub(super) struct Exchange {
    /// The answer, whole.
    pub(super) answer: Value,
    /// Notifications before it.
    pub(super) notes: Vec<Value>,
    /// What the gateway asked meanwhile: method and parameters.
    pub(super) questions: Vec<(String, Value)>,
}

/// A request whose answer is not waited for.
pub(super) enum Open {
    Pipes(Value),
    Http(u64, TcpStream),
}

/// What the client says it can do.
pub(super) fn capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}})
}

impl Agent {
    /// Starts the program on this home and is greeted.
    pub(super) fn start(way: Way, home: TempDir) -> Self {
        let line = match way {
            Way::Pipes | Way::PipesStateless => Line::Pipes(Client::start(home)),
            Way::Http | Way::HttpStateless => over_http(way, Face::start(home)),
        };
        let mut agent = Self { line, way, next_id: 100, strays: Vec::new(), changes: 0 };
        match way {
            Way::Pipes => {
                agent.ask("initialize", hello());
                agent.tell("notifications/initialized", &json!({}));
            }
            Way::PipesStateless => {
                let wanted = agent.decorated(listening());
                if let Line::Pipes(client) = &mut agent.line {
                    client.send("subscriptions/listen", &wanted);
                    client.await_message(|message| message["method"] == "notifications/subscriptions/acknowledged");
                }
            }
            Way::Http | Way::HttpStateless => {}
        }
        // Who has listed is told of changes.
        agent.names();
        agent
    }

    pub(super) fn home(&self) -> &Path {
        match &self.line {
            Line::Pipes(client) => client.home(),
            Line::Http { face, .. } => face.home(),
        }
    }

    /// Runs a command on the home of the running host, and gives its output as JSON.
    pub(super) fn run(&self, arguments: &[&str]) -> Value {
        run_at(self.home(), arguments)
    }

    /// The tools.
    pub(super) fn list(&mut self) -> Vec<Value> {
        let answer = self.ask("tools/list", json!({})).answer;
        answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// Their names.
    pub(super) fn names(&mut self) -> Vec<String> {
        self.list().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool and gives the whole answer.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments})).answer
    }

    /// Calls a tool that succeeds and gives its first text.
    pub(super) fn text(&mut self, name: &str) -> String {
        let answer = self.call(name, &json!({}));
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> Exchange {
        self.converse(method, params, None)
    }

    /// The same, and answers every question meanwhile with `reply`.
    pub(super) fn converse(&mut self, method: &str, params: Value, reply: Option<&Value>) -> Exchange {
        let mut exchange = self.exchange(method, &self.decorated(params.clone()), reply);
        let result = exchange.answer["result"].clone();
        if let (Some(reply), Some(asked)) = (reply, result["inputRequests"].as_object()) {
            let questions =
                asked.values().map(|ask| (ask["method"].as_str().unwrap().to_owned(), ask["params"].clone()));
            exchange.questions.extend(questions);
            let mut again = params;
            again["inputResponses"] = asked.keys().map(|key| (key.clone(), reply.clone())).collect();
            again["requestState"] = result["requestState"].clone();
            exchange.answer = self.exchange(method, &self.decorated(again), None).answer;
        }
        exchange
    }

    /// Sends a call and does not wait.
    pub(super) fn begin(&mut self, params: Value) -> Open {
        let params = self.decorated(params);
        let id = self.id();
        match &mut self.line {
            Line::Pipes(client) => Open::Pipes(client.send("tools/call", &params)),
            Line::Http { face, session, .. } => {
                Open::Http(id, send(face, session.as_deref(), id, "tools/call", &params))
            }
        }
    }

    /// Gives a call up, in the way of its transport and era. Gives what came of it; over pipes, anything that comes
    /// later is among the strays.
    pub(super) fn cancel(&mut self, open: Open) -> Vec<Value> {
        match open {
            Open::Pipes(id) => {
                self.tell("notifications/cancelled", &json!({"requestId": id}));
                Vec::new()
            }
            // Its end is the cancel.
            Open::Http(_, stream) if self.way == Way::HttpStateless => {
                drop(stream);
                Vec::new()
            }
            Open::Http(id, stream) => {
                self.tell("notifications/cancelled", &json!({"requestId": id}));
                Reply::read(stream).messages()
            }
        }
    }

    /// Waits until a change of the tools is told after which their names fit.
    pub(super) fn await_change_to(&mut self, fits: impl Fn(&[String]) -> bool) {
        self.await_change();
        while !fits(&self.names()) {
            self.await_change();
        }
    }

    fn await_change(&mut self) {
        if self.changes > 0 {
            self.changes = 0;
            return;
        }
        match &mut self.line {
            Line::Pipes(client) => {
                client.await_message(|message| message["method"] == CHANGED);
            }
            Line::Http { told, .. } => while !told.event().expect("the stream goes on").data.contains(CHANGED) {},
        }
    }

    /// Ends the program, which has to end well.
    pub(super) fn close(self) {
        match self.line {
            Line::Pipes(client) => {
                let end = client.close();
                assert!(end.status.success(), "{}", end.stderr);
            }
            Line::Http { face, .. } => assert!(face.close().success()),
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn tell(&mut self, method: &str, params: &Value) {
        match &mut self.line {
            Line::Pipes(client) => client.notify(method, params),
            Line::Http { face, session, .. } => face.tell(session.as_ref().expect("a session"), method, params),
        }
    }

    /// With what a request of the stateless revision says about itself.
    fn decorated(&self, mut params: Value) -> Value {
        if matches!(self.way, Way::PipesStateless | Way::HttpStateless) {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities();
        }
        params
    }

    fn exchange(&mut self, method: &str, params: &Value, reply: Option<&Value>) -> Exchange {
        let id = self.id();
        let (mut notes, mut questions) = (Vec::new(), Vec::new());
        let own = match &mut self.line {
            Line::Pipes(client) => client.send(method, params),
            Line::Http { .. } => json!(id),
        };
        let mut stream = match &self.line {
            Line::Pipes(_) => None,
            Line::Http { face, session, .. } => Some(Reply::read(send(face, session.as_deref(), id, method, params))),
        };
        if stream.as_ref().is_some_and(|stream| stream.header("content-type") == "application/json") {
            let answer = stream.unwrap().json();
            return Exchange { answer, notes, questions };
        }
        loop {
            let message = match (&mut self.line, &mut stream) {
                (Line::Pipes(client), _) => client.await_message(|_| true),
                (_, Some(stream)) => {
                    let data = stream.event().expect("an answer ends the stream").data;
                    // What opens a stream is no message.
                    if data.is_empty() { continue } else { serde_json::from_str(&data).unwrap() }
                }
                (Line::Http { .. }, None) => unreachable!("every request over HTTP has a stream"),
            };
            match (message["method"].as_str(), message.get("id")) {
                (None, Some(id)) if *id == own => return Exchange { answer: message, notes, questions },
                (None, _) => self.strays.push(message),
                (Some(asked), Some(id)) => {
                    questions.push((asked.to_owned(), message["params"].clone()));
                    let answer = match reply {
                        Some(reply) => json!({"jsonrpc": "2.0", "id": id, "result": reply}),
                        None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}),
                    };
                    self.post(&answer);
                }
                (Some(CHANGED), None) => self.changes += 1,
                (Some(_), None) => notes.push(message),
            }
        }
    }

    fn post(&mut self, message: &Value) {
        match &mut self.line {
            Line::Pipes(client) => client.send_raw(&message.to_string()),
            Line::Http { face, session, .. } => {
                let session = session.as_deref().expect("only sessions are asked");
                assert_eq!(face.reply("POST", &[("Mcp-Session-Id", session)], Some(message)).status, 202);
            }
        }
    }
}

/// Runs a command on the home of a running host, and gives its output as JSON.
pub(super) fn run_at(home: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(plugward());
    command.args(arguments).arg("--json").env_clear();
    command.env("PLUGWARD_HOME", home).env("PLUGWARD_ENVIRONMENT", "development");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Parameters of `initialize` of a client that can be asked.
pub(super) fn hello() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities(),
        "clientInfo": {"name": "demo-client", "version": "0"},
    })
}

fn listening() -> Value {
    json!({"notifications": {"toolsListChanged": true}})
}

fn over_http(way: Way, face: Face) -> Line {
    if way == Way::HttpStateless {
        let mut told = face.modern(1, "subscriptions/listen", &listening());
        assert!(told.event().unwrap().data.contains("acknowledged"));
        return Line::Http { face, session: None, told };
    }
    let greeted = Reply::read(send(&face, None, 1, "initialize", &hello()));
    let session = greeted.header("mcp-session-id").to_owned();
    face.tell(&session, "notifications/initialized", &json!({}));
    let told = face.get(&session, None);
    Line::Http { face, session: Some(session), told }
}

fn send(face: &Face, session: Option<&str>, id: u64, method: &str, params: &Value) -> TcpStream {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let headers: Vec<(&str, &str)> = session.map(|session| ("Mcp-Session-Id", session)).into_iter().collect();
    face.open("POST", &headers, Some(&request))
}
