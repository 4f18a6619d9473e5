//! `initialize`: who we are, what works, which plugins are there. Also what `server/discover` says of it.
//!
//! Owns our answer and the name a client gets in traces. Answers at once, while plugins still start (case B036). The
//! version is negotiated by the connection (case B032). Refuses to announce what is not routed (case B089).

use plugward_host::Host;
use plugward_protocol::{Implementation, ServerHelloOut};
use serde_json::value::RawValue;

use super::instructions;
use super::view::View;

/// Longest name of a client in traces and decisions, in bytes. Real ones are words such as `claude-code`.
const MAX_CLIENT_NAME_BYTES: usize = 64;

/// Who we are.
pub(super) fn identity() -> Implementation {
    Implementation {
        name: "plugward".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        title: Some("Plugward".to_owned()),
    }
}

/// Everything that works and nothing else, as an object; the same in every revision.
pub(super) fn capabilities(host: &Host, view: &View) -> Box<RawValue> {
    let offers = view.offers(host);
    let mut text = String::from("{\"tools\":{\"listChanged\":true}");
    for (is_offered, name) in [
        (offers.prompts, "prompts"),
        (offers.resources, "resources"),
        (offers.completions, "completions"),
        (offers.logging, "logging"),
    ] {
        if is_offered {
            text.push_str(&format!(",\"{name}\":{{}}"));
        }
    }
    text.push('}');
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Our answer to `initialize`.
pub(super) fn hello(host: &Host, view: &View) -> ServerHelloOut {
    ServerHelloOut {
        server: identity(),
        capabilities: capabilities(host, view),
        instructions: Some(instructions::text(&view.overview(host), view.profile().mode)),
    }
}

/// The caller in traces and decisions: `mcp:` and the client's name, made safe. Self-reported, so it is a label and
/// never a base for trust.
pub(super) fn caller(name: Option<&str>) -> String {
    let safe = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => character,
        _ => '-',
    };
    let name: String = name.unwrap_or_default().trim().chars().take(MAX_CLIENT_NAME_BYTES).map(safe).collect();
    if name.is_empty() { "mcp:unknown".to_owned() } else { format!("mcp:{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_client_cannot_forge_a_trace() {
        assert_eq!(caller(Some("claude-code")), "mcp:claude-code");
        assert_eq!(caller(Some(" Visual Studio\u{202e}\n\"x\" ")), "mcp:Visual-Studio---x-");
        assert_eq!(caller(Some(&"é".repeat(5000))).len(), "mcp:".len() + MAX_CLIENT_NAME_BYTES);
        assert_eq!((caller(None).as_str(), caller(Some(" ")).as_str()), ("mcp:unknown", "mcp:unknown"));
    }
}
