//! What a plugin may ask of the machine: how a manifest says it, what a person is told, what a
//! grant covers, and what comes out of it on one machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use plugward_policy::{
    Access, AccessLine, AccessPermission, GrantSet, Manifest, ManifestErrorKind, ParsedManifest, Permission,
    PermissionName, ResourceLimits, Risk, SandboxLevel, parse_manifest,
};

/// The least a manifest needs; lines of the top level may follow.
const LEAST: &str = "\
id: demo
name: Demo
version: 1.0.0
backend:
  type: mcp
  transport: stdio
  command: server
  env: {MODE: fast}
";

const EVERY_KIND: &str = "\
permissions:
  - notes.read
  - fs.read:/data/in
  - fs.read:~/notes
  - fs.write:${PLUGIN_DIR}/../x
  - fs.write:${DATA:-/srv/demo}
  - net:api.example.test
  - net:*.cdn.example.test:8443
  - env:EDITOR
  - process.spawn
  - notes.write
";

fn parse(lines: &str) -> ParsedManifest {
    let text = format!("{LEAST}{lines}");
    parse_manifest(&text, "plugin.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn every_kind() -> Manifest {
    parse(&EVERY_KIND.replace("  - fs.write:${PLUGIN_DIR}/../x\n", "")).manifest
}

fn errors(lines: &str) -> (ManifestErrorKind, Vec<String>) {
    let error = parse_manifest(&format!("{LEAST}{lines}"), "plugin.yaml").expect_err(lines);
    (error.kind(), error.to_string().lines().map(str::to_owned).collect())
}

fn warnings(lines: &str) -> Vec<String> {
    parse(lines).warnings.iter().map(|finding| format!("{}: {}", finding.path, finding.message)).collect()
}

fn access(permissions: &[&str]) -> Access {
    let mut access = Access::default();
    for permission in permissions {
        access.insert(permission.parse().unwrap_or_else(|error| panic!("{permission}: {error}")));
    }
    access
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn lookup(name: &str) -> Option<String> {
    match name {
        "PLUGIN_DIR" => Some("/plugins/demo".to_owned()),
        "DATA" => Some("/data".to_owned()),
        "ROOT" => Some("/".to_owned()),
        _ => None,
    }
}

// Requirements 90-92: each kind reaches its field, and the named permissions are what they were.
#[test]
fn every_kind_reaches_its_field() {
    let manifest = every_kind();
    assert_eq!(texts(&manifest.permissions), ["notes.read", "notes.write"]);
    let access = &manifest.access;
    assert!(access.may_spawn);
    assert_eq!(access.files_read.len(), 2);
    assert_eq!(access.limits, ResourceLimits::default());
    let all = [
        "notes.read",
        "notes.write",
        "process.spawn",
        "fs.write:${DATA:-/srv/demo}",
        "fs.read:/data/in",
        "fs.read:~/notes",
        "net:*.cdn.example.test:8443",
        "net:api.example.test:443",
        "env:EDITOR",
    ];
    assert_eq!(texts(&manifest.all_permissions()), all);
    assert!(parse("").manifest.access.permissions().is_empty());
    assert_eq!(parse("").manifest.access, Access::default());
}

// A permission that cannot be read must not be left out quietly: the plugin would fail much later.
#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    for (item, words) in [
        ("fs.read", "permission `fs.read` says not what for: write `fs.read:…`"),
        ("net", "permission `net` says not what for"),
        ("'fs.read:'", "path is empty"),
        ("fs.read: /data", "found a map, write it without a blank after the colon"),
        ("fs.read:data", "path `data` is relative"),
        ("fs.write:/data/../etc", "has a `..` in it"),
        ("'fs.write:/data/'", "write `/data`"),
        ("\"fs.read:/a\\0b\"", "NUL, control or invisible"),
        ("fs.raed:/data", "permission `fs.raed:/data` is not known"),
        ("FS.READ:/data", "is not known"),
        ("mount:/data", "is not known"),
        ("process.spawn:node", "is not known"),
        ("'net:'", "host `` is not valid"),
        ("net:API.example.test", "use a lower-case name"),
        ("net:https://example.test", "is a URL"),
        ("net:127.1", "is not valid"),
        ("'env:'", "variable name `` is not valid"),
        ("env:HOME", "variable `HOME` is given to every plugin"),
        ("env:MODE", "variable `MODE` is also set in `backend.env`, keep only one of them"),
    ] {
        let (kind, found) = errors(&format!("permissions: [{item}]\n"));
        assert_eq!((kind, found.len()), (ManifestErrorKind::Invalid, 1), "{item}: {found:?}");
        assert!(found[0].starts_with("plugin.yaml:9:15: permissions[0]: "), "{}", found[0]);
        assert!(found[0].contains(words), "{item}: {}", found[0]);
    }
    let (_, found) = errors("permissions: ['fs.raed:/data']\n");
    assert!(found[0].ends_with("did you mean `fs.read`?"), "{}", found[0]);
    let (kind, found) = errors("permissions: ['secret:API_KEY']\n");
    assert_eq!(kind, ManifestErrorKind::Unsupported);
    assert!(found[0].contains("`secret:API_KEY` is not supported by this version"), "{}", found[0]);
    let (_, found) = errors(EVERY_KIND);
    assert!(found[0].starts_with("plugin.yaml:13:5: permissions[3]: path"), "{}", found[0]);
}

// Requirement 94: what deserves a second thought is said before agreeing, with the reason.
#[test]
fn dangerous_permissions_are_pointed_out_and_ordinary_ones_are_not() {
    for (item, words) in [
        ("fs.write:/", "permissions[0]: `fs.write:/` is the whole machine"),
        ("fs.read:/", "is the whole machine"),
        ("fs.read:~", "whole home folder"),
        ("fs.read:~/.ssh", "holds keys"),
        ("fs.write:~/.cursor", "which plugins"),
        ("fs.write:${PLUGIN_DIR}", "the plugin's own code"),
        ("net:*", "reaches every host"),
        ("net:localhost:3000", "this machine"),
        ("net:169.254.169.254:80", "metadata"),
        ("net:10.0.0.5", "private network"),
        ("env:AWS_SECRET_ACCESS_KEY", "secret"),
        ("env:SSH_AUTH_SOCK", "your rights"),
    ] {
        let found = warnings(&format!("permissions: ['{item}']\n"));
        assert_eq!(found.len(), 1, "{item}: {found:?}");
        assert!(found[0].contains(words), "{item}: {found:?}");
    }
    let ordinary = "permissions: ['fs.read:/data', 'fs.write:~/notes', 'net:api.example.test', 'env:EDITOR']\n";
    assert_eq!(warnings(ordinary), Vec::<String>::new());
    assert_eq!(warnings("permissions: ['net:a.test', 'net:a.test:443']\n").len(), 1);
    // A misspelled word of two parts is a legal name, so it can only be pointed out.
    let found = parse("permissions: [process.spwan]\n");
    assert!(!found.manifest.access.may_spawn);
    assert_eq!(found.warnings[0].hint.as_deref(), Some("did you mean `process.spawn`?"));
    assert_eq!(warnings("permissions: [files.read, notes.read, ui.process]\n"), Vec::<String>::new());
    let level = "permissions: ['net:a.test']\nsandbox: {minimum_level: none}\n";
    assert!(warnings(level)[0].contains("sandbox.minimum_level: level `none` lets it start"));
    assert_eq!(warnings("sandbox: {minimum_level: none}\n"), Vec::<String>::new());
}

// Requirement 93: limits have ranges, and a misspelled one is not no limit.
#[test]
fn limits_are_read_within_their_ranges() {
    let manifest = parse(
        "sandbox: {memory_bytes: 16777216, cpu_seconds: 60, processes: 1, open_files: 16, file_bytes: 4096, \
         disk_bytes: 1048576, wall_seconds: 3600, cpu_percent: 50}\n",
    )
    .manifest;
    let wanted = ResourceLimits {
        memory_bytes: 16 * 1024 * 1024,
        cpu_seconds: Some(60),
        processes: 1,
        open_files: 16,
        file_bytes: 4096,
        disk_bytes: 1024 * 1024,
        wall_seconds: Some(3600),
        cpu_percent: Some(50),
    };
    assert_eq!(manifest.access.limits, wanted);
    assert_eq!(manifest.min_sandbox_level, SandboxLevel::Full);
    for (lines, words) in [
        ("memory_bytes: 16777215", "sandbox.memory_bytes: expected a whole number from 16777216 to 68719476736"),
        ("memory_bytes: 2 GiB", "found `2 GiB`"),
        ("memory_bytes: -1", "found `-1`"),
        ("cpu_seconds: 0", "sandbox.cpu_seconds: expected a whole number from 1"),
        ("processes: 4097", "sandbox.processes: expected"),
        ("open_files: 15", "sandbox.open_files: expected"),
        ("file_bytes: 0", "sandbox.file_bytes: expected"),
        ("wall_seconds: 0", "sandbox.wall_seconds: expected a whole number from 1"),
        ("cpu_percent: 0", "sandbox.cpu_percent: expected a whole number from 1"),
        ("disk_bytes: 1", "sandbox.disk_bytes: expected"),
        ("memory: 1", "unknown key"),
        ("procesess: 1", "did you mean `processes`?"),
    ] {
        let (_, found) = errors(&format!("sandbox: {{{lines}}}\n"));
        assert!(found.len() == 1 && found[0].contains(words), "{lines}: {found:?}");
    }
}

// Rules for consent: programs, writes, reads, network, variables, limits, then what it does not get;
// anything with a red flag before all of them.
#[test]
fn a_person_is_told_in_order_of_risk() {
    let lines = every_kind().access.describe();
    let shown: Vec<String> = lines.iter().map(|line| format!("{}: {}", line.risk.as_str(), line.text)).collect();
    let wanted = [
        "high: may start other programs",
        "high: may read, change and delete ${DATA:-/srv/demo} and everything in it",
        "high: may connect to every host below cdn.example.test, port 8443, if it uses the proxy settings it is given",
        "moderate: may read /data/in and everything in it",
        "moderate: may read ~/notes and everything in it",
        "moderate: may connect to api.example.test, port 443",
        "moderate: is given the variable EDITOR of your environment",
        "low: may use 2 GiB of memory, processor time without a bound, 256 processes and threads, 1024 open files in \
         each process, files of 1 GiB each, and 2 GiB for all of its own data",
        "absent: gets no other files but its own package and data",
        "absent: gets no other hosts",
        "absent: gets no other variables of your environment but the usual ones, such as PATH and LANG",
    ];
    assert_eq!(shown, wanted);
    let flagged = access(&["process.spawn", "fs.read:~/.ssh", "net:*"]).describe();
    let first: Vec<&AccessLine> = flagged.iter().take_while(|line| line.risk == Risk::Danger).collect();
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|line| line.red_flag.is_some() && line.permission.is_some()));
    assert!(!flagged.iter().any(|line| line.text.contains("no network") || line.text.contains("no other hosts")));
}

// A plugin that asks for nothing says so, instead of leaving a blank to be guessed at.
#[test]
fn a_plugin_without_permissions_says_what_it_cannot_reach() {
    let lines = Access::default().describe();
    let absent: Vec<&str> =
        lines.iter().filter(|line| line.risk == Risk::Absent).map(|line| line.text.as_str()).collect();
    let wanted = [
        "does not ask to start other programs",
        "gets no files but its own package and data: not your home, not ~/.ssh, not the settings of other clients",
        "gets no network, not even services of this machine",
        "gets no variables of your environment but the usual ones, such as PATH and LANG",
    ];
    assert_eq!(absent, wanted);
    assert!(lines.iter().all(|line| line.permission.is_none() && line.red_flag.is_none()));
}

// A variable can turn a harmless text into a dangerous place; on the machine itself that shows.
#[test]
fn dangers_that_only_show_here_are_shown_here() {
    let access = access(&["fs.write:${ROOT}", "fs.read:/people", "fs.read:/data"]);
    assert!(access.describe().iter().all(|line| line.risk != Risk::Danger));
    let here = access.expand(Some("/people/ann"), lookup).unwrap();
    let flagged: Vec<String> = here
        .describe(Some("/people/ann"))
        .into_iter()
        .filter(|line| line.risk == Risk::Danger)
        .map(|line| line.text)
        .collect();
    let wanted =
        ["may read, change and delete ${ROOT} and everything in it (here /)", "may read /people and everything in it"];
    assert_eq!(flagged, wanted);
}

// Invariant 8: a grant covers the text a person saw, and nothing that is near it.
#[test]
fn grants_cover_exact_texts() {
    let manifest = every_kind();
    let granted: GrantSet = ["notes.read", "fs.read:/data/in", "net:api.example.test:443", "fs.write:/data"]
        .iter()
        .map(|text| text.parse::<Permission>().unwrap())
        .collect();
    assert_eq!(texts(&granted.missing(&manifest.permissions)), ["notes.write"]);
    let missing = [
        "process.spawn",
        "fs.write:${DATA:-/srv/demo}",
        "fs.read:~/notes",
        "net:*.cdn.example.test:8443",
        "env:EDITOR",
    ];
    assert_eq!(texts(&granted.missing_access(&manifest.access)), missing);
    let here = manifest.access.expand(Some("/home/ann"), lookup).unwrap();
    let given = here.granted(&granted);
    assert_eq!(texts(&given.as_written().permissions()), ["fs.read:/data/in", "net:api.example.test:443"]);
    assert_eq!(given.limits, here.limits);
    // `fs.write:/data` was granted and is the same place as `${DATA…}`, but not the same text.
    assert!(given.files_write.is_empty());
    for (has, wants) in [
        ("fs.read:/data", "fs.read:/data/x"),
        ("fs.write:/data", "fs.read:/data"),
        ("fs.read:/data", "fs.write:/data"),
        ("net:*.a.test", "net:x.a.test"),
        ("net:*", "net:a.test"),
        ("net:a.test:80", "net:a.test"),
        ("env:A", "env:B"),
    ] {
        let grants: GrantSet = std::iter::once(has.parse::<Permission>().unwrap()).collect();
        assert!(grants.contains_access(&has.parse().unwrap()));
        assert!(!grants.contains_access(&wants.parse().unwrap()), "{has} covers {wants}");
    }
    // Granting everything gives everything: the control for the refusals above.
    let all: GrantSet = manifest.all_permissions().into_iter().collect();
    assert!(all.missing_access(&manifest.access).is_empty() && all.missing(&manifest.permissions).is_empty());
    assert_eq!(here.granted(&all), here);
    // Named grants alone, as they were stored before, give nothing of the machine.
    let named: GrantSet = std::iter::once("notes.read".parse::<PermissionName>().unwrap()).collect();
    assert!(here.granted(&named).as_written().permissions().is_empty());
}

// Every path that has no value here is named at once, with the permission it is in.
#[test]
fn a_machine_without_the_values_is_told_which() {
    let access = access(&["fs.read:${NONE}/x", "fs.write:~/notes", "fs.read:/data"]);
    let error = access.expand(None, lookup).unwrap_err();
    let wanted = "`fs.write:~/notes`: the home folder is not known; `fs.read:${NONE}/x`: variable `NONE` is not set";
    assert_eq!(error.to_string(), wanted);
    let good = access.expand(Some("/home/ann"), |name| lookup(name).or(Some("/none".to_owned()))).unwrap();
    let places: Vec<&str> = good.files_read.values().chain(good.files_write.values()).map(String::as_str).collect();
    assert_eq!(places, ["/none/x", "/data", "/home/ann/notes"]);
    assert_eq!(good.as_written(), access);
}

// The stored form of a grant is its text, and nothing else reads as one.
#[test]
fn permissions_survive_being_stored() {
    for permission in every_kind().all_permissions() {
        assert_eq!(permission.to_string().parse(), Ok(permission));
    }
    let json = serde_json::to_string(&"net:a.test".parse::<AccessPermission>().unwrap()).unwrap();
    assert_eq!(json, "\"net:a.test:443\"");
    assert!(serde_json::from_str::<AccessPermission>("\"fs.read:x\"").is_err());
    // What a word like `process.spawn` grants cannot be had by a tool's permission of that name.
    assert!(matches!("process.spawn".parse(), Ok(Permission::Access(AccessPermission::Spawn))));
}
