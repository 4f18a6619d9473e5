//! Two connections against each other with a virtual clock and a seed.
//!
//! The simulation owns two pipes that cut and delay bytes, a client that calls, cancels and times out at random, and a
//! server that answers late, fails, reports progress, asks back or stays silent. What must hold for every seed: each
//! request has exactly one outcome, no answer reaches the wrong request, and both tables are empty in the end.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use plugward_protocol::{
    Connection, ConnectionConfig, Event, OutboundId, RequestFailure, RequestId, RequestTiming, RpcError,
};

use crate::support::{hello, hello_out, raw};

/// A small generator of our own, so that a seed means the same run for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Bytes on their way, each piece with the instant it arrives.
#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Instant, Vec<u8>)>,
}

impl Pipe {
    /// Cuts what is sent at random places; order is kept, each piece is late by up to a bound.
    fn send(&mut self, now: Instant, dice: &mut Dice, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let cut = (1 + dice.roll(60) as usize).min(rest.len());
            let arrival = now + Duration::from_millis(dice.roll(12));
            let at = self.pieces.back().map_or(arrival, |(earlier, _)| arrival.max(*earlier));
            self.pieces.push_back((at, rest[..cut].to_vec()));
            rest = &rest[cut..];
        }
    }

    fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        let due = self.pieces.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.pieces.pop_front()).flatten().map(|(_, bytes)| bytes)
    }
}

/// What the server side will do to a request, and when.
struct Job {
    id: RequestId,
    number: u64,
    at: Instant,
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Outcomes {
    answered: u64,
    refused: u64,
    cancelled: u64,
    timed_out: u64,
}

struct Pair {
    now: Instant,
    dice: Dice,
    client: Connection,
    server: Connection,
    to_server: Pipe,
    to_client: Pipe,
    jobs: Vec<Job>,
    /// Requests without outcome, with the number their answer has to carry.
    waiting: HashMap<OutboundId, u64>,
    outcomes: Outcomes,
    sent: u64,
    asked_back: u64,
    answered_back: u64,
    pinged: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut pair = Pair {
            now: Instant::now(),
            dice: Dice(seed),
            client: Connection::new(ConnectionConfig::client()),
            server: Connection::new(ConnectionConfig::server()),
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            jobs: Vec::new(),
            waiting: HashMap::new(),
            outcomes: Outcomes::default(),
            sent: 0,
            asked_back: 0,
            answered_back: 0,
            pinged: 0,
        };
        let limit = Duration::from_secs(60);
        pair.client.start_handshake(pair.now, hello(r#"{"roots":{}}"#), limit).unwrap();
        while !(pair.client.is_ready() && pair.server.is_ready() && pair.to_server.pieces.is_empty()) {
            pair.step();
        }
        pair
    }

    /// One millisecond: move bytes, notice time, let both owners act.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        while let Some(line) = self.client.poll_transmit() {
            self.to_server.send(self.now, &mut self.dice, &line);
        }
        while let Some(line) = self.server.poll_transmit() {
            self.to_client.send(self.now, &mut self.dice, &line);
        }
        while let Some(bytes) = self.to_server.receive(self.now) {
            self.server.handle_input(self.now, &bytes);
        }
        while let Some(bytes) = self.to_client.receive(self.now) {
            self.client.handle_input(self.now, &bytes);
        }
        for connection in [&mut self.client, &mut self.server] {
            if connection.poll_timeout().is_some_and(|due| due <= self.now) {
                connection.handle_timeout(self.now);
            }
        }
        self.drain_client();
        self.drain_server();
        self.work();
    }

    fn call(&mut self) {
        let number = self.sent;
        let id = self.client.reserve_id();
        let timing = RequestTiming {
            idle: Duration::from_millis(20 + self.dice.roll(200)),
            hard: Duration::from_millis(100 + self.dice.roll(300)),
        };
        let params = raw(&format!("{{\"number\":{number},\"_meta\":{{\"progressToken\":{id}}}}}"));
        self.client.send_request(self.now, id, "tools/call", Some(params), timing).unwrap();
        self.waiting.insert(id, number);
        self.sent += 1;
    }

    fn cancel_some(&mut self) {
        let ids: Vec<OutboundId> = self.waiting.keys().copied().collect();
        // The order of a hash map is not part of the seed.
        let Some(&id) = ids.iter().max() else { return };
        assert!(self.client.cancel(self.now, id, "changed my mind"), "what waits can be cancelled");
    }

    fn end(&mut self, id: OutboundId) -> u64 {
        self.waiting.remove(&id).unwrap_or_else(|| panic!("second outcome for request {id}"))
    }

    fn drain_client(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Handshaken(_) => self.client.confirm_handshake(self.now).unwrap(),
                Event::Response { id, outcome: Ok(result) } => {
                    assert_eq!(result.get(), self.end(id).to_string(), "answer of another request");
                    self.outcomes.answered += 1;
                }
                Event::Response { id, outcome: Err(error) } => {
                    assert_eq!(error.code, self.end(id) as i64, "error of another request");
                    self.outcomes.refused += 1;
                }
                Event::Failed { id, cause } => {
                    self.end(id);
                    match cause {
                        RequestFailure::Cancelled => self.outcomes.cancelled += 1,
                        RequestFailure::TimedOut { .. } => self.outcomes.timed_out += 1,
                        other => panic!("{other}"),
                    }
                }
                Event::Progress { id, params } => {
                    let number = self.waiting.get(&id).expect("progress only for what waits");
                    assert!(params.get().contains(&format!("\"number\":{number}}}")));
                }
                Event::Request { id, method, .. } => {
                    assert_eq!(method, "roots/list");
                    assert!(self.client.respond(&id, Ok(raw("\"roots\""))));
                }
                Event::LateAnswer { .. } | Event::CancelRequested { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn drain_server(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Initialize { id, .. } => {
                    self.server.accept_handshake(self.now, &id, &hello_out()).unwrap();
                }
                Event::Request { id, params, .. } => {
                    let params: serde_json::Value = serde_json::from_str(params.unwrap().get()).unwrap();
                    let at = self.now + Duration::from_millis(self.dice.roll(120));
                    self.jobs.push(Job { id, number: params["number"].as_u64().unwrap(), at });
                }
                Event::Response { .. } | Event::Failed { .. } => self.answered_back += 1,
                Event::Initialized | Event::CancelRequested { .. } | Event::LateAnswer { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The server works on what is due.
    fn work(&mut self) {
        let (due, later): (Vec<Job>, Vec<Job>) =
            std::mem::take(&mut self.jobs).into_iter().partition(|job| job.at <= self.now);
        self.jobs = later;
        for job in due {
            match self.dice.roll(20) {
                0 => {} // never answers
                1 | 2 => {
                    let params = format!("{{\"progressToken\":{},\"progress\":1,\"number\":{}}}", job.id, job.number);
                    self.server.notify("notifications/progress", Some(raw(&params))).unwrap();
                    self.jobs.push(Job { at: self.now + Duration::from_millis(self.dice.roll(150)), ..job });
                }
                3 => {
                    let error = RpcError::new(job.number as i64, "no");
                    self.server.respond(&job.id, Err(error));
                }
                4 => {
                    self.ask_back();
                    self.server.respond(&job.id, Ok(raw(&job.number.to_string())));
                }
                _ => {
                    self.server.respond(&job.id, Ok(raw(&job.number.to_string())));
                    // An answer given twice is sent once.
                    assert!(!self.server.respond(&job.id, Ok(raw("\"twice\""))));
                }
            }
        }
    }

    fn ask_back(&mut self) {
        let id = self.server.reserve_id();
        let timing = RequestTiming::within(Duration::from_millis(30 + self.dice.roll(100)));
        self.server.send_request(self.now, id, "roots/list", None, timing).unwrap();
        self.asked_back += 1;
        let ping = self.server.reserve_id();
        self.server.send_request(self.now, ping, "ping", None, timing).unwrap();
        self.pinged += 1;
    }

    /// Runs until `requests` were sent and everything has come to rest.
    fn run(mut self, requests: u64) -> Outcomes {
        while self.sent < requests {
            for _ in 0..self.dice.roll(4) {
                if self.sent < requests && self.waiting.len() < 64 {
                    self.call();
                }
            }
            if self.dice.roll(12) == 0 {
                self.cancel_some();
            }
            self.step();
        }
        // The longest a request can last, and the longest a piece can travel, with room to spare.
        for _ in 0..3_000 {
            self.step();
        }
        assert!(self.waiting.is_empty(), "requests without outcome: {}", self.waiting.len());
        assert_eq!((self.client.in_flight(), self.server.in_flight()), (0, 0));
        assert_eq!(self.client.inbound_in_flight(), 0);
        assert_eq!(self.server.inbound_in_flight(), 0, "given-up requests were cancelled at the server too");
        assert_eq!(self.answered_back, self.asked_back + self.pinged, "requests of the server have one outcome, too");
        let stats = self.client.stats();
        assert_eq!((stats.foreign_answers, stats.noise_lines), (0, 0));
        self.outcomes
    }
}

#[test]
fn ten_thousand_requests_have_exactly_one_outcome_each() {
    // Issue text and invariant 3: random cutting, delays, cancels and time-outs; none to the wrong caller.
    let mut total = Outcomes::default();
    for seed in 1..=10_u64 {
        let outcomes = Pair::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).run(1_000);
        total.answered += outcomes.answered;
        total.refused += outcomes.refused;
        total.cancelled += outcomes.cancelled;
        total.timed_out += outcomes.timed_out;
    }
    assert_eq!(total.answered + total.refused + total.cancelled + total.timed_out, 10_000);
    // Positive control: every kind of outcome really happened, and often.
    for count in [total.answered, total.refused, total.cancelled, total.timed_out] {
        assert!(count > 100, "{total:?}");
    }
}
