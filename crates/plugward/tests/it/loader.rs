//! Folders of plugin files: the registry follows them, and nothing but what changed is touched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plugward_host::{FolderSettings, FolderWatch, Host};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, Settings, TestHost, eventually, is_alive, request};

/// A host that follows a folder.
struct Followed {
    test: TestHost,
    folder: tempfile::TempDir,
}

impl Followed {
    /// Follows an empty folder, by notices unless `watch` says otherwise.
    async fn new(watch: FolderWatch) -> Self {
        let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
        let followed = Self { test, folder };
        followed.follow(watch).await;
        followed
    }

    async fn follow(&self, watch: FolderWatch) {
        let settings = FolderSettings { watch, ..FolderSettings::of(self.folder()) };
        self.test.host.start_enabled();
        self.test.host.load_folders(&settings).await.unwrap();
        self.test.host.follow_folders(settings);
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a file as a careful program does: whole, then in its place.
    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.folder()).unwrap();
        let part = self.folder().join(format!(".{name}.part"));
        fs::write(&part, text).unwrap();
        fs::rename(part, self.path(name)).unwrap();
    }

    /// Waits until exactly these plugins are there, with these manifests.
    async fn holds(&self, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect();
        eventually("the registry follows the folder", || (manifests(&self.test.host) == expected).then_some(())).await;
    }

    /// Approves and enables a plugin of a file.
    async fn run(&self, id: &str) {
        eventually("it is loaded", || self.test.host.host_status(id).ok()).await;
        self.test.approve(id).await;
        self.test.host.enable(id).await.unwrap();
    }

    fn problems(&self) -> Vec<String> {
        let folders = self.test.host.folders().unwrap_or_default();
        folders
            .problems
            .iter()
            .map(|problem| format!("{}: {}", name_of(&problem.path), problem.reasons.join("; ")))
            .collect()
    }

    async fn problem(&self, name: &str, words: &str) {
        let is_told = || self.problems().iter().any(|line| line.starts_with(name) && line.contains(words));
        eventually(&format!("{name} is told: {words}"), || is_told().then_some(())).await;
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn manifests(host: &Host) -> BTreeMap<String, String> {
    host.overview().into_iter().map(|view| (view.id.to_string(), view.manifest_text)).collect()
}

fn says(id: &str, version: usize) -> String {
    Fixture::imported(id, &["never-answers"]).extra(&format!("description: version {version}\n")).manifest()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_made_after_the_start_is_followed_through_edit_rename_delete_and_link_swap() {
    // Requirement 167, rows H1 to H3.
    let it = Followed::new(FolderWatch::Events).await;
    it.problem("plugins", "cannot be read").await;
    let (a, b) = (says("a", 1), says("b", 1));
    it.put("10-a.yaml", &a);
    it.put("b.yaml", &b);
    it.holds(&[("a", &a), ("b", &b)]).await;
    // What is told of a look is told once all of it is done.
    eventually("nothing is wrong any more", || it.problems().is_empty().then_some(())).await;
    // An edit in place, by an editor that empties the file first.
    let edited = says("a", 2);
    fs::write(it.path("10-a.yaml"), "").unwrap();
    fs::write(it.path("10-a.yaml"), &edited).unwrap();
    it.holds(&[("a", &edited), ("b", &b)]).await;
    // Another id in the file: the one before does not stay.
    let other = says("other", 1);
    it.put("10-a.yaml", &other);
    it.holds(&[("other", &other), ("b", &b)]).await;
    fs::remove_file(it.path("10-a.yaml")).unwrap();
    it.holds(&[("b", &b)]).await;
    // A link that is swapped, as deployments do.
    let versions = [says("linked", 1), says("linked", 2)];
    for (number, text) in versions.iter().enumerate() {
        fs::write(it.folder.path().join(format!("v{number}")), text).unwrap();
        let new = it.path(".new");
        symlink(it.folder.path().join(format!("v{number}")), &new).unwrap();
        fs::rename(new, it.path("linked.yaml")).unwrap();
        it.holds(&[("b", &b), ("linked", text)]).await;
    }
    // A package folder.
    let packed = says("packed", 1);
    fs::create_dir(it.path("pack")).unwrap();
    fs::write(it.path("pack/plugin.yaml"), &packed).unwrap();
    it.holds(&[("b", &b), ("linked", &versions[1]), ("packed", &packed)]).await;
    fs::remove_dir_all(it.path("pack")).unwrap();
    it.holds(&[("b", &b), ("linked", &versions[1])]).await;
    // A link to a package folder that lies elsewhere.
    let elsewhere = it.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("plugin.yaml"), &packed).unwrap();
    symlink(&elsewhere, it.path("pack")).unwrap();
    it.holds(&[("b", &b), ("linked", &versions[1]), ("packed", &packed)]).await;
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_holds_its_plugin_and_its_new_command_does_not_run() {
    // Issue 4, item 4; invariant 8.
    let it = Followed::new(FolderWatch::Events).await;
    let mark = it.folder.path().join("ran");
    it.put("a.yaml", &says("a", 1));
    it.run("a").await;
    let pid = it.test.host.host_status("a").unwrap().pid.unwrap();
    let changed = Fixture::imported("a", &["never-answers", "--pid-file", mark.to_str().unwrap()]);
    it.put("a.yaml", &changed.manifest());
    eventually("it is held", || {
        let status = it.test.host.overview().pop().unwrap();
        (status.status.as_str() == "permission_required").then_some(())
    })
    .await;
    eventually("the old process ended", || (!is_alive(pid)).then_some(())).await;
    let text = it.test.call("a.say", json!({})).await.outcome.unwrap_err().message("a.say");
    assert!(text.contains("not what was approved"), "{text}");
    assert!(!mark.exists(), "a command ran that nobody approved");
    // Approved, it runs by itself: it was never switched off. Positive control for the mark, too.
    it.test.approve("a").await;
    eventually("it runs", || it.test.host.host_status("a").unwrap().pid).await;
    eventually("the new command ran", || mark.exists().then_some(())).await;
    // Back to what was approved first: that approval was replaced, so it is held again.
    it.put("a.yaml", &says("a", 1));
    eventually("it is held again", || {
        (it.test.host.overview().pop().unwrap().status.as_str() == "permission_required").then_some(())
    })
    .await;
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_edit_keeps_the_version_before_running_and_says_where_the_mistake_is() {
    let it = Followed::new(FolderWatch::Events).await;
    let good = says("a", 1);
    it.put("a.yaml", &good);
    it.run("a").await;
    let pid = it.test.host.host_status("a").unwrap().pid;
    it.put("a.yaml", "id: a\nnaem: x\n");
    it.put("c.yaml", &says("c", 1));
    it.problem("a.yaml", "a.yaml:2:1").await;
    let view = it.test.host.plugin("a").await.unwrap();
    assert!(view.warnings.iter().any(|warning| warning.contains("the version before stays")), "{:?}", view.warnings);
    assert_eq!(it.test.host.host_status("a").unwrap().pid, pid);
    assert_eq!(it.test.text("a.say", json!({})).await, "pong");
    // One bad file stops nothing.
    it.holds(&[("a", &good), ("c", &says("c", 1))]).await;
    // The same id twice is told with both files, and takes nobody's place.
    it.put("b.yaml", &says("a", 9));
    it.put("a.yaml", &good);
    it.problem("b.yaml", "a.yaml` is already").await;
    // H4: nor does a file whose name comes first.
    it.put("0.yaml", &says("a", 10));
    it.problem("0.yaml", "a.yaml` is already").await;
    // A rename is no change, whatever the ending: the plugin runs on.
    fs::remove_file(it.path("b.yaml")).unwrap();
    fs::rename(it.path("a.yaml"), it.path("y.yml")).unwrap();
    it.problem("0.yaml", "y.yml` is already").await;
    assert_eq!(
        (it.test.host.host_status("a").unwrap().pid, manifests(&it.test.host)["a"].as_str()),
        (pid, good.as_str())
    );
    assert_eq!(it.test.text("a.say", json!({})).await, "pong");
    let home = {
        let Followed { test, folder } = it;
        (test.close().await, folder)
    };
    // What it was loaded from outlives the host.
    let it = Followed { test: TestHost::at(home.0, Settings::default()).await, folder: home.1 };
    it.follow(FolderWatch::Events).await;
    eventually("it runs again", || it.test.host.host_status("a").unwrap().pid).await;
    assert_eq!(manifests(&it.test.host)["a"], good);
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_finish_on_the_version_they_began_with() {
    let it = Followed::new(FolderWatch::Events).await;
    let slow = |version: usize| {
        let fixture = Fixture::imported("s", &["slow-fast", "--seconds", "6"]);
        fixture.extra(&format!("description: version {version}\n")).manifest()
    };
    it.put("s.yaml", &slow(1));
    it.run("s").await;
    let host = it.test.host.clone();
    let call = tokio::spawn(async move { host.call(request("s.slow", json!({}))).await });
    eventually("the call runs", || (it.test.host.host_status("s").unwrap().calls_running == 1).then_some(())).await;
    it.put("s.yaml", &slow(2));
    eventually("the old version takes no more calls", || it.test.tool_names("s").is_empty().then_some(())).await;
    // What a person wants meanwhile is wanted of the version that comes, and not of one that is gone.
    let enabling = tokio::spawn({
        let host = it.test.host.clone();
        async move { host.enable("s").await }
    });
    // Other files do not wait for that call.
    it.put("other.yaml", &says("other", 1));
    eventually("the other file is loaded", || manifests(&it.test.host).contains_key("other").then_some(())).await;
    assert!(!call.is_finished(), "the call ended too early to show anything");
    it.holds(&[("s", &slow(2)), ("other", &says("other", 1))]).await;
    let reply = call.await.unwrap().outcome.unwrap();
    assert_eq!(reply.output()["content"][0]["text"], "slow");
    let held = enabling.await.unwrap().unwrap_err();
    assert_eq!(held.code.as_str(), "MCP_TRUST_APPROVAL_REQUIRED", "{held}");
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_again_finds_what_changed_meanwhile_and_approves_nothing() {
    let it = Followed::new(FolderWatch::Events).await;
    it.put("a.yaml", &says("a", 1));
    it.put("b.yaml", &says("b", 1));
    it.put("c.yaml", &says("c", 1));
    for id in ["a", "b", "c"] {
        it.run(id).await;
    }
    let Followed { test, folder } = it;
    let home = test.close().await;
    let plugins = folder.path().join("plugins");
    fs::remove_file(plugins.join("a.yaml")).unwrap();
    fs::write(plugins.join("b.yaml"), says("b", 2)).unwrap();
    let it = Followed { test: TestHost::at(home, Settings::default()).await, folder };
    it.follow(FolderWatch::Events).await;
    it.holds(&[("b", &says("b", 2)), ("c", &says("c", 1))]).await;
    eventually("the one nobody touched runs", || it.test.host.host_status("c").unwrap().pid).await;
    assert_eq!(it.test.text("c.say", json!({})).await, "pong");
    eventually("the changed one is held", || {
        let views = it.test.host.overview();
        views.iter().any(|view| view.id.as_str() == "b" && view.status.as_str() == "permission_required").then_some(())
    })
    .await;
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_followed_without_notices_as_well() {
    // Network file systems tell nothing.
    let it = Followed::new(FolderWatch::Poll(Duration::from_millis(100))).await;
    it.put("a.yaml", &says("a", 1));
    it.holds(&[("a", &says("a", 1))]).await;
    it.put("a.yaml", &says("a", 2));
    it.holds(&[("a", &says("a", 2))]).await;
    fs::remove_file(it.path("a.yaml")).unwrap();
    it.holds(&[]).await;
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_comes_back_needs_no_new_consent_and_other_content_does() {
    // A folder that is not mounted for a while is empty: that must not cost approvals and data.
    let it = Followed::new(FolderWatch::Events).await;
    let (text, away) = (says("a", 1), it.folder.path().join("away"));
    it.put("a.yaml", &text);
    it.run("a").await;
    let kept = it.test.home().join("homes/a/notes");
    fs::write(&kept, "mine").unwrap();
    // Not to be looked at is not gone.
    let pid = it.test.host.host_status("a").unwrap().pid;
    let turning = it.path(".turning");
    symlink("a.yaml", &turning).unwrap();
    fs::rename(&turning, it.path("a.yaml")).unwrap();
    eventually("it is told", || (!it.problems().is_empty()).then_some(())).await;
    assert_eq!(it.test.host.host_status("a").unwrap().pid, pid, "an error of a look ends a plugin");
    it.put("a.yaml", &text);
    fs::rename(it.folder(), &away).unwrap();
    fs::create_dir(it.folder()).unwrap();
    it.holds(&[]).await;
    assert!(kept.exists(), "an empty folder deletes what a plugin keeps");
    fs::remove_dir(it.folder()).unwrap();
    fs::rename(&away, it.folder()).unwrap();
    it.holds(&[("a", &text)]).await;
    eventually("it runs as before", || it.test.host.host_status("a").unwrap().pid).await;
    assert_eq!(it.test.text("a.say", json!({})).await, "pong");
    // Other content under the same id was approved by nobody.
    fs::remove_file(it.path("a.yaml")).unwrap();
    it.holds(&[]).await;
    it.put("a.yaml", &says("a", 2));
    it.holds(&[("a", &says("a", 2))]).await;
    assert!(it.test.host.enable("a").await.is_err());
    // A person who removes it forgets it.
    fs::remove_file(it.path("a.yaml")).unwrap();
    it.holds(&[]).await;
    it.test.host.remove("a").await.unwrap();
    assert!(!kept.exists());
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_installed_by_hand_is_not_taken_over_by_a_file() {
    let it = Followed::new(FolderWatch::Events).await;
    let by_hand = Fixture::imported("mine", &["never-answers"]);
    it.test.run(&by_hand).await;
    let pid = it.test.host.host_status("mine").unwrap().pid;
    it.put("mine.yaml", &says("mine", 7));
    it.problem("mine.yaml", "was installed by hand").await;
    it.holds(&[("mine", &by_hand.manifest())]).await;
    assert_eq!(it.test.host.host_status("mine").unwrap().pid, pid);
    // The way out that the message names.
    it.test.host.remove("mine").await.unwrap();
    it.put("other.yaml", &says("other", 1));
    it.holds(&[("mine", &says("mine", 7)), ("other", &says("other", 1))]).await;
    it.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_single_commands_are_tools_and_a_changed_one_needs_one_approval() {
    // Requirements 167, 186, 187: load, register, execute; edit and approve again.
    let it = Followed::new(FolderWatch::Events).await;
    let tool = |says: &str| {
        format!(
            "type: mcp_tool\nname: greet\nworking_directory: plugin\ndescription: says {says}\ncommand: [echo, {says}, \"{{{{params.who}}}}\"]\n\
             parameters:\n  - name: who\n    type: string\n    required: true\n"
        )
    };
    it.put("greet.yaml", &tool("hello"));
    it.put("other.yaml", &says("other", 1));
    it.run("greet").await;
    let said = |host: &Host| {
        let host = host.clone();
        async move {
            let report = host.call(request("greet.greet", json!({"who": "you"}))).await;
            report.outcome.map(|reply| reply.output().to_string()).map_err(|failure| failure.message("greet.greet"))
        }
    };
    let first = said(&it.test.host).await.unwrap();
    assert!(first.contains("hello you"), "{first}");
    it.put("greet.yaml", &tool("goodbye"));
    it.holds(&[("greet", &tool("goodbye")), ("other", &says("other", 1))]).await;
    eventually("it is held", || {
        let views = it.test.host.overview();
        views
            .iter()
            .any(|view| view.id.as_str() == "greet" && view.status.as_str() == "permission_required")
            .then_some(())
    })
    .await;
    assert!(said(&it.test.host).await.unwrap_err().contains("not what was approved"));
    it.test.approve("greet").await;
    eventually("its tool is back", || (it.test.tool_names("greet") == ["greet"]).then_some(())).await;
    let second = said(&it.test.host).await.unwrap();
    assert!(second.contains("goodbye you"), "{second}");
    it.test.close().await;
}

/// The texts that claim each id.
fn claims(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        if let Ok(parsed) = plugward_policy::parse_manifest(&text, "x.yaml") {
            claims.entry(parsed.manifest.id.to_string()).or_default().push(text);
        }
    }
    claims
}

/// Random file operations: as the pure test of the plan, with real files, links and half-written texts.
struct Random<'a> {
    it: &'a Followed,
    dice: u64,
}

impl Random<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from(self.dice % bound as u64).unwrap()
    }

    fn step(&mut self, number: usize) {
        const NAMES: [&str; 5] = ["a.yaml", "b.yml", "c.yaml", "d.yaml", "e.yaml"];
        const IDS: [&str; 4] = ["one", "two", "three", "four"];
        let (path, other) = (self.it.path(NAMES[self.below(5)]), self.it.path(NAMES[self.below(5)]));
        let text = says(IDS[self.below(4)], number);
        match self.below(9) {
            0..3 => self.it.put(&name_of(&path), &text),
            3 => fs::write(&path, &text[..text.len() / 2]).unwrap(),
            4 => fs::write(&path, "id: [broken\n").unwrap(),
            5 => drop(fs::remove_file(&path)),
            6 => drop(fs::rename(&path, &other)),
            7 => drop(fs::copy(&path, &other)),
            _ => {
                let target = self.it.folder.path().join(format!("target-{number}"));
                fs::write(&target, &text).unwrap();
                let _ = fs::remove_file(&path);
                symlink(&target, &path).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_operations_under_load_end_as_a_fresh_load_and_touch_no_other_plugin() {
    // Issue 4: no restart of an untouched plugin, no lost call, and the registry equal to a fresh load.
    const OPERATIONS: usize = 1000;
    let it = Followed::new(FolderWatch::Events).await;
    it.put("steady.yaml", &says("steady", 1));
    it.run("steady").await;
    let before = it.test.host.host_status("steady").unwrap();
    let (stop, made) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (host, stop, made) = (it.test.host.clone(), stop.clone(), Arc::clone(&made));
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let report = host.call(request("steady.say", json!({}))).await;
                    if let Err(failure) = report.outcome {
                        panic!("a call was lost: {}", failure.message("steady.say"));
                    }
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut random = Random { it: &it, dice: 0x1357_9bdf_2468_ace0 };
    for number in 0..OPERATIONS {
        random.step(number);
        // Some operations come together and some apart: both are looked at.
        if random.below(4) == 0 {
            let calls = made.load(Ordering::Relaxed);
            eventually("calls go on", || (made.load(Ordering::Relaxed) > calls + 20).then_some(())).await;
        }
    }
    // What is broken keeps its version before, which a fresh load cannot know.
    for entry in fs::read_dir(it.folder()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if plugward_policy::parse_manifest(&text, "x.yaml").is_err() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let fresh = TestHost::new().await;
    fresh.host.load_folders(&FolderSettings::of(it.folder())).await.unwrap();
    let expected = manifests(&fresh.host);
    let claims = claims(&it.folder());
    // Of several files with one id the one that had it first keeps it, which a fresh load cannot know.
    let is_as_fresh = || {
        let now = manifests(&it.test.host);
        let is_right = |(id, text): (&String, &String)| claims[id].contains(text);
        now.keys().eq(expected.keys()) && now.iter().all(is_right)
    };
    eventually("the registry is that of a fresh load", || is_as_fresh().then_some(())).await;
    let told = |host: &Host| host.folders().unwrap().problems.len();
    let left_over: usize = claims.values().map(|texts| texts.len() - 1).sum();
    assert_eq!(told(&fresh.host), left_over);
    eventually("the same is wrong", || (told(&it.test.host) == left_over).then_some(())).await;
    stop.cancel();
    for caller in callers {
        caller.await.unwrap();
    }
    let after = it.test.host.host_status("steady").unwrap();
    assert_eq!((after.pid, after.restarts, after.generation), (before.pid, 0, before.generation));
    assert!(made.load(Ordering::Relaxed) > OPERATIONS);
    fresh.close().await;
    it.test.close().await;
}
