//! Settings as people have them, ours among them and gone again. A user's file with one comment or comma fewer than
//! before is what these stand against.

use serde_json::json;

use super::super::table::Shape;
use super::*;

/// Texts with servers in them, without, and with all that editors and people put there.
const JSONC: &[&str] = &[
    "{}",
    "{}\n",
    "{ }\n",
    "{\n}\n",
    "{\r\n}\r\n",
    "{\n  // nothing yet\n}\n",
    "{ /* nothing yet */ }\n",
    "{\"a\":1}",
    "{\"a\":1,}\n",
    "{\n  \"a\": 1\n}\n",
    "{\n  \"a\": 1, // one\n}\n",
    "{\n  \"a\": 1 // one, and no comma\n  // at the end\n}\n",
    "{\n  \"a\": 1 /* one\n  over lines */\n}\n",
    "// head\n{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"files\": {\n\t\t\t\"command\": \"npx\",\n\t\t\t\"args\": [\"-y\", \"files\"]\n\t\t}\n\t}\n}\n",
    "{\r\n    \"mcpServers\": {\r\n        \"files\": { \"command\": \"files\" }, // mine\r\n    },\r\n    \"last\": [1, 2.50, 12345678901234567890123],\r\n}\r\n",
    "\u{feff}{\n  \"mcpServers\": {},\n  \"n\": 1e400\n}",
    "{\"mcpServers\": {\"files\": {\"command\": \"files\"}}, \"other\": {\"k\": \"v, } ] // no comment\"}}",
    "{\n  \"mcpServers\": {\n    // \"old\": { \"command\": \"old\" },\n  },\n}\n",
    "{\"mcpServers\":null,\"a\":1}",
    "{\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"files\",\n      \"env\": { \"KEY\": \"\\u0041\\\"}\" }\n    },\n\n    // more to come\n    \"notes\": { \"command\": \"notes\" }\n  }\n}\n\n\n",
];

const TOML: &[&str] = &[
    "",
    "\n",
    "model = \"large\"",
    "# head\nmodel = \"large\" # best\n\n[mcp_servers.files]\ncommand = \"files\"\nargs = [\n  \"a\", # first\n  \"[not.a.table]\",\n]\n\n# the end\n",
    "model = \"large\"\r\n\r\n[mcp_servers.files]\r\ncommand = 'C:\\files'\r\nenv = { A = \"1\" }\r\n",
    "\u{feff}[a]\nb = \"\"\"\n[mcp_servers.plugward]\n\"\"\"\nc = '''x''''\n",
    "mcp_servers.files.command = \"files\"\n\n[tui]\nx = 1979-05-27T07:32:00Z\n",
    "[[profiles]]\nname = \"a\"\n[[profiles]]\nname = \"b\"\n[mcp_servers]\n[mcp_servers.\"with.dot\"]\ncommand = \"x\"\n# trailing\n",
];

const YAML_MAP: &[&str] = &[
    "",
    "# only a comment\n",
    "GOOSE_MODEL: large\n",
    "GOOSE_MODEL: large",
    "# head\nextensions:\n  # built in\n  developer:\n    type: builtin\n    enabled: true\n    timeout: 300\n\n  files:\n    type: stdio\n    cmd: files\n    args:\n    - -y\n    - files\nGOOSE_MODE: auto # tail\n",
    "extensions:\r\n    developer: {type: builtin, enabled: yes}\r\nlast: 'x'\r\n",
    "extensions:\nother: 1\n",
    "extensions: # all of them\n  a:\n    note: |\n      plugward:\n        cmd: no\n    text: >-\n      folded\n\n      text\n",
    "\u{feff}a: &x\n  b: 1\nc: *x\n",
    "---\na: 1\n",
];

const YAML_LIST: &[&str] = &[
    "",
    "name: mine\nmodels: []\n",
    "mcpServers:\n  - name: files\n    command: files\n    args:\n      - a\nmodels:\n- name: m\n",
    "mcpServers:\n- name: files\n  command: files # here\n\n# end\n",
];

fn cases() -> Vec<(Format, Spot<'static>, Value, &'static str)> {
    let arguments = ["serve", "--stdio", "--client", "it's \"me\""].map(ToOwned::to_owned);
    let entry = |shape: Shape| shape.entry("/opt/my tools/plugward", &arguments);
    let spot = |container, is_list| Spot { container, is_list, name: "plugward" };
    let with = |format, spot: Spot<'static>, shape: Shape, texts: &'static [&'static str]| {
        texts.iter().map(move |text| (format, spot, entry(shape), *text)).collect::<Vec<_>>()
    };
    let nulls = |(_, _, _, text): &(Format, Spot<'static>, Value, &'static str)| !text.contains("\"mcpServers\":null");
    [
        with(Format::Jsonc, spot("mcpServers", false), Shape::Plain, JSONC),
        with(Format::Jsonc, spot("amp.mcpServers", false), Shape::TypedWithEnv, JSONC),
        with(Format::Jsonc, spot("mcpServers", false), Shape::CommandList, JSONC),
        with(Format::Toml, spot("mcp_servers", false), Shape::Limited, TOML),
        with(Format::Yaml, spot("extensions", false), Shape::Extension, YAML_MAP),
        with(Format::Yaml, spot("mcpServers", true), Shape::ListItem, YAML_LIST),
    ]
    .concat()
    .into_iter()
    .filter(nulls)
    .collect()
}

/// Whether `long` is `short` with more in between: nothing of a file may go when an entry comes.
fn is_within(short: &str, long: &str) -> bool {
    let mut rest = long.chars();
    short.chars().all(|wanted| rest.any(|found| found == wanted))
}

#[test]
fn an_entry_comes_and_nothing_goes() {
    for (format, spot, entry, text) in cases() {
        let edited = insert(format, text, spot, &entry).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(is_within(text, &edited), "{text:?}\n{edited:?}");
        let found = entries(format, &edited, spot).unwrap();
        assert_eq!(find(&found, "plugward"), Some(&entry), "{edited}");
        assert_eq!(found.len(), entries(format, text, spot).unwrap().len() + 1, "{edited}");
        assert!(!edited.contains("\r\n") || !edited.replace("\r\n", "").contains('\n'), "mixed line ends: {edited:?}");
        let again = insert(format, &edited, spot, &entry).unwrap();
        assert_eq!(
            read(format, body(&again)),
            read(format, body(&edited)),
            "an entry is replaced, not repeated: {again}"
        );
    }
}

/// Without a record, and after somebody else has edited the file, only the entry goes.
#[test]
fn an_entry_goes_and_nothing_with_it() {
    let mut exact = 0;
    let all = cases();
    for (format, spot, entry, text) in &all {
        let edited = insert(*format, text, *spot, entry).unwrap();
        let made = !has_container(*format, text, *spot).unwrap();
        let back = remove(*format, &edited, *spot, made).unwrap_or_else(|error| panic!("{edited}: {error}"));
        exact += usize::from(back == **text);
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != ',').collect::<String>();
        let empties = ["{}", "mcpServers", ":", "\""];
        if bare(&back) != bare(text) {
            // An empty file becomes an empty object.
            assert!(text.trim().is_empty() && empties.iter().any(|part| back.contains(part)), "{text:?}\n{back:?}");
        }
        for comment in text.lines().filter(|line| line.contains("//") || line.contains('#')) {
            assert!(back.contains(comment.trim()), "{comment:?} is gone: {back:?}");
        }
    }
    assert!(exact * 10 >= all.len() * 7, "only {exact} of {} are the same to the byte", all.len());
}

#[test]
fn an_entry_among_later_ones_goes_alone() {
    let spot = Spot { container: "mcpServers", is_list: false, name: "plugward" };
    let cases = [
        ("{\"mcpServers\": {\"plugward\": {}, \"b\": 1}}", "{\"mcpServers\": {\"b\": 1}}"),
        ("{\"mcpServers\": {\"a\": 1, \"plugward\": {}, \"b\": 1}}", "{\"mcpServers\": {\"a\": 1, \"b\": 1}}"),
        ("{\"mcpServers\": {\"a\": 1, \"plugward\": {}}}", "{\"mcpServers\": {\"a\": 1}}"),
        ("{\"mcpServers\": {\"plugward\": {}}}", "{\"mcpServers\": {}}"),
        (
            "{\"mcpServers\": {\n  \"a\": 1, // a\n  \"plugward\": {} // ours\n}}",
            "{\"mcpServers\": {\n  \"a\": 1 // a\n // ours\n}}",
        ),
        (
            "{\"mcpServers\": {\n  \"plugward\": {\n  },\n  // b\n  \"b\": 1\n}}",
            "{\"mcpServers\": {\n  // b\n  \"b\": 1\n}}",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(remove(Format::Jsonc, text, spot, false).unwrap(), expected, "{text}");
    }
    let spot = Spot { container: "mcp_servers", is_list: false, name: "plugward" };
    let text = "[mcp_servers.plugward]\ncommand = \"x\"\n\n[mcp_servers.plugward.env]\nA = \"1\"\n# about b\n[b]\nc = 1\n\
                [mcp_servers.plugward.tools.\"a.b\"]\nmode = \"ask\"\n";
    assert_eq!(remove(Format::Toml, text, spot, false).unwrap(), "# about b\n[b]\nc = 1\n");
    let spot = Spot { container: "extensions", is_list: false, name: "plugward" };
    let text =
        "extensions:\n  a:\n    x: 1\n  plugward:\n    cmd: x\n    args:\n    - y\n\n  # about b\n  b:\n    x: 1\n";
    assert_eq!(
        remove(Format::Yaml, text, spot, false).unwrap(),
        "extensions:\n  a:\n    x: 1\n\n  # about b\n  b:\n    x: 1\n"
    );
}

/// A file that a client itself cannot read, or that leaves no room, stays as it is; a person is told where.
#[test]
fn what_cannot_be_edited_is_refused_with_its_place() {
    let json = Spot { container: "mcpServers", is_list: false, name: "plugward" };
    let toml = Spot { container: "mcp_servers", is_list: false, name: "plugward" };
    let yaml = Spot { container: "extensions", is_list: false, name: "plugward" };
    let cases = [
        (Format::Jsonc, json, "{\n  \"a\": 1\n  \"b\": 2\n}", "line 2, column 9"),
        (Format::Jsonc, json, "{\"a\": 'x'}", "line 1, column 7"),
        (Format::Jsonc, json, "{\"a\": 1", "line 1, column 1"),
        (Format::Jsonc, json, "[]", "no table of settings"),
        (Format::Jsonc, json, "{\"mcpServers\": [1]}", "`mcpServers` has an unexpected form"),
        (
            Format::Jsonc,
            json,
            "{\"mcpServers\": {}, \"mcpServers\": {}}",
            "line 1, column 20: key `mcpServers` is there twice",
        ),
        (Format::Jsonc, json, "// nothing\n", "comments and nothing else"),
        (Format::Toml, toml, "a = 1\nb = \n", "line 2, column"),
        (Format::Toml, toml, "mcp_servers = { a = { command = \"x\" } }\n", "without touching more"),
        (Format::Yaml, yaml, "a: 1\nb: [1\n", "line 2, column 4"),
        (Format::Yaml, yaml, "a: 1\n---\nb: 1\n", "several YAML documents"),
        (Format::Yaml, yaml, "extensions: {a: {cmd: x}}\n", "written in braces"),
        (Format::Yaml, yaml, "a: 1\na: 2\n", "key `a` is there twice"),
        (Format::Yaml, yaml, "- a\n", "no table of settings"),
    ];
    for (format, spot, text, expected) in cases {
        let error = insert(format, text, spot, &json!({ "command": "x" })).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let within = "[mcp_servers]\nplugward = { command = \"x\" }\n";
    assert!(remove(Format::Toml, within, toml, false).unwrap_err().to_string().contains("within another table"));
    let flow = "extensions: {plugward: {cmd: x}, b: {cmd: y}}\n";
    assert!(remove(Format::Yaml, flow, yaml, false).is_err());
}

#[test]
fn what_a_person_pastes_is_a_whole_file() {
    for (format, spot, entry, _) in cases() {
        let text = snippet(format, spot, &entry);
        assert_eq!(find(&entries(format, &text, spot).unwrap(), "plugward"), Some(&entry), "{text}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// JSON with comments, commas and layout as they come.
    fn document() -> impl Strategy<Value = String> {
        let gap = prop::sample::select(vec!["", " ", "\n", "\n\t", " // note\n", " /* note */ ", "\n\n    "]);
        let value = prop::sample::select(vec![
            "1",
            "-2.50",
            "\"x\"",
            "[]",
            "[1, 2,]",
            "{}",
            "{\"a\": {\"b\": null}}",
            "true",
            "\"}{//\"",
        ]);
        let member = (gap.clone(), value, gap.clone());
        let members = prop::collection::vec(member, 0..5);
        let servers = prop::option::of((prop::collection::vec((gap.clone(), gap.clone()), 0..3), any::<bool>()));
        (members, servers, any::<bool>(), gap).prop_map(|(members, servers, trailing, last)| {
            let mut parts: Vec<String> = members
                .iter()
                .enumerate()
                .map(|(index, (before, value, after))| format!("{before}\"k{index}\": {value}{after}"))
                .collect();
            if let Some((inner, trailing)) = servers {
                let inner: Vec<String> = inner
                    .iter()
                    .enumerate()
                    .map(|(index, (before, after))| format!("{before}\"s{index}\": {{\"command\": \"x\"}}{after}"))
                    .collect();
                let comma = if trailing && !inner.is_empty() { "," } else { "" };
                parts.insert(parts.len() / 2, format!("\"mcpServers\": {{{}{comma}}}", inner.join(",")));
            }
            let comma = if trailing && !parts.is_empty() { "," } else { "" };
            format!("{{{}{comma}{last}}}", parts.join(","))
        })
    }

    proptest! {
        /// Whatever a file looks like: our entry is added or refused, and never costs anything else.
        #[test]
        fn no_document_loses_anything(text in document()) {
            let spot = Spot { container: "mcpServers", is_list: false, name: "plugward" };
            let entry = json!({ "command": "/opt/plugward", "args": ["serve"] });
            let edited = insert(Format::Jsonc, &text, spot, &entry).unwrap();
            prop_assert!(is_within(&text, &edited), "{text:?} {edited:?}");
            let made = !has_container(Format::Jsonc, &text, spot).unwrap();
            let back = remove(Format::Jsonc, &edited, spot, made).unwrap();
            prop_assert_eq!(read(Format::Jsonc, &back).unwrap(), read(Format::Jsonc, &text).unwrap());
            prop_assert_eq!(back.matches("note").count(), text.matches("note").count());
        }
    }
}
