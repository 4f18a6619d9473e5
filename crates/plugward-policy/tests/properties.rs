//! Properties over generated input: whatever a stranger writes, reading it ends in a value or in
//! findings, and what is canonical stays so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use plugward_policy::{
    Access, AccessPermission, ApprovedArgument, GrantSet, NetRule, PathGrant, Permission, ToolPin, expand,
    parse_manifest, visible,
};
use proptest::prelude::*;

const MANIFEST: &str = "\
id: demo
name: Demo
version: 1.0.0
permissions: [notes.read, 'fs.read:~/a', 'fs.write:${D:-/d}', 'net:*.a.test:1', 'net:[::1]', 'env:A1', process.spawn]
contributes: {tools: [demo.a]}
backend:
  type: mcp
  transport: stdio
  command: npx
  args: ['-y', pkg@1.2.3, '--key=${API_KEY}']
  env: {A: 1.10, B: \"x\"}
  tool_timeout_seconds: 5
tools: {allow: ['a*']}
sandbox: {minimum_level: partial, memory_bytes: 67108864, processes: 9}
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

/// Texts that are, or nearly are, permissions of the machine.
fn access_texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "(fs.read|fs.write|net|env|secret|process.spawn|x)?:?[-~/.$*{}:a-cA1\\[\\]_ \u{0}\u{202e}]{0,16}",
        "(fs.read|fs.write):(/|~/|~|[$][{][A-B][}]|[$][{][A-B]:-/?[a.]{0,3}[}])(/[a.]{1,3}){0,3}",
        "net:([*]|([*][.])?[a-c0-9.-]{1,8}|[\\[][0-9a-f:.]{2,12}[\\]])(:[0-9]{0,6})?",
        "env:[A-C_0-9]{0,4}",
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

    // Invariant 8: a permission is its text. If reading and writing moved it, a grant would cover
    // something other than what was shown.
    #[test]
    fn a_permission_of_the_machine_is_its_text(text in access_texts()) {
        if let Ok(permission) = text.parse::<AccessPermission>() {
            let written = permission.to_string();
            prop_assert_eq!(&written.parse::<AccessPermission>().unwrap(), &permission);
            prop_assert!(AccessPermission::is_meant(&written));
            prop_assert_eq!(visible(&written), written);
        }
    }

    // Requirement 90: whatever variables hold, a grant leads to one absolute place or to an error.
    #[test]
    fn an_expanded_path_is_absolute_and_has_no_steps(
        path in "(/|~/|~|[$][{][AB][}])(/[a.$]{0,3}|[$][{]B[}]){0,4}",
        home in "(/[a.]{0,3}){0,3}",
        value in "[/.a~\u{0}$]{0,8}",
    ) {
        if let Ok(path) = PathGrant::new(path)
            && let Ok(place) = path.expand(Some(&home), |name| (name == "A").then(|| value.clone()))
        {
            prop_assert!(!place.contains('\0'));
            let inner = place.strip_prefix('/').unwrap();
            prop_assert!(place == "/" || inner.split('/').all(|part| !matches!(part, "" | "." | "..")), "{}", place);
        }
    }

    // Requirement 91: a rule for one host never covers another, whatever the plugin calls it.
    #[test]
    fn a_rule_covers_its_own_host_only(host in "[a-c.:\\[\\]0-2*-]{0,10}", asked in "[a-cA.:0-2*\u{0}-]{0,12}") {
        if let Ok(rule) = NetRule::new(&host)
            && rule.port() == Some(443)
            && rule.matches(&asked, 443)
        {
            let text = rule.to_string();
            let name = text.strip_suffix(":443").unwrap();
            let covered = match name.strip_prefix('*') {
                Some(suffix) => asked.to_ascii_lowercase().ends_with(suffix),
                None => asked.eq_ignore_ascii_case(name) || format!("[{asked}]") == name || asked.contains("::"),
            };
            prop_assert!(covered, "{} covers {}", text, asked);
        }
    }

    // A person who grants some of what is asked gives exactly that: no more, and nothing lost.
    #[test]
    fn what_is_granted_is_what_is_given(texts in proptest::collection::vec((access_texts(), any::<bool>()), 0..8)) {
        let mut access = Access::default();
        let mut wanted = Vec::new();
        for (text, granted) in texts {
            if let Ok(permission) = text.parse::<AccessPermission>()
                && access.insert(permission.clone())
                && granted
            {
                wanted.push(permission);
            }
        }
        let grants: GrantSet = wanted.iter().cloned().map(Permission::Access).collect();
        prop_assert_eq!(grants.missing_access(&access).len() + wanted.len(), access.permissions().len());
        if let Ok(here) = access.expand(Some("/home/ann"), |_| Some("/v".to_owned())) {
            let mut given = here.granted(&grants).as_written().permissions();
            given.sort();
            wanted.sort();
            prop_assert_eq!(given, wanted);
        }
        prop_assert!(access.describe().iter().all(|line| !line.text.is_empty() && !line.text.ends_with('.')));
    }
}
