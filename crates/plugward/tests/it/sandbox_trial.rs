//! Trials: what a plugin wants is seen and proposed, none of it is given, and nothing of the trial is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use plugward_host::{ApprovalOrigin, Environment, ErrorCode, TRIAL_MAX, TrialAttempt, TrialView};
use plugward_policy::{Permission, parse_manifest};
use tempfile::TempDir;

use crate::support::{Fixture, PATIENCE, Package, Settings, TestHost};

/// Long enough on a busy machine: what is wanted comes first of all.
const TRIAL: Duration = Duration::from_secs(5);

fn production() -> Settings {
    Settings { environment: Environment::Production, ..Settings::default() }
}

/// A folder everybody may use, with files in it, away from the temporary files a sandbox has of its own.
fn outside(names: &[&str]) -> TempDir {
    let folder = tempfile::Builder::new().prefix("plugward-trial-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for name in names {
        fs::write(folder.path().join(name), "planted").unwrap();
    }
    folder
}

/// A plugin that wants these things at its start.
fn wanting(fixture: &Fixture, wants: &str) -> Package {
    let package = fixture.package();
    fs::write(package.path().join("wants.txt"), wants).unwrap();
    package
}

async fn tried(host: &TestHost, id: &str) -> TrialView {
    let review = host.host.review(id).await.unwrap();
    host.host.trial(id, &review.digest, TRIAL, ApprovalOrigin::Test).await.unwrap()
}

fn find<'a>(trial: &'a TrialView, what: &str, target: &Path) -> &'a TrialAttempt {
    let target = target.to_str().unwrap();
    let found = trial.attempts.iter().find(|attempt| attempt.what == what && attempt.target == target);
    found.unwrap_or_else(|| panic!("no `{what} {target}` in {trial:#?}"))
}

// Requirement 94, users' rule on consent: what it wants is asked for once, in the words of a manifest, and is not given.
#[tokio::test(flavor = "multi_thread")]
async fn a_trial_proposes_the_smallest_set_that_would_do() {
    let (one, many, home) = (outside(&["a", "b"]), outside(&["a", "b", "c", "d"]), outside(&[]));
    let written = home.path().join("drafts");
    fs::create_dir(&written).unwrap();
    fs::set_permissions(&written, fs::Permissions::from_mode(0o777)).unwrap();
    let named = outside(&["x"]);
    let path = |folder: &TempDir, name: &str| folder.path().join(name);
    let wants = format!(
        "read {0}\nread {0}\nread {1}/a\nread {1}/b\nread {1}/c\nwrite {2}\nlook {3}\nlook {4}\nrun /bin/true\n\
         read /etc/no-such-file\nread {5}\n",
        path(&one, "a").display(),
        many.path().display(),
        written.join("new").display(),
        path(&one, "b").display(),
        named.path().display(),
        path(&named, "x").display(),
    );
    let mut settings = production();
    settings.host_environment.push(("HOME".to_owned(), home.path().display().to_string()));
    let host = TestHost::with(settings).await;
    let switch = named.path().to_str().unwrap();
    let package = wanting(&Fixture::imported("wants", &["wants", "--", switch]), &wants);
    host.host.install(package.path(), None).await.unwrap();
    let trial = tried(&host, "wants").await;
    assert_eq!((trial.tools, trial.fault.as_deref()), (Some(1), None), "{trial:#?}");

    let read_one = find(&trial, "read", &path(&one, "a"));
    assert_eq!((read_one.count, read_one.reason.as_deref()), (2, None));
    assert_eq!(read_one.permission, Some(format!("fs.read:{}", path(&one, "a").display())));
    let folder = Some(format!("fs.read:{}", many.path().display()));
    assert_eq!(find(&trial, "read", &path(&many, "b")).permission, folder);
    // What it would create is not there to be granted; its folder is.
    let write = find(&trial, "write", &written.join("new"));
    assert_eq!(write.permission.as_deref(), Some("fs.write:~/drafts"), "{write:?}");
    // A look proves nothing, unless the person put the place into the command.
    assert!(find(&trial, "look", &path(&one, "b")).reason.is_some());
    assert_eq!(find(&trial, "look", named.path()).permission, Some(format!("fs.read:{switch}")));
    assert_eq!(find(&trial, "execute", Path::new("/bin/true")).permission.as_deref(), Some("process.spawn"));
    assert!(!trial.attempts.iter().any(|attempt| attempt.target == "/etc/no-such-file"), "{trial:#?}");
    let mut expected = vec![
        "process.spawn".to_owned(),
        format!("fs.read:{}", path(&one, "a").display()),
        format!("fs.read:{}", many.path().display()),
        format!("fs.read:{switch}"),
        "fs.write:~/drafts".to_owned(),
    ];
    expected.sort();
    let mut proposed = trial.permissions.clone();
    proposed.sort();
    assert_eq!(proposed, expected);
    assert_eq!(trial.added, trial.permissions);

    // The fragment is what it says, once it stands in the manifest.
    let manifest = Fixture::imported("wants", &["wants"]).manifest().replace("permissions: []\n", &trial.fragment);
    let parsed = parse_manifest(&manifest, "plugin.yaml").unwrap().manifest;
    let meant: Vec<String> = trial.permissions.iter().map(|it| it.parse::<Permission>().unwrap().to_string()).collect();
    let mut read: Vec<String> = parsed.all_permissions().iter().map(ToString::to_string).collect();
    let mut meant_sorted = meant.clone();
    read.sort();
    meant_sorted.sort();
    assert_eq!(read, meant_sorted);

    // Nothing was given, nothing is left, nothing is approved.
    assert!(!written.join("new").exists());
    assert_eq!(host.host.enable("wants").await.unwrap_err().code, ErrorCode::McpTrustApprovalRequired);
    let view = host.host.plugin("wants").await.unwrap();
    assert!(!view.approved && !view.enabled && view.enforcement.is_none());
    assert_eq!(fs::read_dir(host.home().join("incoming")).map_or(0, Iterator::count), 0, "its home is left");
}

// Threat: a trial must not become a way to get keys, plugward's own files or the plugin's code proposed.
#[tokio::test(flavor = "multi_thread")]
async fn dangerous_places_are_told_and_not_proposed() {
    let home = outside(&[]);
    for folder in [".ssh", "notes"] {
        fs::create_dir(home.path().join(folder)).unwrap();
    }
    fs::write(home.path().join(".ssh/id"), "key").unwrap();
    fs::write(home.path().join("notes/today"), "note").unwrap();
    let mut settings = production();
    settings.host_environment.push(("HOME".to_owned(), home.path().display().to_string()));
    let host = TestHost::with(settings).await;
    let own = host.home().canonicalize().unwrap();
    let own_file = own.join("plugward.db");
    let package_file = own.join("plugins/greedy/plugin.yaml");
    let wants = format!(
        "read {0}/.ssh/id\nlist {0}\nread {0}/notes/today\nread {1}\nread /etc/shadow\nwrite {2}\nlist /sys/kernel\n",
        home.path().display(),
        own_file.display(),
        package_file.display(),
    );
    host.host.install(wanting(&Fixture::imported("greedy", &["wants"]), &wants).path(), None).await.unwrap();
    let trial = tried(&host, "greedy").await;
    for (what, place, word) in [
        ("read", home.path().join(".ssh/id"), "keys"),
        ("read", home.path().to_owned(), "home"),
        ("read", own_file, "plugward's own"),
        ("write", package_file, "its own package"),
        ("read", "/sys/kernel".into(), "kernel"),
    ] {
        let attempt = find(&trial, what, &place);
        assert_eq!(attempt.permission, None, "{attempt:?}");
        assert!(attempt.reason.as_ref().unwrap().contains(word), "{attempt:?}");
    }
    // Below the home, a place goes by its short name, so that the manifest serves other people too.
    assert_eq!(
        find(&trial, "read", &home.path().join("notes/today")).permission.as_deref(),
        Some("fs.read:~/notes/today")
    );
    assert_eq!(trial.permissions, ["fs.read:~/notes/today"]);
}

// Requirement 94: what the manifest asks for and the trial did not need is told; what a trial cannot see is kept.
#[tokio::test(flavor = "multi_thread")]
async fn declared_permissions_are_compared_and_not_granted() {
    let (used, unused) = (outside(&["a"]), outside(&["b"]));
    let mut settings = production();
    settings.host_environment.push(("PLANTED_NAME".to_owned(), "planted".to_owned()));
    let host = TestHost::with(settings).await;
    let (reads, other) = (format!("fs.read:{}", used.path().display()), format!("fs.read:{}", unused.path().display()));
    let fixture = Fixture::imported("declares", &["wants"])
        .permission("notes.read")
        .permission(&reads)
        .permission(&other)
        .permission("env:PLANTED_NAME");
    let wants = format!("read {}/a\n", used.path().display());
    host.host.install(wanting(&fixture, &wants).path(), None).await.unwrap();
    let trial = tried(&host, "declares").await;
    let attempt = find(&trial, "read", &used.path().join("a"));
    assert_eq!(
        attempt.permission.as_deref(),
        Some(reads.as_str()),
        "no grant, so it was refused, and covered once granted"
    );
    assert_eq!(trial.unused, [other]);
    assert!(trial.added.is_empty());
    for kept in ["notes.read", &reads, "env:PLANTED_NAME"] {
        assert!(trial.permissions.iter().any(|it| it == kept), "{kept} in {:?}", trial.permissions);
    }
    assert!(trial.warnings.iter().any(|warning| warning.contains("env:PLANTED_NAME")), "{:?}", trial.warnings);
}

// Invariant 1: a digest that is not the one of the command runs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_trial_runs_only_what_was_confirmed() {
    let host = TestHost::with(production()).await;
    let marks = outside(&[]);
    let pid_file = marks.path().join("pid");
    let fixture = Fixture::imported("stale", &["normal", "--pid-file", pid_file.to_str().unwrap()]);
    host.host.install(fixture.package().path(), None).await.unwrap();
    let other = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let refused = host.host.trial("stale", &other, TRIAL_MAX, ApprovalOrigin::Test).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::McpTrustDigestStale, "{}", refused.message);
    assert!(host.host.logs("stale").unwrap().is_empty(), "something of it was run");
}

/// A plugin that fails, and one that says nothing, are told as such; what they wanted until then counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_does_not_get_far_is_told_with_its_reason() {
    let host = TestHost::with(production()).await;
    let missing = outside(&["config"]);
    let wants = format!("read {}/config\n", missing.path().display());
    host.host.install(wanting(&Fixture::imported("mute", &["mute-initialize"]), &wants).path(), None).await.unwrap();
    let review = host.host.review("mute").await.unwrap();
    let limit = Duration::from_secs(2);
    let began = std::time::Instant::now();
    let trial = host.host.trial("mute", &review.digest, limit, ApprovalOrigin::Test).await.unwrap();
    assert!(trial.tools.is_none() && trial.fault.is_some(), "{trial:#?}");
    assert!(began.elapsed() < PATIENCE);
}

// Requirements 91 and 94, users' rule 5: hosts it wanted are told by name and port, and nothing leaves the machine.
#[tokio::test(flavor = "multi_thread")]
async fn wanted_hosts_are_told_by_name_and_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let own = listener.local_addr().unwrap();
    let host = TestHost::with(production()).await;
    let wants = format!(
        "connect telemetry.example:443\nconnect telemetry.example:443\nconnect api.example.test:8443\nconnect {own}\n\
         connect 192.0.2.7:80\nconnect 169.254.169.254:80\nask *.example:443\n"
    );
    host.host.install(wanting(&Fixture::imported("caller", &["wants"]), &wants).path(), None).await.unwrap();
    let trial = tried(&host, "caller").await;
    let telemetry = find(&trial, "connect", Path::new("telemetry.example:443"));
    assert_eq!((telemetry.count, telemetry.permission.as_deref()), (2, Some("net:telemetry.example:443")));
    for wanted in ["net:api.example.test:8443", "net:192.0.2.7:80"] {
        assert!(trial.permissions.iter().any(|it| it == wanted), "{wanted} in {trial:#?}");
    }
    for dangerous in [own.to_string(), "169.254.169.254:80".to_owned()] {
        let attempt = find(&trial, "connect", Path::new(&dangerous));
        assert!(attempt.permission.is_none() && attempt.reason.is_some(), "{attempt:?}");
    }
    // A name that the plugin makes up must not become a permission for every host below a domain.
    let pattern = find(&trial, "connect", Path::new("*.example:443"));
    assert!(pattern.permission.is_none() && pattern.reason.as_ref().unwrap().contains("pattern"), "{pattern:?}");
    assert!(!trial.permissions.iter().any(|it| it.contains('*')), "{trial:#?}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "a trial connected");
    let view = host.host.plugin("caller").await.unwrap();
    assert!(view.network_attempts.is_empty(), "a trial is no use");
}
