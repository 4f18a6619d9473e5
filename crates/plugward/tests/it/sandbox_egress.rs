//! Plugins with a list of hosts, by way of programs that know nothing of it: what was granted is reached by its name, and
//! nothing else is. Services of this machine stand in for hosts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use plugward_host::{AttemptOutcome, Environment, LogOrigin, NetworkAttempt};
use plugward_sandbox::NetworkControl;
use serde_json::json;

use crate::support::{Fixture, Settings, TestHost, eventually, plugward};

async fn production() -> TestHost {
    TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await
}

/// A web server that greets everybody.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || greet(connection.unwrap()));
        }
    });
    address
}

fn greet(mut connection: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let _cut = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
}

/// A program with the usual means to fetch a page.
struct Fetcher {
    program: PathBuf,
    /// The script that fetches from an address and prints what it got.
    arguments: fn(&str) -> String,
}

impl Fetcher {
    fn fetch(&self, url: &str) -> String {
        format!("{} {}", self.program.display(), (self.arguments)(url))
    }
}

impl std::fmt::Display for Fetcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.program.display().fmt(formatter)
    }
}

/// Two that know nothing of plugward, each of which has to be here.
fn fetchers() -> [Fetcher; 2] {
    let node = |url: &str| format!("-e \"fetch('{url}').then(r => r.text()).then(t => console.log(t))\"");
    let python = |url: &str| format!("-c \"import urllib.request as r; print(r.urlopen('{url}').read().decode())\"");
    [
        Fetcher { program: system_program("node"), arguments: node },
        Fetcher { program: system_program("python3"), arguments: python },
    ]
}

/// A program where plugins can see it: not one that is a user's own.
fn system_program(name: &str) -> PathBuf {
    let places = ["/usr/bin", "/usr/local/bin"].map(|folder| Path::new(folder).join(name));
    let found = places.iter().find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("`{name}` is not in /usr/bin or /usr/local/bin: install it for all users")).clone()
}

async fn attempt(host: &TestHost, plugin: &str, kind: &str, target: &str) -> String {
    host.text(&format!("{plugin}.attempt"), json!({"kind": kind, "target": target})).await
}

async fn noted(host: &TestHost, plugin: &str, place: &str, outcome: AttemptOutcome) -> NetworkAttempt {
    let found = || {
        let view = host.host.overview().into_iter().find(|view| view.id.as_str() == plugin)?;
        view.network_attempts.into_iter().find(|attempt| attempt.place() == place && attempt.outcome == outcome)
    };
    eventually(&format!("{place} is among what {plugin} tried"), found).await
}

// Requirement 91: unmodified programs reach the host that was granted, by its name, and nothing beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_host_is_reached_and_nothing_else() {
    let (granted, beside) = (web_server(), web_server());
    let (url, port) = (format!("http://api.localhost:{}/", granted.port()), granted.port());

    // Control: without a sandbox the service beside it is reached by the same programs.
    let open = TestHost::new().await;
    open.run(&Fixture::imported("free", &["attempts"]).unconfined()).await;
    for fetcher in fetchers() {
        assert_eq!(
            attempt(&open, "free", "run", &fetcher.fetch(&format!("http://{beside}/"))).await,
            "done: hello",
            "{fetcher}"
        );
    }

    let host = production().await;
    let fixture = Fixture::imported("caller", &["attempts"])
        .permission(&format!("net:api.localhost:{port}"))
        .permission("net:api.example.test");
    let view = host.run(&fixture).await;
    assert_eq!(view.enforcement.unwrap().net, NetworkControl::Hosts);
    let mut fetched = 0;
    for fetcher in fetchers() {
        assert_eq!(attempt(&host, "caller", "run", &fetcher.fetch(&url)).await, "done: hello", "{fetcher}");
        fetched += 1;
        for refused in [
            format!("http://{beside}/"),
            format!("http://localhost:{}/", beside.port()),
            format!("http://[::ffff:127.0.0.1]:{}/", beside.port()),
            "http://2130706433/".to_owned(),
            "http://169.254.169.254/".to_owned(),
            "https://telemetry.example/".to_owned(),
            "https://api.example.test.evil.example/".to_owned(),
        ] {
            let answer = attempt(&host, "caller", "run", &fetcher.fetch(&refused)).await;
            assert!(answer.starts_with("refused: "), "{fetcher} {refused}: {answer}");
        }
    }
    let allowed = noted(&host, "caller", &format!("api.localhost:{port}"), AttemptOutcome::Allowed).await;
    assert_eq!(allowed.count, fetched);
    noted(&host, "caller", "telemetry.example", AttemptOutcome::Refused).await;
    noted(&host, "caller", "api.example.test.evil.example", AttemptOutcome::Refused).await;
    let told = || {
        let lines = host.host.logs("caller").unwrap();
        let is_it = |text: &str| text == "wanted telemetry.example, and was refused: nobody granted it";
        lines.into_iter().find(|line| line.origin == LogOrigin::Host && is_it(&line.text))
    };
    eventually("the log tells of it", told).await;

    // Somebody who looks later, at a host that does not run, still finds it.
    let home = host.close().await;
    let output =
        Command::new(plugward()).args(["permissions", "caller"]).env("PLUGWARD_HOME", home.path()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("tried, not allowed:") && shown.contains("telemetry.example ("), "{shown}");
    assert!(shown.contains("connected:") && shown.contains(&format!("api.localhost:{port} (")), "{shown}");
    assert!(shown.contains("gets no other hosts"), "{shown}");
}

// A name of the internet has an address of its own inside; what its look-up outside says is not the plugin's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_looked_up_outside_and_only_if_it_was_granted() {
    let host = production().await;
    host.run(&Fixture::imported("caller", &["attempts"]).permission("net:no-such-host.invalid:8443")).await;
    let answer = attempt(&host, "caller", "connect", "no-such-host.invalid:8443").await;
    // The listener is there; the host behind it is not.
    assert_eq!(answer, "done: connected");
    let failed = noted(&host, "caller", "no-such-host.invalid:8443", AttemptOutcome::Failed).await;
    assert!(failed.reason.starts_with("its name was not found"), "{}", failed.reason);
    let refused = attempt(&host, "caller", "connect", "no-such-host.invalid:443").await;
    assert!(refused.starts_with("refused: "), "{refused}");
    let gone = attempt(&host, "caller", "connect", "other-host.invalid:8443").await;
    assert!(gone.starts_with("refused: "), "{gone}");
    noted(&host, "caller", "other-host.invalid", AttemptOutcome::Refused).await;
    // An approval answers what was asked before it.
    host.approve("caller").await;
    assert!(host.host.plugin("caller").await.unwrap().network_attempts.is_empty());
}

// Hosts below a domain: for programs that use the proxy settings they are given, and these get them.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_below_a_domain_are_reached_by_way_of_the_proxy() {
    let (granted, beside) = (web_server(), web_server());
    let host = production().await;
    let fixture = Fixture::imported("caller", &["attempts"]).permission(&format!("net:*.localhost:{}", granted.port()));
    host.run(&fixture).await;
    let fetch = |name: &str, port: u16| {
        format!(
            "/usr/bin/python3 -c \"
import http.client, os, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
assert os.environ['https_proxy'] == os.environ['HTTPS_PROXY'] and 'NO_PROXY' not in os.environ
connection = http.client.HTTPConnection(proxy.hostname, proxy.port)
connection.set_tunnel('{name}', {port})
connection.request('GET', '/')
print(connection.getresponse().read().decode())\""
        )
    };
    assert!(Path::new("/usr/bin/python3").exists(), "Python is not installed here");
    let answer = attempt(&host, "caller", "run", &fetch("api.localhost", granted.port())).await;
    assert_eq!(answer, "done: hello");
    noted(&host, "caller", &format!("api.localhost:{}", granted.port()), AttemptOutcome::Allowed).await;
    for (name, port) in [("api.localhost", beside.port()), ("evil.test", granted.port()), ("127.0.0.1", granted.port())]
    {
        let answer = attempt(&host, "caller", "run", &fetch(name, port)).await;
        assert!(answer.contains("403"), "{name}:{port}: {answer}");
        noted(&host, "caller", &format!("{name}:{port}"), AttemptOutcome::Refused).await;
    }
    // Control: nobody else is given such settings.
    host.run(&Fixture::imported("plain", &["attempts"])).await;
    assert_eq!(
        attempt(&host, "plain", "run", "echo \"[$HTTPS_PROXY$https_proxy$NODE_USE_ENV_PROXY]\"").await,
        "done: []"
    );
}

// Threat row 20, with the TLS of real programs: the name they ask for inside is the one that was granted, or they are cut.
#[tokio::test(flavor = "multi_thread")]
async fn tls_to_a_granted_host_asks_for_that_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, greetings) = std::sync::mpsc::sync_channel(8);
    thread::spawn(move || {
        for connection in listener.incoming() {
            // No server that speaks TLS is needed to see what a client begins with.
            let mut greeting = vec![0; 4096];
            let count = connection.unwrap().read(&mut greeting).unwrap_or(0);
            greeting.truncate(count);
            let _over = heard.send(greeting);
        }
    });
    let host = production().await;
    host.run(&Fixture::imported("caller", &["attempts"]).permission(&format!("net:api.localhost:{port}"))).await;
    let place = format!("api.localhost:{port}");
    let [fetcher, _] = fetchers();
    // It fails for want of an answer, after its greeting came through.
    let failed = attempt(&host, "caller", "run", &fetcher.fetch(&format!("https://{place}/"))).await;
    assert!(failed.starts_with("refused: "), "{fetcher}: {failed}");
    let greeting = greetings.recv_timeout(crate::support::PATIENCE).unwrap();
    assert!(greeting.starts_with(&[22, 3]), "{fetcher}: {greeting:?}");
    assert!(greeting.windows(13).any(|window| window == b"api.localhost"), "control: the name is in it");
    let fronted = format!(
        "/usr/bin/python3 -c \"
import socket, ssl
context = ssl._create_unverified_context()
context.wrap_socket(socket.create_connection(('api.localhost', {port})), server_hostname='evil.test')\""
    );
    assert!(Path::new("/usr/bin/python3").exists(), "Python is not installed here");
    let cut = attempt(&host, "caller", "run", &fronted).await;
    assert!(cut.starts_with("refused: ") && cut.contains("wrap_socket"), "{cut}");
    let attempt = noted(&host, "caller", &format!("evil.test:{port}"), AttemptOutcome::Refused).await;
    assert_eq!(attempt.reason, "TLS asked for it on a connection to api.localhost");
    // The connection was there, and nothing came over it.
    assert_eq!(greetings.recv_timeout(crate::support::PATIENCE).unwrap(), b"");
}

/// A server that speaks TLS, with a certificate for `localhost` of an authority of these tests, and greets everybody.
struct TlsServer {
    process: Child,
    address: SocketAddr,
}

/// The files of that server and its authority; those of the tests of the host's own requests.
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugward-host/src/outbound/tests");

impl TlsServer {
    fn start() -> Self {
        const SERVE: &str = "
import http.server, ssl, sys
class Greeter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'hello')
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Greeter)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + '/server.pem', sys.argv[1] + '/server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()";
        let mut process = Command::new("/usr/bin/python3")
            .args(["-c", SERVE, CERTIFICATES])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python is not installed here");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        Self { process, address: ([127, 0, 0, 1], port).into() }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _over = self.process.kill();
        let _collected = self.process.wait();
    }
}

// Requirement 91: TLS goes from the program to its host, with the host's own certificate: a whole exchange over it works
// unmodified, and a program that does not trust the host is the one who says so.
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_between_the_program_and_its_host() {
    let server = TlsServer::start();
    let port = server.address.port();
    let host = production().await;
    let fixture = Fixture::imported("caller", &["attempts"]).permission(&format!("net:localhost:{port}"));
    let package = fixture.package();
    std::fs::copy(format!("{CERTIFICATES}/authority.pem"), package.path().join("authority.pem")).unwrap();
    host.host.install(package.path(), None).await.unwrap();
    host.approve("caller").await;
    host.host.enable("caller").await.unwrap();
    let url = format!("https://localhost:{port}/");
    for fetcher in fetchers() {
        let untrusted = attempt(&host, "caller", "run", &fetcher.fetch(&url)).await;
        assert!(untrusted.starts_with("refused: ") && untrusted.contains("certificate"), "{fetcher}: {untrusted}");
        let trusting = format!(
            "export NODE_EXTRA_CA_CERTS=\"$PWD/authority.pem\" SSL_CERT_FILE=\"$PWD/authority.pem\"; {}",
            fetcher.fetch(&url)
        );
        assert_eq!(attempt(&host, "caller", "run", &trusting).await, "done: hello", "{fetcher}");
    }
    noted(&host, "caller", &format!("localhost:{port}"), AttemptOutcome::Allowed).await;
}

// Hosts below a domain are for programs that know proxy settings; curl is one that does, and asks with `CONNECT`.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_proxy_settings_finds_hosts_below_a_domain() {
    let server = TlsServer::start();
    let port = server.address.port();
    let host = production().await;
    host.run(&Fixture::imported("caller", &["attempts"]).permission(&format!("net:*.localhost:{port}"))).await;
    let curl = find_program("curl");
    // The certificate is for another name of the same server, which is not what this test is about.
    let fetch = |place: &str| format!("{} --silent --show-error --insecure https://{place}/", curl.display());
    let answer = attempt(&host, "caller", "run", &fetch(&format!("api.localhost:{port}"))).await;
    assert_eq!(answer, "done: hello");
    noted(&host, "caller", &format!("api.localhost:{port}"), AttemptOutcome::Allowed).await;
    for place in [format!("evil.test:{port}"), "api.localhost:9".to_owned()] {
        let answer = attempt(&host, "caller", "run", &fetch(&place)).await;
        assert!(answer.contains("403"), "{place}: {answer}");
        noted(&host, "caller", &place, AttemptOutcome::Refused).await;
    }
}

/// A program the test command sees to.
fn find_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("`{name}` is not on PATH: install it, or run `cargo xtask test`, which does"))
}

// Requirement 91: an address of this machine may be granted by itself, and then it is just that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_address_is_just_that_one() {
    let (granted, beside) = (web_server(), web_server());
    let host = production().await;
    host.run(&Fixture::imported("caller", &["attempts"]).permission(&format!("net:{granted}"))).await;
    let [fetcher, _] = fetchers();
    for (url, reached) in [
        (format!("http://{granted}/"), true),
        (format!("http://localhost:{}/", granted.port()), true),
        (format!("http://127.0.0.2:{}/", granted.port()), false),
        (format!("http://{beside}/"), false),
    ] {
        let answer = attempt(&host, "caller", "run", &fetcher.fetch(&url)).await;
        assert_eq!(answer == "done: hello", reached, "{fetcher} {url}: {answer}");
    }
}
