//! The way out: looking up names and dialling, as the machine does it.
//!
//! Owns the three questions an egress has about the machine, behind a trait, so that tests can stand in for it. Refuses to
//! judge: what an answer may be used for is decided by its caller.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Look-ups of one plugin at a time. The system's resolver blocks a thread for as long as a name server is silent, and
/// threads are shared by all plugins (invariant 9).
const MAX_LOOKUPS: usize = 8;

/// What lies outside of a plugin's network.
pub(crate) trait Outside: Send + Sync + 'static {
    /// The addresses of a host name, in the order in which they should be tried.
    fn resolve(&self, name: String) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;

    /// A connection to exactly this address.
    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<TcpStream>> + Send;

    /// Whether this machine itself has the address.
    fn is_own(&self, address: IpAddr) -> bool;
}

/// The machine's own resolver and network.
#[derive(Debug)]
pub(crate) struct Machine {
    lookups: Arc<Semaphore>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Outside for Machine {
    async fn resolve(&self, name: String) -> io::Result<Vec<IpAddr>> {
        let place = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let lookup = move || {
            // Kept to the end of the look-up, which nobody can break off.
            let _place = place;
            let found: Vec<IpAddr> = (name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect();
            Ok(found)
        };
        tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }

    fn is_own(&self, address: IpAddr) -> bool {
        can_be_taken(address) && (!can_be_taken(NOBODYS) || is_source(address))
    }
}

/// An address of documentation, which no machine has.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));

/// A socket can have only an address of this machine; unless the kernel was told to allow any (`ip_nonlocal_bind`).
fn can_be_taken(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The kernel answers a connection to an own address from that address, if it is the first of its network. Connecting a
/// datagram socket sends nothing.
fn is_source(address: IpAddr) -> bool {
    const ANY_PORT: u16 = 9;
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, ANY_PORT))?;
        socket.local_addr()
    });
    // An address there is no way to is nobody's.
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Threat row 17: the machine's public address leads to its services as 127.0.0.1 does.
    #[tokio::test]
    async fn the_machine_knows_its_addresses() {
        let machine = Machine::default();
        assert!(machine.is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(machine.is_own(Ipv4Addr::new(127, 200, 3, 4).into()));
        assert!(!machine.is_own(Ipv4Addr::new(192, 0, 2, 1).into()), "an address of documentation is nobody's");
        assert!(is_source(Ipv4Addr::LOCALHOST.into()) && !is_source(Ipv4Addr::new(192, 0, 2, 1).into()));
        assert!(machine.resolve("localhost".to_owned()).await.unwrap().iter().all(IpAddr::is_loopback));
    }
}
