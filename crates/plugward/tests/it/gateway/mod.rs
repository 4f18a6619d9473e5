//! `plugward serve --stdio` as MCP clients meet it: the real program over pipes, with fixture plugins behind it.
//!
//! If these fail, agents lose tools, answers or digits. What needs no plugin is tested inside the gateway module.

mod agent;
mod calls;
mod cancels;
mod client;
mod crowd;
mod crowd_cancels;
mod crowd_client;
mod ending;
mod hot;
mod http;
mod http_client;
mod isolation;
mod lists;
mod logging;
mod modern;
mod offers;
mod offers_reached;
mod people;
mod probe;
mod rounds;
mod starting;
mod tokens;
mod unavailable;
mod upstream;

use tempfile::TempDir;

use crate::support::{Fixture, TestHost};
use client::Client;

/// A home in which these plugins are installed, approved and switched on.
async fn home_with(fixtures: &[Fixture]) -> TempDir {
    let test = TestHost::new().await;
    for fixture in fixtures {
        test.run(fixture).await;
    }
    test.close().await
}

/// A client of a program that has these plugins, after the handshake and a first list.
async fn connected(fixtures: &[Fixture]) -> Client {
    let mut client = Client::start(home_with(fixtures).await);
    client.handshake();
    client.list();
    client
}
