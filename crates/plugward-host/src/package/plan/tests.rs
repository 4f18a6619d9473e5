//! Plans of small packages in temporary folders, with a `PATH` and a home of their own.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use plugward_policy::{Digest, parse_manifest};

use super::super::hash::hash_package;

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
    host: HostEnvironment,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["package/work", "bin", "user/projects"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for program in ["bin/python3", "bin/docker", "package/server"] {
        fs::write(root.join(program), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(root.join("package/server.py"), "").unwrap();
    fs::write(root.join("outside.py"), "").unwrap();
    let (path, user) = (root.join("bin"), root.join("user"));
    let host = HostEnvironment::from_pairs([
        ("PATH", path.to_str().unwrap()),
        ("HOME", user.to_str().unwrap()),
        ("DEMO_USER", "ann"),
        ("DEMO_EMPTY", ""),
        ("DEMO_API_KEY", "planted-secret"),
    ]);
    Place { _dir: dir, root, host }
}

impl Place {
    /// Plans the backend of these YAML lines.
    fn plan(&self, backend: &str) -> Result<LaunchPlan, PlanError> {
        let lines: String = backend.lines().map(|line| format!("  {}\n", line.trim())).collect();
        let text = format!("id: demo\nname: Demo\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: stdio\n{lines}");
        let manifest = parse_manifest(&text, "plugin.yaml").unwrap().manifest;
        plan(&PlanInput {
            manifest: &manifest,
            source: "folder",
            package_dir: &self.root.join("package"),
            facts: &hash_package(&self.root.join("package")).unwrap(),
            home_dir: &self.root.join("home"),
            project_dir: None,
            user: UserPolicy::Same,
            own_dir: &self.root.join("state"),
            host: &self.host,
            passed_variables: &[],
        })
    }

    fn refusal(&self, backend: &str) -> String {
        self.plan(backend).unwrap_err().to_string()
    }

    fn path(&self, below: &str) -> String {
        self.root.join(below).to_str().unwrap().to_owned()
    }
}

// Requirements 29, 74, 75, 94: what is shown is what runs.
#[test]
fn arguments_arrive_as_written_behind_the_resolved_program() {
    let place = place();
    let plan = place.plan("command: python3\nargs: [server.py, '; touch x', '', 'a  b', '$(id)']").unwrap();
    assert_eq!(plan.argv, [&place.path("bin/python3"), "server.py", "; touch x", "", "a  b", "$(id)"]);
    assert_eq!(plan.cwd, place.root.join("package"));
    let spec = plan.launch_spec(3);
    assert_eq!(spec.argv, plan.argv.iter().map(OsString::from).collect::<Vec<_>>());
    assert_eq!(spec.executable, place.root.join("bin/python3"));
    assert_eq!(plan.container_name(3), None);
}

// Case B018.
#[test]
fn references_are_replaced_once_and_a_missing_one_names_its_field() {
    let place = place();
    let plan = place
        .plan(
            "command: python3
            args: ['--user=${DEMO_USER}', '${DEMO_MISSING:-fall back}', '$${DEMO_USER}', '[${DEMO_EMPTY:-dflt}]', '${PLUGIN_DIR}/server.py']
            env: {GREETING: 'hi ${DEMO_USER}'}",
        )
        .unwrap();
    let script = place.path("package/server.py");
    assert_eq!(plan.argv[1..], ["--user=ann", "fall back", "${DEMO_USER}", "[dflt]", script.as_str()]);
    assert_eq!(plan.manifest_env, [("GREETING".to_owned(), "hi ann".to_owned())]);
    assert!(plan.env.contains(&("GREETING".into(), "hi ann".into())));
    assert_eq!(plan.host_variables, ["DEMO_EMPTY", "DEMO_MISSING", "DEMO_USER"]);
    let text = place.refusal("command: python3\nargs: [server.py, '${DEMO_MISSING}']");
    assert!(text.contains("args[1]") && text.contains("DEMO_MISSING"), "{text}");
}

// Requirement 76: a manifest can ask for a key by name, and then the plan says so.
#[test]
fn a_secret_of_the_host_is_named_for_review_and_kept_out_of_debug_output() {
    let place = place();
    let plan = place.plan("command: python3\nenv: {TOKEN: '${DEMO_API_KEY}'}").unwrap();
    assert_eq!(plan.host_variables, ["DEMO_API_KEY"]);
    assert_eq!(plan.secrets, ["planted-secret"]);
    assert!(!format!("{plan:?}").contains("planted-secret"));
    let without = place.plan("command: python3").unwrap();
    let planted = OsStr::new("planted-secret");
    assert!(without.env.iter().all(|(_, value)| value != planted));
}

// Case B035.
#[test]
fn the_working_folder_is_the_packages_or_one_inside_it_or_an_existing_one_of_the_machine() {
    let place = place();
    let cwd = |value: &str| place.plan(&format!("command: python3\ncwd: '{value}'")).map(|plan| plan.cwd);
    assert_eq!(cwd("./work").unwrap(), place.root.join("package/work"));
    assert_eq!(cwd("${PLUGIN_DIR}/work").unwrap(), place.root.join("package/work"));
    assert_eq!(cwd("~").unwrap(), place.root.join("user"));
    assert_eq!(cwd("~/projects").unwrap(), place.root.join("user/projects"));
    assert_eq!(cwd(&place.path("user")).unwrap(), place.root.join("user"));
    let text = cwd("./no-such-dir").unwrap_err().to_string();
    let expected = place.path("package/no-such-dir");
    assert_eq!(text, format!("working folder `./no-such-dir` does not exist, looked for `{expected}`"));
    assert!(cwd("server.py").unwrap_err().to_string().ends_with("is not a folder"));
    assert!(cwd("work/../..").unwrap_err().to_string().contains("leads out of the package"));
    symlink(place.root.join("user"), place.root.join("package/out")).unwrap();
    assert!(cwd("out").unwrap_err().to_string().contains("leads out of the package"));
    assert!(cwd("~nobody").unwrap_err().to_string().contains("does not exist"));
}

#[test]
fn a_home_relative_folder_needs_a_home() {
    let mut place = place();
    place.host = HostEnvironment::from_pairs([("PATH", place.path("bin"))]);
    assert!(place.refusal("command: python3\ncwd: '~/x'").ends_with("the host has no HOME"));
}

// Requirement 33 and case B035 together.
#[test]
fn a_command_with_a_folder_part_is_relative_to_the_working_folder_and_inside_the_package() {
    let place = place();
    let plan = place.plan("command: ../server\ncwd: work").unwrap();
    assert_eq!(plan.executable.path, place.root.join("package/server"));
    assert!(place.refusal("command: ../bin/python3").contains("lies outside the package"));
    let text = place.refusal(&format!("command: ../server\ncwd: '{}'", place.path("user/projects")));
    assert!(text.contains("lies outside the package"), "{text}");
}

// Case B002: a PATH of the manifest is the one the plugin sees, so it is the one that is searched.
#[test]
fn the_command_is_looked_for_in_the_path_the_plugin_gets() {
    let mut place = place();
    let bin = place.path("bin");
    place.host = HostEnvironment::from_pairs([("PATH", "/nowhere")]);
    assert!(place.refusal("command: python3").contains("was not found in PATH `/nowhere`"));
    let plan = place.plan(&format!("command: python3\nenv: {{PATH: '{bin}:${{PATH}}'}}")).unwrap();
    assert!(plan.env.contains(&("PATH".into(), format!("{bin}:/nowhere").into())));
}

// N8: the original let `python ../../x.py` run whatever lay there.
#[test]
fn relative_arguments_stay_inside_the_package() {
    let place = place();
    let args = |args: &str| place.plan(&format!("command: python3\nargs: [{args}]"));
    assert!(place.root.join("outside.py").exists(), "positive control: there is something to run");
    for bad in ["../outside.py", "work/../../outside.py", "'--config=../outside.py'", "..", "-x, ../gone.py"] {
        let text = args(bad).unwrap_err().to_string();
        assert!(text.contains("leads out of the package"), "{bad}: {text}");
    }
    symlink(place.root.join("outside.py"), place.root.join("package/run.py")).unwrap();
    let text = args("-u, run.py").unwrap_err().to_string();
    assert!(text.starts_with("`args[1]` leads out of the package, to "), "{text}");
    let outside = place.path("outside.py");
    for good in ["server.py", "work/../server.py", "'https://x.test/a/../b'", "'--a=b=..'", "'...'", outside.as_str()] {
        assert!(args(good).is_ok(), "{good}");
    }
    let plan = place.plan("command: python3\nargs: [../server.py]\ncwd: ./work");
    assert!(plan.is_ok(), "case B035 starts a script beside its working folder");
}

// Case B047.
#[test]
fn a_container_run_is_named_per_start_and_approved_without_the_name() {
    let place = place();
    let plan = place.plan("command: docker\nargs: [run, -i, --rm, demo/image]").unwrap();
    assert!(plan.argv.contains(&"--init".to_owned()) && !plan.argv.contains(&"--name".to_owned()));
    let spec = plan.launch_spec(9);
    let name = plan.container_name(9).unwrap();
    assert_eq!(spec.argv[0], OsString::from(place.path("bin/docker")));
    assert_eq!(spec.argv[1..4], [OsString::from("run"), "--name".into(), OsString::from(&name)]);
    assert!(name.ends_with("-demo-9"), "{name}");
}

// N15.
#[test]
fn home_is_the_plugins_own() {
    let place = place();
    let plan = place.plan("command: python3").unwrap();
    assert!(plan.env.contains(&("HOME".into(), place.root.join("home").into())));
}

#[test]
fn the_stop_ladder_has_two_seconds_per_step() {
    let plan = place().plan("command: python3").unwrap();
    assert_eq!((plan.stop.term_after, plan.stop.kill_after), (Duration::from_secs(2), Duration::from_secs(2)));
}

// Requirement 94 and invariant 8: a change of any of these needs a new agreement.
#[test]
fn the_subject_covers_what_would_run_and_follows_nothing_else() {
    let mut place = place();
    let base = "command: python3\nargs: [server.py]\nenv: {A: '1'}";
    let digest = |place: &Place, backend: &str| place.plan(backend).unwrap().subject.digest();
    let first = digest(&place, base);
    assert_eq!(first, digest(&place, base));
    for other in [
        "command: ./server\nargs: [server.py]\nenv: {A: '1'}",
        "command: python3\nargs: [server.py, '']\nenv: {A: '1'}",
        "command: python3\nargs: [server.py]\nenv: {A: '2'}",
        "command: python3\nargs: [server.py]\nenv: {A: '1'}\ncwd: '${PLUGIN_DIR}/work'",
    ] {
        assert_ne!(first, digest(&place, other), "{other}");
    }
    let bin = place.path("bin");
    place.host = HostEnvironment::from_pairs([("PATH", bin.as_str()), ("LANG", "de_DE.UTF-8"), ("USER", "bob")]);
    assert_eq!(first, digest(&place, base), "the machine's language is no reason to hold a plugin");
    fs::write(place.root.join("package/server.py"), "changed").unwrap();
    assert_ne!(first, digest(&place, base), "package contents");
    fs::write(place.root.join("package/server.py"), "").unwrap();
    assert_eq!(first, digest(&place, base));
    fs::write(place.root.join("bin/python3"), "#!/bin/sh\n# replaced\n").unwrap();
    assert_ne!(first, digest(&place, base), "executable contents");
}

// Case B020: an approval is stored and shown.
#[test]
fn the_subject_holds_no_secret_and_a_rotated_key_needs_no_new_agreement() {
    let mut place = place();
    let backend = "command: python3\nargs: ['--api-key=${DEMO_API_KEY}']\nenv: {TOKEN: '${DEMO_API_KEY}', MY_SECRET: written-down}";
    let subject = place.plan(backend).unwrap().subject;
    let text = subject.canonical();
    assert!(!text.contains("planted-secret") && !text.contains("written-down"), "{text}");
    assert_eq!(subject.secret_refs.get("TOKEN").map(String::as_str), Some("host:DEMO_API_KEY"));
    assert!(subject.env.contains_key("MY_SECRET"));
    assert_eq!(subject.executable_digest, Digest::of(b"#!/bin/sh\n"));

    let backend = "command: python3\nenv: {TOKEN: '${DEMO_API_KEY}'}";
    let before = place.plan(backend).unwrap().subject.digest();
    let bin = place.path("bin");
    place.host = HostEnvironment::from_pairs([("PATH", bin.as_str()), ("DEMO_API_KEY", "rotated-secret")]);
    let plan = place.plan(backend).unwrap();
    assert_eq!(before, plan.subject.digest());
    assert!(plan.env.contains(&("TOKEN".into(), "rotated-secret".into())), "positive control: the value is new");
}

#[test]
fn a_package_that_is_gone_is_named() {
    let place = place();
    let facts = hash_package(&place.root.join("package")).unwrap();
    let text = "id: demo\nname: D\nversion: 1.0.0\nbackend: {type: mcp, transport: stdio, command: python3}\n";
    let manifest = parse_manifest(text, "plugin.yaml").unwrap().manifest;
    let gone = place.root.join("gone");
    let input = PlanInput {
        manifest: &manifest,
        source: "folder",
        package_dir: &gone,
        facts: &facts,
        home_dir: &place.root.join("home"),
        project_dir: None,
        user: UserPolicy::Same,
        own_dir: &place.root.join("state"),
        host: &place.host,
        passed_variables: &[],
    };
    assert!(plan(&input).unwrap_err().to_string().starts_with("package folder `"));
}

/// What a person wrote into the manifest is not dropped without a word.
#[test]
fn a_folder_for_temporary_files_is_kept_where_the_plugin_can_write() {
    let place = place();
    fs::create_dir_all(place.root.join("home")).unwrap();
    let given = |value: &str| {
        let plan = place.plan(&format!("command: python3\nenv: {{TMPDIR: {value}}}")).unwrap();
        let spec = plan.sandboxed_spec(1, SandboxSpec::new(plugward_sandbox::Level::Full), &[]);
        let found: Vec<_> =
            spec.env.iter().filter(|(name, _)| name == "TMPDIR").map(|(_, value)| value.clone()).collect();
        assert_eq!(found.len(), 1);
        (found[0].to_str().unwrap().to_owned(), plan.replaced_temporary_dir().is_some())
    };
    let home = place.path("home/scratch");
    assert_eq!(given(&home), (home, false));
    assert_eq!(given("/tmp/mine"), ("/tmp/mine".to_owned(), false));
    assert_eq!(given("/var/tmp"), ("/tmp".to_owned(), true));
}

// Threat: state kept below `/usr` is in what every plugin is shown.
#[test]
fn a_state_folder_that_plugins_are_shown_is_refused() {
    let shown = |own: &str| {
        let shared = [Path::new("/usr"), Path::new("/no/such/place")];
        refuse_shown(Path::new(own), shared.into_iter()).map_err(|error| error.to_string())
    };
    let text = shown("/usr/local/state/plugward").unwrap_err();
    assert!(
        text.contains("`/usr/local/state/plugward` lies inside `/usr`") && text.contains("PLUGWARD_HOME"),
        "{text}"
    );
    assert_eq!(shown("/var/lib/plugward"), Ok(()));
}
