//! Example rows for the tests of the store.

use plugward_store::{ApprovalRow, PinRow, PluginRow, Span};

pub(crate) fn plugin(id: &str) -> PluginRow {
    PluginRow {
        id: id.to_owned(),
        source: "./demo folder".to_owned(),
        version: "1.2.3".to_owned(),
        package_dir: format!("packages/{id}"),
        package_digest: "sha256:aa".to_owned(),
        manifest_text: "id: demo\n# kept as written\n".to_owned(),
        enabled: false,
        installed_at_us: 1_700_000_000_000_000,
        last_error: None,
    }
}

pub(crate) fn approval(plugin_id: &str, digest: &str) -> ApprovalRow {
    ApprovalRow {
        plugin_id: plugin_id.to_owned(),
        digest: digest.to_owned(),
        launch_digest: format!("{digest}-launch"),
        subject_json: r#"{"argv":["demo"]}"#.to_owned(),
        how: "test".to_owned(),
        who: "uid 1000".to_owned(),
        at_us: 1_700_000_000_000_001,
        revoked_at_us: None,
    }
}

pub(crate) fn pin(plugin_id: &str, tool: &str) -> PinRow {
    PinRow {
        plugin_id: plugin_id.to_owned(),
        tool: tool.to_owned(),
        digest: format!("sha256:{tool}"),
        definition_json: format!(r#"{{"name":"{tool}","x-unknown":12345678901234567890123}}"#),
    }
}

pub(crate) fn span(number: u64) -> Span {
    Span {
        trace_id: format!("{:032x}", number / 10),
        span_id: format!("{number:016x}"),
        parent_span_id: None,
        name: "tools/call".to_owned(),
        kind: "call".to_owned(),
        plugin_id: Some("demo".to_owned()),
        tool: Some("echo".to_owned()),
        caller: Some("cli".to_owned()),
        started_at_us: i64::try_from(number).unwrap(),
        duration_us: 7,
        outcome: "ok".to_owned(),
        attributes_json: r#"{"bytes":3}"#.to_owned(),
        events_json: "[]".to_owned(),
    }
}
