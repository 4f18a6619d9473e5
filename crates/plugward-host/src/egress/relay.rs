//! Bytes between a plugin and the host it may reach.
//!
//! Owns moving them both ways, counting them, ending a connection that nobody uses, and the look at the name in a TLS
//! greeting. Refuses to hold anything back that is not TLS: the server may be the one that speaks first.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::greeting::{self, Greeting};

/// A connection without a byte either way for this long is ended: it keeps one of the plugin's places. Longer than the
/// pauses of long polling and of pooled connections that are worth keeping.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Bytes moved at once; each connection holds two such buffers.
const CHUNK_BYTES: usize = 16 * 1024;

/// Pieces a TLS greeting may come in. Libraries send it whole; one in crumbs would have each crumb cost a look at all before
/// it.
const MAX_GREETING_PIECES: usize = 64;

/// Bytes that went over a connection.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
}

impl Traffic {
    fn total(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed).wrapping_add(self.received_bytes.load(Ordering::Relaxed))
    }
}

/// Why a connection was cut that had been allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cut {
    /// TLS on it asked for another host.
    OtherName(String),
    /// TLS on it began in a way that cannot be read.
    Unreadable,
}

/// What is on its way to the outside.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    /// What the plugin has sent already.
    pub(super) pending: &'a [u8],
    /// The only name TLS may ask for, if the host is a name.
    pub(super) name: Option<&'a str>,
}

/// Moves bytes until both sides have ended, or nothing has moved for [`IDLE_LIMIT`].
pub(super) async fn relay(
    inside: TcpStream,
    outside: TcpStream,
    outgoing: Outgoing<'_>,
    traffic: &Traffic,
) -> Result<(), Cut> {
    // Small messages are what tools send; a socket that cannot be told so works all the same.
    let _slower = (inside.set_nodelay(true), outside.set_nodelay(true));
    let (from_inside, to_inside) = inside.into_split();
    let (from_outside, to_outside) = outside.into_split();
    let both = async {
        tokio::try_join!(
            send(from_inside, to_outside, outgoing, &traffic.sent_bytes),
            receive(from_outside, to_inside, &traffic.received_bytes),
        )
    };
    tokio::select! {
        ended = both => ended.map(|_| ()),
        () = idle(traffic) => Ok(()),
    }
}

async fn idle(traffic: &Traffic) {
    let mut before = traffic.total();
    loop {
        tokio::time::sleep(IDLE_LIMIT).await;
        let now = traffic.total();
        if now == before {
            return;
        }
        before = now;
    }
}

async fn send(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    outgoing: Outgoing<'_>,
    moved: &AtomicU64,
) -> Result<(), Cut> {
    let mut first = outgoing.pending.to_vec();
    if let Some(name) = outgoing.name {
        for piece in 0.. {
            match greeting::read(&first) {
                Greeting::Other | Greeting::Names(None) => break,
                Greeting::Names(Some(asked)) if is_same(&asked, name) => break,
                Greeting::Names(Some(asked)) => return Err(Cut::OtherName(asked)),
                Greeting::Unreadable => return Err(Cut::Unreadable),
                Greeting::Unfinished if piece >= MAX_GREETING_PIECES => return Err(Cut::Unreadable),
                Greeting::Unfinished => {}
            }
            let mut chunk = [0; 2048];
            match from.read(&mut chunk).await {
                Ok(count @ 1..) => first.extend_from_slice(&chunk[..count]),
                // It ended within its greeting, which is of no use to anybody.
                _ => break,
            }
        }
    }
    if write(&mut to, &first, moved).await.is_ok() {
        copy(&mut from, &mut to, moved).await;
    }
    Ok(())
}

async fn receive(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, moved: &AtomicU64) -> Result<(), Cut> {
    copy(&mut from, &mut to, moved).await;
    Ok(())
}

/// Copies to the end of `from`, and passes the end on. An error ends it as well: the other direction notices by itself.
async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, moved: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if write(to, &chunk[..count], moved).await.is_err() {
            return;
        }
    }
    let _ended = to.shutdown().await;
}

async fn write(to: &mut OwnedWriteHalf, bytes: &[u8], moved: &AtomicU64) -> io::Result<()> {
    to.write_all(bytes).await?;
    moved.fetch_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
    Ok(())
}

fn is_same(asked: &str, name: &str) -> bool {
    asked.strip_suffix('.').unwrap_or(asked).eq_ignore_ascii_case(name)
}
