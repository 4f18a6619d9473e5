//! What a plugin in its sandbox can touch, and what it cannot. Each refusal has its control: the same attempt without a
//! sandbox succeeds, so that a refusal for another reason does not pass for a wall.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use plugward_host::Environment;
use plugward_sandbox::Level;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Fixture, Settings, TestHost};

/// Content of the planted file.
const PLANTED: &str = "a letter nobody granted";

/// The fixture that tries things, at level `full` unless `extra` says otherwise.
fn trying(id: &str) -> Fixture {
    Fixture::imported(id, &["attempts"])
}

/// The same without a sandbox.
fn unconfined(id: &str) -> Fixture {
    trying(id).unconfined()
}

fn production() -> Settings {
    let mut settings = Settings { environment: Environment::Production, ..Settings::default() };
    settings.host_environment.push(("PLANTED_API_KEY".to_owned(), "planted-secret-value".to_owned()));
    settings
}

/// A folder everybody may read, with a file in it: nothing but a sandbox keeps a plugin from it.
fn planted() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(folder.path().join("letter"), PLANTED).unwrap();
    folder
}

async fn attempt(host: &TestHost, plugin: &str, kind: &str, target: impl AsRef<Path>) -> String {
    let arguments = json!({"kind": kind, "target": target.as_ref().to_str().unwrap()});
    host.text(&format!("{plugin}.attempt"), arguments).await
}

fn done(answer: &str) -> bool {
    answer.starts_with("done: ")
}

// Requirements 69, 90, 91: the whole promise at once. If any of this is reachable, a plugin reads letters and keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_touches_its_own_and_nothing_else() {
    let letters = planted();
    let letter = letters.path().join("letter");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();

    let open = TestHost::new().await;
    let view = open.run(&unconfined("free")).await;
    assert!(view.detail.contains("without a sandbox"), "{}", view.detail);
    assert_eq!(attempt(&open, "free", "read", &letter).await, format!("done: {PLANTED}"));
    assert!(done(&attempt(&open, "free", "write", letters.path().join("new")).await));
    assert!(done(&attempt(&open, "free", "connect", &address).await));
    let package = open.home().join("plugins/free");
    assert!(done(&attempt(&open, "free", "write", package.join("planted")).await));
    let seen: usize = attempt(&open, "free", "processes", "").await.trim_start_matches("done: ").parse().unwrap();
    assert!(seen > 4, "control: it sees the processes of the machine, at least host, launcher and init: {seen}");

    let host = TestHost::with(production()).await;
    let view = host.run(&trying("kept")).await;
    let enforcement = view.enforcement.unwrap();
    assert_eq!(enforcement.level, Level::Full);
    assert!(enforcement.witness.is_some_and(|witness| witness.starts_with("ok@")), "nobody tried to get out");
    assert_eq!(view.detail, "running");
    let package = host.home().join("plugins/kept").canonicalize().unwrap();
    let home = host.home().join("homes/kept").canonicalize().unwrap();
    for (kind, target) in [
        ("read", letter.clone()),
        ("list", letters.path().to_owned()),
        ("write", letters.path().join("more")),
        ("read", host.home().join("plugward.db")),
        ("list", host.home().join("homes")),
        ("write", package.join("planted")),
        ("connect", address.clone().into()),
    ] {
        // A folder made for the plugin's own one may be seen, empty but for that.
        let answer = attempt(&host, "kept", kind, &target).await;
        let shows_only_its_own = kind == "list" && (answer == "done: kept" || answer == "done: ");
        assert!(answer.starts_with("refused: ") || shows_only_its_own, "{kind} {}: {answer}", target.display());
    }
    assert!(done(&attempt(&host, "kept", "read", package.join("plugin.yaml")).await));
    assert!(done(&attempt(&host, "kept", "write", home.join("note")).await));
    assert_eq!(fs::read_to_string(home.join("note")).unwrap(), "written by a plugin");
    let scratch = format!("/tmp/plugward-scratch-{}", std::process::id());
    assert!(done(&attempt(&host, "kept", "write", &scratch).await));
    assert!(!Path::new(&scratch).exists(), "its temporary files are the machine's");
    let processes = attempt(&host, "kept", "processes", "").await;
    let few = processes.strip_prefix("done: ").is_none_or(|count| count.parse::<usize>().unwrap() <= 2);
    assert!(few, "it sees processes of others: {processes}");
}

// Requirements 76 to 78: variables and home are its own inside as well.
#[tokio::test(flavor = "multi_thread")]
async fn its_environment_is_what_was_agreed_to() {
    let host = TestHost::with(production()).await;
    host.run(&Fixture::normal("plain")).await;
    let seen = host.output("plain.environment", json!({})).await.to_string();
    assert!(!seen.contains("planted-secret-value") && !seen.contains("PLUGWARD"), "{seen}");
    host.run(&Fixture::normal("given").permission("env:PLANTED_API_KEY")).await;
    let seen = host.output("given.environment", json!({})).await.to_string();
    // It has it, and what it says of it is masked on the way out.
    assert!(seen.contains("PLANTED_API_KEY") && !seen.contains("planted-secret-value"), "{seen}");
}

// Requirements 90, 94 and 106: one granted folder opens that folder, is read in the review, and is part of the digest.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_folder_and_nothing_beside_it() {
    let (granted, beside) = (planted(), planted());
    let reads = format!("fs.read:{}", granted.path().display());
    let host = TestHost::with(production()).await;
    let package = trying("reader").permission(&reads).package();
    host.host.install(package.path(), None).await.unwrap();
    let review = host.host.review("reader").await.unwrap();
    let wanted = format!("may read {}", granted.path().display());
    assert!(review.access.iter().any(|line| line.text.starts_with(&wanted)), "{:?}", review.access);
    assert!(review.access.iter().any(|line| line.text.contains("gets no network")));
    assert!(review.shared.iter().any(|path| path == "/usr"), "{:?}", review.shared);
    let refused = host.host.enable("reader").await.unwrap_err();
    assert!(refused.message.contains(&reads), "{}", refused.message);
    host.approve("reader").await;
    host.host.enable("reader").await.unwrap();
    let read = |folder: &TempDir| folder.path().join("letter");
    assert_eq!(attempt(&host, "reader", "read", read(&granted)).await, format!("done: {PLANTED}"));
    assert!(attempt(&host, "reader", "write", read(&granted)).await.starts_with("refused: "));
    assert!(attempt(&host, "reader", "read", read(&beside)).await.starts_with("refused: "));
    assert_eq!(fs::read_to_string(read(&granted)).unwrap(), PLANTED);
    let view = host.host.plugin("reader").await.unwrap();
    assert_eq!((&view.requested_permissions, &view.granted_permissions), (&vec![reads.clone()], &vec![reads]));

    // Taking it back stops it.
    let view = host.host.set_permissions("reader", &[]).await.unwrap();
    assert!(view.enforcement.is_none() && !view.enabled);
}

// Requirement 106: a link that is bent after the approval would move the grant to another place.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_leads_elsewhere_now_is_held() {
    let (first, second, place) = (planted(), planted(), planted());
    let link = place.path().join("notes");
    std::os::unix::fs::symlink(first.path(), &link).unwrap();
    let host = TestHost::with(production()).await;
    host.run(&trying("linked").permission(&format!("fs.read:{}", link.display()))).await;
    assert_eq!(attempt(&host, "linked", "read", link.join("letter")).await, format!("done: {PLANTED}"));
    let before = host.host.review("linked").await.unwrap();
    host.host.disable("linked").await.unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(second.path(), &link).unwrap();
    let error = host.host.enable("linked").await.unwrap_err();
    assert_eq!(error.code, plugward_host::ErrorCode::McpTrustApprovalRequired, "{}", error.message);
    let after = host.host.review("linked").await.unwrap();
    assert_ne!(before.digest, after.digest);
    assert!(!after.approved && !after.changes.is_empty());
}

// Invariant 1: a plugin that could reach plugward's own folder could approve itself.
#[tokio::test(flavor = "multi_thread")]
async fn plugwards_own_folder_is_never_granted() {
    let host = TestHost::with(production()).await;
    let own = host.home().canonicalize().unwrap();
    for (id, permission) in [
        ("inside", format!("fs.read:{}", own.join("homes").display())),
        ("above", format!("fs.write:{}", own.parent().unwrap().display())),
    ] {
        let package = trying(id).permission(&permission).package();
        host.host.install(package.path(), None).await.unwrap();
        let error = host.host.review(id).await.unwrap_err();
        assert!(error.message.contains("reaches plugward's own folder"), "{}", error.message);
    }
}
