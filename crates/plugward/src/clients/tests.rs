//! Whole machines in a folder: every client connected, edited, drifted and disconnected.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::table::Format;
use super::*;

struct Desk {
    user: TempDir,
    state: TempDir,
    variables: Vec<(&'static str, PathBuf)>,
    program: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let user = tempfile::tempdir().unwrap();
        let program = user.path().join("bin/plugward");
        fs::create_dir_all(user.path().join("bin")).unwrap();
        fs::write(&program, "").unwrap();
        Self { state: tempfile::tempdir().unwrap(), variables: vec![("HOME", user.path().to_owned())], user, program }
    }

    fn machine(&self) -> Machine {
        let variable = |name: &str| {
            let found = self.variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone().into_os_string())
        };
        Machine::of(variable, &self.program, self.state.path(), true)
    }

    fn path(&self, client: &'static ClientKind) -> PathBuf {
        self.machine().locate(client, None).unwrap()
    }

    fn write(&self, client: &'static ClientKind, text: &str) {
        let path = self.path(client);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn connect(&self, client: &'static ClientKind) -> Option<PathBuf> {
        let machine = self.machine();
        machine.connect(&machine.plan_connect(client, None).unwrap()).unwrap()
    }

    fn disconnect(&self, client: &'static ClientKind) {
        let machine = self.machine();
        machine.disconnect(&machine.plan_disconnect(client, None).unwrap()).unwrap();
    }

    fn standing(&self, client: &'static ClientKind) -> Standing {
        let found = self.machine().survey().into_iter().find(|report| report.client.name == client.name);
        found.unwrap().standing
    }
}

/// What somebody had before we came, one per client, with comments, order and keys of its own.
fn earlier(client: &ClientKind) -> String {
    let container = client.container;
    match client.format {
        Format::Jsonc => format!(
            "// mine\r\n{{\r\n\t\"zeta\": 1.50,\r\n\t\"{container}\": {{\r\n\t\t\"files\": {{ \"command\": \"files\", \
             \"unknown\": [1, ] }}, // keep\r\n\t}},\r\n\t\"alpha\": null\r\n}}"
        ),
        Format::Toml => format!("zeta = 1.50 # keep\n\n[{container}.files]\ncommand = 'files'\n\n# end\n[alpha]\nx=1"),
        Format::Yaml if client.shape == Shape::ListItem => {
            format!("# mine\nzeta: 1.50\n{container}:\n- name: files\n  command: files # keep\n\nalpha: ~\n")
        }
        Format::Yaml => format!("# mine\nzeta: 1.50\n{container}:\n    files: {{cmd: files}} # keep\n\nalpha: ~\n"),
    }
}

/// What a client's settings held before comes back to the byte.
#[test]
fn every_client_is_connected_and_put_back_to_the_byte() {
    for client in CLIENTS {
        let desk = Desk::new();
        let before = earlier(client);
        desk.write(client, &before);
        assert_eq!(desk.standing(client), Standing::Found, "{}", client.name);
        let backup = desk.connect(client).unwrap();
        assert_eq!(fs::read_to_string(backup).unwrap(), before);
        let text = fs::read_to_string(desk.path(client)).unwrap();
        for kept in ["keep", "1.50", "alpha", "files"] {
            assert!(text.contains(kept), "{}: {text}", client.name);
        }
        assert!(text.contains(&format!("\"{}\"", client.name)), "{text}");
        assert_eq!(desk.standing(client), Standing::Connected, "{text}");
        assert!(!desk.machine().plan_connect(client, None).unwrap().is_change());
        let report = desk.machine().survey().into_iter().find(|report| report.client.name == client.name).unwrap();
        assert_eq!(report.others, ["files"], "{}", client.name);
        desk.disconnect(client);
        assert_eq!(fs::read_to_string(desk.path(client)).unwrap(), before, "{}", client.name);
        assert_eq!(desk.standing(client), Standing::Found);
    }
}

#[test]
fn a_client_without_settings_gets_them_and_is_left_without() {
    for client in CLIENTS {
        let desk = Desk::new();
        assert_eq!(desk.standing(client), Standing::NotFound, "{}", client.name);
        assert_eq!(desk.connect(client), None);
        assert_eq!(desk.standing(client), Standing::Connected, "{}", client.name);
        desk.disconnect(client);
        assert_eq!(fs::read_dir(desk.user.path()).unwrap().count(), 1, "{}: only the program is left", client.name);
    }
}

/// Somebody adds a server after us: ours goes, theirs stays.
#[test]
fn later_edits_of_others_stay() {
    for client in CLIENTS {
        let desk = Desk::new();
        let before = earlier(client);
        desk.write(client, &before);
        desk.connect(client);
        let text = fs::read_to_string(desk.path(client)).unwrap();
        let edit = |text: &str| text.replace("1.50", "1.75").replace("keep", "kept");
        desk.write(client, &edit(&text));
        desk.disconnect(client);
        let after = fs::read_to_string(desk.path(client)).unwrap();
        // A last line without an end has got one.
        assert_eq!(after.trim_end(), edit(&before).trim_end(), "{}", client.name);
    }
}

#[test]
fn an_entry_that_starts_something_else_has_drifted_and_is_mended() {
    let cursor = client("cursor").unwrap();
    let desk = Desk::new();
    let drifted = |entry: Value| {
        desk.write(cursor, &json!({ "mcpServers": { "plugward": entry } }).to_string());
        match desk.standing(cursor) {
            Standing::Drifted(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let program = desk.program.display().to_string();
    let args = json!(["serve", "--stdio", "--client", "cursor"]);
    assert!(drifted(json!({ "command": "/gone/plugward", "args": args })).contains("is not there"));
    assert!(drifted(json!({ "command": "/bin/sh", "args": args })).contains("it starts `/bin/sh`"));
    assert!(drifted(json!({ "command": program, "args": ["-c", "x"] })).contains("its arguments are `-c x`"));
    assert!(drifted(json!({ "command": program, "args": args, "disabled": true })).contains("switched off"));
    assert!(drifted(json!({ "url": "https://example.test" })).contains("no program"));
    // What a person added stays when it is mended.
    desk.write(
        cursor,
        &json!({ "mcpServers": { "plugward": { "command": "x", "alwaysAllow": ["a"], "disabled": true } } })
            .to_string(),
    );
    desk.connect(cursor);
    assert_eq!(desk.standing(cursor), Standing::Connected);
    let text = fs::read_to_string(desk.path(cursor)).unwrap();
    assert!(text.contains("alwaysAllow") && !text.contains("disabled"), "{text}");
    // And what there was before was ours already: only the entry goes.
    desk.disconnect(cursor);
    let text: Value = serde_json::from_str(&fs::read_to_string(desk.path(cursor)).unwrap()).unwrap();
    assert_eq!(text, json!({ "mcpServers": {} }));
}

#[test]
fn connecting_anew_after_the_program_moved_still_goes_back_to_the_beginning() {
    let zed = client("zed").unwrap();
    let mut desk = Desk::new();
    let before = earlier(zed);
    desk.write(zed, &before);
    desk.connect(zed);
    desk.program = desk.user.path().join("bin/plugward-2");
    fs::write(&desk.program, "").unwrap();
    assert!(matches!(desk.standing(zed), Standing::Drifted(_)));
    desk.connect(zed);
    assert_eq!(desk.standing(zed), Standing::Connected);
    desk.disconnect(zed);
    assert_eq!(fs::read_to_string(desk.path(zed)).unwrap(), before);
}

#[test]
fn variables_that_move_a_client_are_followed() {
    let mut desk = Desk::new();
    let elsewhere = desk.user.path().join("elsewhere");
    desk.variables.push(("CODEX_HOME", elsewhere.clone()));
    desk.variables.push(("XDG_CONFIG_HOME", desk.user.path().join("xdg")));
    assert_eq!(desk.path(client("codex").unwrap()), elsewhere.join("config.toml"));
    assert_eq!(desk.path(client("amp").unwrap()), desk.user.path().join("xdg/amp/settings.json"));
    let machine = desk.machine();
    let project = Path::new("/project");
    assert_eq!(machine.locate(client("vscode").unwrap(), Some(project)).unwrap(), project.join(".vscode/mcp.json"));
    assert!(matches!(
        machine.locate(client("lm-studio").unwrap(), Some(project)),
        Err(ClientError::NoProject { title: "LM Studio" })
    ));
}

#[test]
fn another_state_folder_is_named_in_the_entry() {
    let desk = Desk::new();
    let machine = Machine::of(|_| Some(desk.user.path().into()), &desk.program, Path::new("/state"), false);
    let entry = machine.entry(client("cursor").unwrap());
    assert_eq!(entry["args"], json!(["serve", "--stdio", "--client", "cursor", "--home", "/state"]));
}

#[test]
fn backups_are_private_and_few() {
    use std::os::unix::fs::PermissionsExt as _;
    let cursor = client("cursor").unwrap();
    let desk = Desk::new();
    for round in 0..15 {
        desk.write(cursor, &format!("{{ \"round\": {round} }}"));
        let backup = desk.connect(cursor).unwrap();
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(backup.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        desk.disconnect(cursor);
    }
    let kept = fs::read_dir(desk.state.path().join("clients/backups")).unwrap().count();
    assert!((1..=12).contains(&kept), "{kept}");
}

/// Keys that a person put into our entry stay what they were when it is written anew: a number a number, a table a table.
#[test]
fn what_was_added_to_our_entry_stays_what_it_was() {
    let cases = [
        (
            "cursor",
            "{\n  \"mcpServers\": {\n    \"plugward\": {\n      \"command\": \"/gone\",\n      \"limit\": 1.50,\n      \
             \"big\": 12345678901234567890123,\n      \"odd\": [1e3, \"\\u0000=1\"],\n      \"env\": { \"A\": -0.0 }\n    }\n  }\n}\n",
            &["\"limit\": 1.50", "\"big\": 12345678901234567890123", "[1e3, \"\\u0000=1\"]", "\"A\": -0.0"][..],
        ),
        ("cursor", "{\"mcpServers\": {\"plugward\": {\"command\": \"/gone\", \"limit\": 1.50}}}", &["\"limit\": 1.50"]),
        (
            "codex",
            "[mcp_servers.plugward]\ncommand = \"/gone\"\nsince = 1979-05-27T07:32:00Z\nrate = 1.5\ntools = [{ name = \
             \"a\" }]\n\n[mcp_servers.plugward.env]\nA = \"1\"\n\"b.c\" = \"2\"\n\n[mcp_servers.plugward.env.deep]\nx = 1\n",
            &[
                "since = 1979-05-27T07:32:00Z",
                "tools = [{ name = \"a\" }]",
                "[mcp_servers.plugward.env]\nA = \"1\"\n\"b.c\" = \"2\"\n",
                "[mcp_servers.plugward.env.deep]\nx = 1",
            ],
        ),
        (
            "codex",
            "[mcp_servers.plugward]\ncommand = \"/gone\"\nenv = { A = \"1\" }\n",
            &["[mcp_servers.plugward.env]\nA = \"1\""],
        ),
        (
            "goose",
            "extensions:\n  plugward:\n    cmd: /gone\n    limit: 1.50\n    timeout: 600\n    envs: {A: b}\n    day: 2026-01-02\n    quoted: \"1.50\"\n    \
             list: [0x1f, on, off-peak, -e]\n",
            &[
                "limit: 1.50\n",
                "day: 2026-01-02\n",
                "quoted: \"1.50\"",
                "timeout: 600",
                "envs: {\"A\":\"b\"}",
                "[0x1f, on, \"off-peak\", \"-e\"]",
            ],
        ),
    ];
    for (name, text, kept) in cases {
        let client = client(name).unwrap();
        let desk = Desk::new();
        desk.write(client, text);
        assert!(matches!(desk.standing(client), Standing::Drifted(_)), "{text}");
        desk.connect(client);
        let after = fs::read_to_string(desk.path(client)).unwrap();
        for part in kept {
            assert!(after.contains(part), "{name}: `{part}` is gone: {after}");
        }
        assert_eq!(desk.standing(client), Standing::Connected, "{after}");
    }
    // What cannot be written anew is said, and the file is left.
    let goose = client("goose").unwrap();
    let desk = Desk::new();
    desk.write(goose, "shared: &env {A: b}\nextensions:\n  plugward:\n    cmd: /gone\n    envs: *env\n");
    let error = desk.machine().plan_connect(goose, None).unwrap_err().to_string();
    assert!(error.contains("refers to another part of the file"), "{error}");
}

/// Records that cannot be read are the way back for files of others: they are never written over.
#[test]
fn damaged_records_stay_and_stop_every_change() {
    let cursor = client("cursor").unwrap();
    let desk = Desk::new();
    desk.write(cursor, "{}");
    desk.connect(cursor);
    let records = desk.state.path().join("clients/records.json");
    let (text, settings) = (fs::read_to_string(&records).unwrap(), fs::read_to_string(desk.path(cursor)).unwrap());
    let damaged = &text[..text.len() / 2];
    fs::write(&records, damaged).unwrap();
    let zed = client("zed").unwrap();
    let machine = desk.machine();
    let errors = [
        machine.plan_disconnect(cursor, None).map(|_| ()).unwrap_err().to_string(),
        machine.connect(&machine.plan_connect(zed, None).unwrap()).map(|_| ()).unwrap_err().to_string(),
        machine.records_fault().unwrap().to_string(),
    ];
    for error in errors {
        assert!(error.contains("records.json") && error.contains("line ") && error.contains("move it away"), "{error}");
    }
    assert_eq!(fs::read_to_string(&records).unwrap(), damaged);
    assert_eq!(fs::read_to_string(desk.path(cursor)).unwrap(), settings);
    assert!(!desk.path(zed).exists());
    assert_eq!(desk.standing(cursor), Standing::Connected, "a look needs no records");
    // The fix that is named is one.
    fs::rename(&records, records.with_extension("old")).unwrap();
    assert_eq!(machine.records_fault().map(|_| ()), None);
    desk.disconnect(cursor);
    assert!(!fs::read_to_string(desk.path(cursor)).unwrap().contains("plugward"));
}
