//! Manifests of servers elsewhere: what is approved is one place, and what is sent there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use plugward_policy::{Manifest, RemoteTransport, SandboxLevel, parse_manifest};

fn text(lines: &str) -> String {
    format!("id: far\nname: Far\nversion: 1.0.0\nbackend:\n  type: mcp\n{lines}")
}

fn parse(lines: &str) -> (Manifest, Vec<String>) {
    let parsed = parse_manifest(&text(lines), "plugin.yaml").unwrap_or_else(|error| panic!("{error}\n{lines}"));
    (parsed.manifest, parsed.warnings.iter().map(ToString::to_string).collect())
}

fn refused(lines: &str) -> String {
    parse_manifest(&text(lines), "plugin.yaml").expect_err(lines).to_string()
}

#[test]
fn the_place_is_permitted_by_itself_and_nothing_else_is() {
    let lines = "  transport: streamable_http\n  url: https://mcp.example.test/v1\n  headers: {X-Region: eu, Authorization: \
                 'Bearer ${TOKEN}'}\n  secret_headers: [X-Region]\n";
    let (manifest, warnings) = parse(lines);
    assert_eq!(warnings, [""; 0]);
    let remote = manifest.backend.remote().unwrap();
    assert_eq!(
        (remote.transport, remote.url.to_string().as_str()),
        (RemoteTransport::StreamableHttp, "https://mcp.example.test/v1")
    );
    let permissions: Vec<String> = manifest.all_permissions().iter().map(ToString::to_string).collect();
    assert_eq!(permissions, ["net:mcp.example.test:443"]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(manifest.backend.env, [pair("X-Region", "eu"), pair("Authorization", "Bearer ${TOKEN}")]);
    assert_eq!(manifest.backend.secret_env, ["X-Region"]);
    assert_eq!(manifest.min_sandbox_level, SandboxLevel::None);
    // What clients' settings call it; and the first HTTP transport.
    for (word, transport) in [("http", RemoteTransport::StreamableHttp), ("sse", RemoteTransport::Sse)] {
        let (manifest, _) = parse(&format!("  transport: {word}\n  url: http://127.0.0.1:8080/mcp\n"));
        assert_eq!(manifest.backend.remote().unwrap().transport, transport);
    }
}

// SSRF, and whoever is on the way: no plain text beyond this machine, no place that a variable could move.
#[test]
fn a_place_has_one_reading_and_is_reached_over_tls() {
    for (url, part) in [
        ("http://mcp.example.test/", "without TLS"),
        ("http://10.0.0.1/", "without TLS"),
        ("http://localhost.example.test/", "without TLS"),
        ("https://${HOST}/mcp", "refers to a variable"),
        ("https://user@mcp.example.test/", "has a user before its host"),
        ("https://*.example.test/", "wildcard"),
        ("file:///etc/passwd", "does not begin with"),
    ] {
        let error = refused(&format!("  transport: streamable_http\n  url: '{url}'\n"));
        assert!(error.contains("backend.url") && error.contains(part), "{url}: {error}");
    }
    for url in ["http://localhost:3000/mcp", "http://[::1]:3000/", "http://127.0.0.2/"] {
        parse(&format!("  transport: streamable_http\n  url: '{url}'\n"));
    }
    let (_, warnings) = parse("  transport: streamable_http\n  url: https://169.254.169.254/\n");
    assert_eq!(warnings.len(), 1, "a person should think twice about a metadata service: {warnings:?}");
    let (_, warnings) = parse("  transport: sse\n  url: https://mcp.example.test/sse?api_key=0123456789\n");
    assert!(warnings.iter().any(|warning| warning.contains("secret in its query, `api_key`")), "{warnings:?}");
}

#[test]
fn headers_of_the_host_itself_are_not_for_manifests() {
    for name in ["Host", "content-length", "Transfer-Encoding", "Mcp-Session-Id", "MCP-Protocol-Version", "Accept"] {
        let lines = format!("  transport: streamable_http\n  url: https://a.example.test/\n  headers: {{{name}: x}}\n");
        let error = refused(&lines);
        assert!(error.contains("is set by the host itself"), "{name}: {error}");
    }
    for (headers, part) in [
        ("{'a b': x}", "is not valid"),
        ("{'X-A': \"x\\ny\"}", "has a character that no header has"),
        ("{X-A: x, x-a: y}", "with other capitals"),
    ] {
        let error =
            refused(&format!("  transport: streamable_http\n  url: https://a.example.test/\n  headers: {headers}\n"));
        assert!(error.contains(part), "{headers}: {error}");
    }
    let (_, warnings) = parse(
        "  transport: streamable_http\n  url: https://a.example.test/\n  headers: {Authorization: Bearer 0123456789abcdef}\n",
    );
    assert!(warnings.iter().any(|warning| warning.contains("what looks like a secret")), "{warnings:?}");
}

// A person must not be shown what has no effect.
#[test]
fn what_is_for_a_process_is_refused_for_a_server_elsewhere_and_the_reverse() {
    let url = "  transport: streamable_http\n  url: https://a.example.test/\n";
    for line in ["command: x", "args: [x]", "env: {A: b}", "cwd: x", "stdout: strict"] {
        let error = refused(&format!("{url}  {line}\n"));
        assert!(error.contains("is for a process"), "{line}: {error}");
    }
    for permission in ["fs.read:/data", "process.spawn", "env:FAR_HOST"] {
        let error = refused(&format!("{url}permissions: ['{permission}']\n"));
        assert!(error.contains("is for a process"), "{permission}: {error}");
    }
    let error = refused(&format!("{url}permissions: ['net:b.example.test']\n"));
    assert!(error.contains("is not where the server is"), "{error}");
    parse(&format!("{url}permissions: ['net:a.example.test:443', 'mcp.prompts']\n"));
    let error = refused("  transport: stdio\n  command: x\n  url: https://a.example.test/\n");
    assert!(error.contains("is for a server elsewhere"), "{error}");
}
