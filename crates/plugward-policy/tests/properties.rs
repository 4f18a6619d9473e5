//! Properties over generated input: whatever a stranger writes, reading it ends in a value or in
//! findings, and what is canonical stays so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use plugward_policy::{ApprovedArgument, ToolPin, expand, parse_manifest, visible};
use proptest::prelude::*;

const MANIFEST: &str = "\
id: demo
name: Demo
version: 1.0.0
permissions: [notes.read]
contributes: {tools: [demo.a]}
backend:
  type: mcp
  transport: stdio
  command: npx
  args: ['-y', pkg@1.2.3, '--key=${API_KEY}']
  env: {A: 1.10, B: \"x\"}
  tool_timeout_seconds: 5
tools: {allow: ['a*']}
";

/// Pieces that mean something to YAML, to references or to terminals.
fn pieces() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::from("\n")),
        Just(String::from("  ")),
        Just(String::from("\t")),
        Just(String::from(": ")),
        Just(String::from("- ")),
        Just(String::from("[")),
        Just(String::from("]}")),
        Just(String::from("{a: &a ")),
        Just(String::from("*a")),
        Just(String::from("!!int ")),
        Just(String::from("|\n")),
        Just(String::from("'")),
        Just(String::from("\"\\x")),
        Just(String::from("---\n")),
        Just(String::from("? ")),
        Just(String::from("<<: ")),
        Just(String::from("#")),
        Just(String::from("${")),
        Just(String::from("\u{feff}")),
        Just(String::from("\0")),
        Just(String::from("null")),
        Just(String::from("99999999999999999999")),
        any::<char>().prop_map(String::from),
    ]
}

/// JSON values, as text with random white space.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map("\\PC{0,4}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The same value with the keys of every object in the opposite order.
fn turned(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Array(items) => items.iter().map(turned).collect(),
        serde_json::Value::Object(map) => {
            let turned = map.iter().rev().map(|(key, value)| (key.clone(), turned(value)));
            serde_json::Value::Object(turned.collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    // A file from anywhere must never bring down the program that looks at it.
    #[test]
    fn reading_a_damaged_manifest_always_ends_in_findings_or_a_manifest(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..12_usize, pieces()), 1..6),
    ) {
        let mut text: Vec<char> = MANIFEST.chars().collect();
        for (place, removed, piece) in edits {
            let start = place.index(text.len());
            let end = (start + removed).min(text.len());
            text.splice(start..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap();
        let findings = match parse_manifest(&text, "plugin.yaml") {
            Ok(parsed) => parsed.warnings,
            Err(error) => {
                prop_assert!(!error.diagnostics().is_empty());
                prop_assert!(!error.to_string().is_empty());
                error.diagnostics().to_vec()
            }
        };
        for finding in findings {
            let shown = finding.to_string();
            prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
            prop_assert!(finding.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{}", shown);
        }
    }

    #[test]
    fn reading_noise_always_ends(noise in proptest::collection::vec(pieces(), 0..40)) {
        let _ = parse_manifest(&noise.concat(), "plugin.yaml");
    }

    // Whatever an environment holds comes out once and unchanged.
    #[test]
    fn an_expanded_value_is_passed_through_unread(value in "\\PC{0,20}") {
        let expanded = expand("<${X}>", |_| Some(value.clone())).unwrap();
        prop_assert_eq!(expanded, format!("<{value}>"));
    }

    #[test]
    fn expanding_never_panics(text in "[$${}:A a_-]{0,20}") {
        let _ = expand(&text, |name| (name != "a").then(|| name.to_owned()));
    }

    #[test]
    fn shown_text_is_harmless_and_ordinary_text_is_unchanged(text in any::<String>()) {
        let shown = visible(&text);
        prop_assert!(!shown.chars().any(char::is_control));
        prop_assert_eq!(&visible(&shown), &shown);
        if text.is_ascii() && !text.contains(|c: char| c.is_ascii_control()) {
            prop_assert_eq!(shown, text);
        }
    }

    // B044: only the meaning of a definition counts, not how its server happened to write it.
    #[test]
    fn pins_see_meaning_and_nothing_else(schema in json(), other in json()) {
        let tool = |schema: &serde_json::Value| serde_json::json!({"name": "t", "inputSchema": schema});
        let pin = ToolPin::from_raw(&tool(&schema).to_string()).unwrap();
        let pretty = serde_json::to_string_pretty(&turned(&tool(&schema))).unwrap();
        prop_assert_eq!(&ToolPin::from_raw(&pretty).unwrap(), &pin);
        let changed = ToolPin::from_raw(&tool(&other).to_string()).unwrap();
        prop_assert_eq!(changed == pin, schema == other);
    }

    // B020: no position of a secret in an argument lets it through.
    #[test]
    fn no_argument_shows_a_secret(before in "[a-z=: ]{0,6}", after in "[a-z=: ]{0,6}", times in 1..3_usize) {
        let secret = "S3CR3T-VALUE";
        let argument = format!("{before}{}{after}", secret.repeat(times));
        let approved = ApprovedArgument::new(&argument, &[secret.to_owned()]);
        prop_assert!(!approved.masked().contains(secret));
        prop_assert_eq!(approved.masked(), format!("{before}{}{after}", "***".repeat(times)));
    }
}
