//! A plugin with listed hosts: it finds them, and beside them nothing.
//!
//! Owns the attacks on such a network and the host's side of it, played by the test. Refuses taking a socket that was made
//! for a host that was reached: what arrives outside is what counts.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
};

use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};

use plugward_sandbox::{Backend, LaunchSpec, Level, ListedHosts, Listeners, Network, NetworkControl, SpawnError};

use crate::world::{World, finish, is_root, launcher, launcher_without};

const DOOR: Ipv4Addr = Ipv4Addr::new(127, 8, 0, 1);
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const NAME: &str = "api.example.test";
/// A port only root may listen at, which the first process of a sandbox can.
const LOW_PORT: u16 = 443;

/// An attack by a plugin whose one named host listens at `port`, with an address of the world beside it.
fn attack(world: &World, port: u16, attack: &str, arguments: &[&str]) -> LaunchSpec {
    let mut spec = world.attack(Level::Full, attack, arguments);
    spec.sandbox.as_mut().unwrap().network = Network::Hosts(ListedHosts {
        listeners: vec![(DOOR, port).into(), "192.0.2.7:80".parse().unwrap()],
        names: vec![(NAME.to_owned(), DOOR.into())],
        name_server: Some(NAME_SERVER),
    });
    spec
}

/// Answers one connection like a host would, and tells where the plugin thought it connected to.
fn serve(listener: TcpListener) -> thread::JoinHandle<SocketAddr> {
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut word = [0; 4];
        connection.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ping");
        connection.write_all(b"pong").unwrap();
        connection.local_addr().unwrap()
    })
}

fn listeners(spawned: &plugward_sandbox::Spawned) -> Listeners {
    let listeners = spawned.process.take_listeners().unwrap();
    assert!(spawned.process.take_listeners().is_none(), "there is one owner");
    listeners
}

// Requirement 91: the host that was agreed to is found by its name, at a port below 1024, by a program that knows nothing
// of a sandbox.
pub(crate) fn listed_hosts_are_found() {
    let world = World::new();
    for (host, port, position, seen) in [
        (NAME, "443", 0, "127.8.0.1:443"),
        ("API.Example.TEST", "443", 0, "127.8.0.1:443"),
        ("192.0.2.7", "80", 1, "192.0.2.7:80"),
    ] {
        let spawned = launcher().spawn(&attack(&world, LOW_PORT, "exchange", &[host, port])).unwrap();
        assert_eq!(spawned.process.enforcement().net, NetworkControl::Hosts);
        assert!(!spawned.process.enforcement().missing.iter().any(|layer| layer == "network isolation"));
        let mut sockets = listeners(&spawned);
        assert_eq!(sockets.tcp.len(), 2);
        let served = serve(sockets.tcp.swap_remove(position));
        assert_eq!(finish(spawned).stdout.trim(), "ok", "{host}");
        assert_eq!(served.join().unwrap().to_string(), seen);
    }
    // Whoever does not take them refuses everything: control for the sockets being what lets it through.
    let spawned = launcher().spawn(&attack(&world, LOW_PORT, "exchange", &[NAME, "443"])).unwrap();
    drop(listeners(&spawned));
    assert_ne!(finish(spawned).stdout.trim(), "ok");
}

/// Other names are asked for where the host hears them, and nowhere else: they are the only way a name leaves.
pub(crate) fn names_are_asked_for_at_the_host() {
    let world = World::new();
    let spawned = launcher().spawn(&attack(&world, LOW_PORT, "resolve", &["secret.evil.test"])).unwrap();
    let names = listeners(&spawned).names.unwrap();
    let answering = thread::spawn(move || {
        let mut asked = Vec::new();
        loop {
            let mut query = [0; 512];
            let (length, from) = names.recv_from(&mut query).unwrap();
            asked.extend_from_slice(&query[..length]);
            // There is no such name.
            query[2..4].copy_from_slice(&[0x81, 0x83]);
            names.send_to(&query[..length], from).unwrap();
            if asked.windows(7).any(|window| window == b"\x04evil\x04t") {
                return;
            }
        }
    });
    let outcome = finish(spawned);
    answering.join().unwrap();
    assert_ne!(outcome.stdout.trim(), "ok");
    // Control: a listed name needs no asking.
    let spawned = launcher().spawn(&attack(&world, LOW_PORT, "resolve", &[NAME])).unwrap();
    assert_eq!(finish(spawned).stdout.trim(), "ok");
}

/// What shows that an attack is one, and that its answer comes from the sandbox.
enum Control<'a> {
    /// It succeeds without a sandbox.
    Unconfined,
    /// It succeeds without a sandbox at this place, where the machine has something to reach.
    UnconfinedTo(&'a str),
    /// It succeeds in the same network once its place is listed.
    Listed,
    /// Without a sandbox it is answered otherwise, by a success where this kernel has what it asks for.
    Differs,
    /// The same where the test is root; for others the machine has the same answer as the sandbox.
    DiffersForRoot,
}

impl Control<'_> {
    fn assert(&self, world: &World, what: &str, name: &str, arguments: &[&str], expected: &[i32]) {
        let unconfined = |arguments: &[&str]| {
            finish(launcher().spawn(&world.attack(Level::None, name, arguments)).unwrap()).stdout.trim().to_owned()
        };
        let answer = match self {
            Self::Unconfined => unconfined(arguments),
            Self::UnconfinedTo(place) => unconfined(&[place]),
            Self::Listed => {
                let place: SocketAddr = arguments[0].parse().unwrap();
                let mut spec = world.attack(Level::Full, name, arguments);
                spec.sandbox.as_mut().unwrap().network =
                    Network::Hosts(ListedHosts { listeners: vec![place], ..ListedHosts::default() });
                let spawned = launcher().spawn(&spec).unwrap();
                let _held_open = listeners(&spawned);
                finish(spawned).stdout.trim().to_owned()
            }
            Self::DiffersForRoot if !is_root() => return,
            Self::Differs | Self::DiffersForRoot => {
                let answer = unconfined(arguments);
                let errno = answer.parse::<i32>().ok();
                assert!(
                    answer == "ok" || errno.is_some_and(|it| !expected.contains(&it)),
                    "control of `{what}`: {answer}"
                );
                return;
            }
        };
        assert_eq!(answer, "ok", "the control of `{what}` fails");
    }
}

// Threat rows 16 to 24 with listed hosts: the machine, its services and the kernel's odd sockets stay out of reach.
pub(crate) fn beside_listed_hosts_there_is_nothing() {
    let world = World::new();
    let tcp = world.tcp.local_addr().unwrap().port();
    let udp = world.udp.local_addr().unwrap().port().to_string();
    let (port, other) = (tcp.to_string(), if tcp == LOW_PORT { 80 } else { LOW_PORT });
    let socket = world.path("home/socket");
    const REFUSED: &[i32] = &[libc::EPERM];
    const UNREACHABLE: &[i32] = &[libc::ENETUNREACH];
    const NOT_THERE: &[i32] = &[libc::ECONNREFUSED];
    const NOT_A_PORT: &[i32] = &[libc::EACCES];
    let listening = format!("127.0.0.1:{udp}");
    type Row<'a> = (&'a str, u16, &'a str, &'a [&'a str], Control<'a>, &'a [i32]);
    use Control::{Differs, DiffersForRoot, Listed, Unconfined, UnconfinedTo};
    let rows: &[Row<'_>] = &[
        ("reach a local service", other, "connect-tcp", &[&port], Unconfined, NOT_A_PORT),
        ("reach it by another form", other, "connect-tcp-mapped", &[&port], Unconfined, NOT_A_PORT),
        // The number of a listed port opens nothing by itself.
        ("reach one at a listed port", tcp, "connect-tcp", &[&port], Unconfined, NOT_THERE),
        ("reach it by another form", tcp, "connect-tcp-mapped", &[&port], Unconfined, NOT_THERE),
        ("reach it by fast open", tcp, "send-fast-open", &[&port], Unconfined, REFUSED),
        ("reach the metadata service", 80, "connect", &["169.254.169.254:80"], Listed, UNREACHABLE),
        ("reach it at another port", other, "connect", &["169.254.169.254:8080"], Listed, NOT_A_PORT),
        ("reach a private network", 80, "connect", &["10.0.0.1:80"], Listed, UNREACHABLE),
        ("reach the internet", 80, "connect", &["[2001:db8::9]:80"], Listed, &[libc::ENETUNREACH, libc::EAFNOSUPPORT]),
        ("ask a name server outside", other, "send-to", &["192.0.2.53:53"], UnconfinedTo(&listening), UNREACHABLE),
        ("open a multipath socket", other, "socket", &["2", "1", "262"], Differs, REFUSED),
        ("send by control messages", other, "socket", &["2", "2", "1"], Differs, REFUSED),
        ("send raw", other, "socket", &["2", "3", "6"], DiffersForRoot, REFUSED),
        ("stream control transmission", other, "socket", &["2", "1", "132"], Differs, REFUSED),
        ("reach a Unix socket", other, "connect-unix", &[&socket], Unconfined, REFUSED),
        ("reach one without path", other, "connect-abstract", &[&world.abstract_name], Unconfined, REFUSED),
        ("ask the kernel's network", other, "socket", &["16", "3", "0"], Unconfined, REFUSED),
        ("reach the machine below", other, "socket", &["40", "1", "0"], Differs, REFUSED),
        ("read raw packets", other, "socket", &["17", "3", "0"], DiffersForRoot, REFUSED),
        ("use kernel ciphers", other, "socket", &["38", "5", "0"], Differs, REFUSED),
        ("take a listed place", other, "listen", &["127.8.0.1:4444"], Unconfined, NOT_A_PORT),
    ];
    for (what, listed, name, arguments, control, expected) in rows {
        control.assert(&world, what, name, arguments, expected);
        let spawned = launcher().spawn(&attack(&world, *listed, name, arguments)).unwrap();
        let outcome = finish(spawned);
        let answer = outcome.stdout.trim().parse::<i32>().ok();
        println!("{what}: {answer:?}");
        assert!(answer.is_some_and(|errno| expected.contains(&errno)), "{what}: {outcome:?}");
    }
    datagrams_stay_inside(&world, &udp);
}

/// Sending succeeds where nobody listens, so what matters is what arrives.
fn datagrams_stay_inside(world: &World, port: &str) {
    world.udp.set_nonblocking(true).unwrap();
    let arrived = || match world.udp.recv(&mut [0; 16]) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    };
    while arrived() {}
    finish(launcher().spawn(&attack(world, LOW_PORT, "send-udp", &[port])).unwrap());
    assert!(!arrived(), "a datagram reached a service of the machine");
    finish(launcher().spawn(&world.attack(Level::None, "send-udp", &[port])).unwrap());
    assert!(arrived(), "the control arrives");
}

/// The kernel's own layers, one by one: without any of them such a plugin does not start.
pub(crate) fn listed_hosts_take_every_layer() {
    let world = World::new();
    for layer in ["network", "seccomp", "landlock", "capabilities"] {
        let error = launcher_without(layer).spawn(&attack(&world, LOW_PORT, "stat", &["/"])).unwrap_err();
        println!("without {layer}: {error}");
        assert!(matches!(error, SpawnError::NotHeld { .. } | SpawnError::Layer { .. }), "{layer}: {error}");
    }
}

/// For a plugin that is watched: whatever address it tries is seen, with the address it meant.
pub(crate) fn every_address_can_lead_to_one_listener() {
    let world = World::new();
    for (any, tried) in
        [("0.0.0.0:443", "203.0.113.9:443"), ("[::]:443", "[2001:db8::9]:443"), ("0.0.0.0:443", "127.0.0.1:443")]
    {
        let to: SocketAddr = tried.parse().unwrap();
        let mut spec = world.attack(Level::Full, "exchange", &[&to.ip().to_string(), "443"]);
        spec.sandbox.as_mut().unwrap().network =
            Network::Hosts(ListedHosts { listeners: vec![any.parse().unwrap()], ..ListedHosts::default() });
        let spawned = launcher().spawn(&spec).unwrap();
        let served = serve(listeners(&spawned).tcp.remove(0));
        assert_eq!(finish(spawned).stdout.trim(), "ok", "{tried}");
        assert_eq!(served.join().unwrap(), to);
    }
}

// Threat 36: what a connection holds is in no process's memory. Within the network of such a plugin it cannot become much.
pub(crate) fn connections_hold_little() {
    let world = World::new();
    let spawned = launcher().spawn(&attack(&world, LOW_PORT, "stat", &["/"])).unwrap();
    let sockets = listeners(&spawned);
    for socket in &sockets.tcp {
        // What a connection begins with is set together with the most it can have.
        let (into, out) = (socket_recv_buffer_size(socket).unwrap(), socket_send_buffer_size(socket).unwrap());
        assert_eq!((into, out), (65_536, 65_536));
    }
    finish(spawned);
    // Control: the kernel's own choice is another.
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_ne!(socket_send_buffer_size(&other).unwrap(), 65_536);
}

// Requirement 146: where bubblewrap makes the namespaces, nobody can listen at low ports in them, and such a plugin does not
// start, rather than with hosts missing or with all of the network.
pub(crate) fn bubblewrap_makes_no_such_network() {
    let world = World::new();
    let marker = world.path("data/ran");
    let by_bwrap = plugward_sandbox::Launcher::current_exe().unwrap().with_backend(Backend::Bwrap);
    let error = by_bwrap.spawn(&attack(&world, LOW_PORT, "create", &[&marker])).unwrap_err().to_string();
    assert!(error.contains("a list of hosts, through bubblewrap"), "{error}");
    assert!(error.contains("allow plugward itself to make user namespaces"), "{error}");
    assert!(!std::fs::exists(&marker).unwrap());
    // Control: by the other way it runs.
    finish(launcher().spawn(&attack(&world, LOW_PORT, "create", &[&marker])).unwrap());
    assert!(std::fs::exists(&marker).unwrap());
}
