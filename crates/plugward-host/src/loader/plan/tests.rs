//! The rules one by one, and a thousand random operations against a fresh load.

use super::*;

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

fn good(name: &str, version: u64) -> Found {
    Found::Plugin { id: id(name), digest: format!("{name} {version}") }
}

fn bad(version: u64) -> Found {
    Found::Bad { reasons: vec!["1:1: no".to_owned()], digest: format!("bad {version}") }
}

fn scan(files: &[(&str, Found)]) -> Scan {
    let files = files.iter().map(|(path, found)| (PathBuf::from(path), found.clone())).collect();
    Scan { files, unreadable: BTreeMap::new() }
}

/// Does what the host would do.
fn apply(known: &mut Known, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Install { id, owned } => {
                assert!(known.plugins.insert(id.clone(), owned.clone()).is_none(), "installed twice: {id}");
            }
            Action::Update { id, owned } => {
                let before = known.plugins.insert(id.clone(), owned.clone()).unwrap();
                assert_ne!(before.digest, owned.digest, "nothing changed: {id}");
            }
            Action::Move { id, owned } => {
                let before = known.plugins.insert(id.clone(), owned.clone()).unwrap();
                assert_eq!(before.digest, owned.digest, "a move is no update: {id}");
            }
            Action::Remove { id } => assert!(known.plugins.remove(id).is_some(), "removed and not there: {id}"),
        }
    }
}

fn loaded(files: &[(&str, Found)]) -> Known {
    let mut known = Known::default();
    apply(&mut known, &plan(&Known::default(), &scan(files)).actions);
    known
}

/// The actions on `known` for these files, in words.
fn told(known: &Known, files: &[(&str, Found)]) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Install { id, .. } => format!("install {id}"),
        Action::Update { id, .. } => format!("update {id}"),
        Action::Move { id, owned } => format!("move {id} {}", owned.file.display()),
        Action::Remove { id } => format!("remove {id}"),
    };
    plan(known, &scan(files)).actions.iter().map(word).collect()
}

#[test]
fn a_deleted_file_takes_its_plugin_along_and_no_other() {
    // H1, H2: the file counts, not a likeness of names.
    let known =
        loaded(&[("10-mine.json", good("mine", 1)), ("victim.json", good("other", 1)), ("z.json", good("victim", 1))]);
    let rest = [("victim.json", good("other", 1)), ("z.json", good("victim", 1))];
    assert_eq!(told(&known, &rest), ["remove mine"]);
    let rest = [("10-mine.json", good("mine", 1)), ("z.json", good("victim", 1))];
    assert_eq!(told(&known, &rest), ["remove other"]);
}

#[test]
fn another_id_in_the_same_file_is_another_plugin() {
    // H3: the one before does not stay behind.
    let known = loaded(&[("z.json", good("first", 1))]);
    assert_eq!(told(&known, &[("z.json", good("second", 1))]), ["remove first", "install second"]);
}

#[test]
fn two_files_with_one_id_are_an_error_at_load_and_later_and_a_newcomer_takes_nobodys_place() {
    // H4: never silently another file's plugin.
    let files = [("b.yaml", good("mine", 1)), ("c.yaml", good("mine", 2))];
    let first = plan(&Known::default(), &scan(&files));
    let duplicate = Problem::Duplicate { id: id("mine"), first: "b.yaml".into() };
    assert_eq!(first.problems, BTreeMap::from([("c.yaml".into(), duplicate.clone())]));
    let mut known = Known::default();
    apply(&mut known, &first.actions);
    assert_eq!(known.plugins[&id("mine")].digest, "mine 1", "loaded anew, the first by path");
    // A file that comes later has the error, wherever its name stands, even if it has the same content.
    for newcomer in [good("mine", 3), good("mine", 1)] {
        let files = [("a.yaml", newcomer), files[0].clone(), files[1].clone()];
        let again = plan(&known, &scan(&files));
        let problems = BTreeMap::from([("a.yaml".into(), duplicate.clone()), ("c.yaml".into(), duplicate.clone())]);
        assert_eq!((again.actions, again.problems), (Vec::new(), problems));
    }
    // The owner is what it was through a bad edit, too, and may be edited.
    let edited = |owner: Found| [("a.yaml", good("mine", 3)), ("b.yaml", owner)];
    let bad_edit = plan(&known, &scan(&edited(bad(2))));
    assert_eq!((bad_edit.actions, &bad_edit.problems[Path::new("a.yaml")]), (Vec::new(), &duplicate));
    assert_eq!(told(&known, &edited(good("mine", 4))), ["update mine"]);
    // Once it is gone, or another plugin, the first of the rest is the plugin, as it would be after a fresh load.
    assert_eq!(told(&known, &files[1..]), ["update mine"]);
    let given_up = [("a.yaml", good("mine", 3)), ("b.yaml", good("other", 1))];
    assert_eq!(told(&known, &given_up), ["update mine", "install other"]);
}

#[test]
fn a_bad_edit_keeps_the_version_before_and_says_so() {
    let known = loaded(&[("a.yaml", good("mine", 1))]);
    let edited = plan(&known, &scan(&[("a.yaml", bad(2)), ("new.yaml", bad(1))]));
    assert_eq!(edited.actions, []);
    let keeps = |problem: &Problem| match problem {
        Problem::Bad { keeps, .. } => keeps.clone(),
        other => panic!("{other:?}"),
    };
    let kept: Vec<_> = edited.problems.values().map(keeps).collect();
    assert_eq!(kept, [Some(id("mine")), None]);
    assert_eq!(told(&known, &[("a.yaml", good("mine", 3))]), ["update mine"]);
}

#[test]
fn a_renamed_file_restarts_nothing() {
    let known = loaded(&[("a.yaml", good("mine", 1))]);
    assert_eq!(told(&known, &[("b.yaml", good("mine", 1))]), ["move mine b.yaml"]);
    assert_eq!(told(&known, &[("b.yaml", good("mine", 2))]), ["update mine"]);
    // Whoever else has the id: the content decides, and only then the path.
    let renamed = [("a.yaml", good("other", 1)), ("b.yaml", good("mine", 2)), ("c.yaml", good("mine", 1))];
    assert_eq!(told(&known, &renamed), ["move mine c.yaml", "install other"]);
}

#[test]
fn what_was_installed_by_hand_belongs_to_no_file() {
    let known = Known { by_hand: BTreeSet::from([id("mine")]), ..Known::default() };
    let files = scan(&[("a.yaml", good("mine", 1))]);
    let plan = plan(&known, &files);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.problems, BTreeMap::from([("a.yaml".into(), Problem::ByHand { id: id("mine") })]));
}

#[test]
fn a_folder_that_cannot_be_read_takes_nothing_away() {
    // A network file system that is away for a moment must not remove plugins with their data.
    let known = loaded(&[("/far/a.yaml", good("far", 1)), ("/near/b.yaml", good("near", 1))]);
    let mut scan = scan(&[]);
    scan.unreadable.insert("/far".into(), "stale".to_owned());
    assert_eq!(plan(&known, &scan).actions, [Action::Remove { id: id("near") }]);
}

#[test]
fn what_two_looks_do_not_agree_on_waits() {
    // Half-written files and the gap in a rename: nothing is lost and nothing half is loaded.
    let known = loaded(&[("a.yaml", good("mine", 1)), ("b.yaml", good("kept", 1))]);
    let before = scan(&[("a.yaml", good("mine", 1)), ("b.yaml", good("kept", 1))]);
    for now in [
        scan(&[("b.yaml", good("kept", 1))]),
        scan(&[("a.yaml", bad(1)), ("b.yaml", good("kept", 1))]),
        scan(&[("a.yaml", good("mine", 2)), ("b.yaml", good("kept", 1)), ("c.yaml", good("new", 1))]),
    ] {
        let unsure = settled(&before, &now);
        assert!(unsure.is_unsettled());
        assert_eq!(plan(&known, &unsure).actions, []);
    }
    assert!(!settled(&before, &before).is_unsettled());
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// One operation on the files, as a person, an editor or a tool does it.
fn operate(files: &mut BTreeMap<PathBuf, Found>, dice: &mut Dice, step: u64) {
    const PATHS: [&str; 7] = ["a.yaml", "b.json", "c/plugin.yaml", "d.yml", "e.yaml", "f.yaml", "z.yaml"];
    const IDS: [&str; 5] = ["one", "two", "three", "four", "five"];
    let path = PathBuf::from(dice.pick(&PATHS));
    let other = PathBuf::from(dice.pick(&PATHS));
    match dice.below(10) {
        0..4 => drop(files.insert(path, good(dice.pick(&IDS), step))),
        4 => drop(files.insert(path, bad(step))),
        5 | 6 => drop(files.remove(&path)),
        7 => {
            if let Some(found) = files.remove(&path) {
                files.insert(other, found);
            }
        }
        8 => {
            if let Some(found) = files.get(&path).cloned() {
                files.insert(other, found);
            }
        }
        _ => {
            let (first, second) = (files.remove(&path), files.remove(&other));
            files.extend(first.map(|found| (other, found)).into_iter().chain(second.map(|found| (path, found))));
        }
    }
}

/// As if loaded anew: the same plugins, each with the content of a file that claims its id; and where only one does, that
/// file. Of several it is the one that had it first, which a fresh load cannot know.
fn assert_as_fresh(known: &Known, fresh: &Known, scan: &Scan, seed: u64) {
    assert_eq!(known.plugins.keys().collect::<Vec<_>>(), fresh.plugins.keys().collect::<Vec<_>>(), "seed {seed}");
    for (id, owned) in &known.plugins {
        let found = Found::Plugin { id: id.clone(), digest: owned.digest.clone() };
        assert_eq!(scan.files.get(&owned.file), Some(&found), "seed {seed}: {id} is not what its file is");
        let claims = scan.files.values().filter(|found| matches!(found, Found::Plugin { id: of, .. } if of == id));
        if claims.count() == 1 {
            assert_eq!(owned, &fresh.plugins[id], "seed {seed}");
        }
    }
    // The same files are left over, each told: as many as there are claims without a plugin.
    let told = |known: &Known| plan(known, scan).problems.len();
    assert_eq!(told(known), told(fresh), "seed {seed}");
}

#[test]
fn a_thousand_random_operations_end_where_a_fresh_load_would() {
    // Issue 4: the registry follows, and nothing but the changed plugin is touched.
    for seed in 1..=40 {
        let mut dice = Dice(u64::from_le_bytes([0x5e; 8]) ^ seed);
        let (mut files, mut known, mut last) = (BTreeMap::new(), Known::default(), Scan::default());
        let mut acted = 0;
        for step in 0..1000 {
            let before = files.clone();
            operate(&mut files, &mut dice, step);
            let now = Scan { files: files.clone(), unreadable: BTreeMap::new() };
            // Some looks see only one of two states; nothing they are unsure of may matter.
            if dice.below(4) == 0 {
                let half = settled(&last, &now);
                let plan = plan(&known, &half);
                apply(&mut known, &plan.actions);
            }
            let plan = plan(&known, &now);
            let touched: BTreeSet<&PathBuf> = before
                .keys()
                .chain(files.keys())
                .filter(|path| before.get(*path) != files.get(*path) || last.files.get(*path) != files.get(*path))
                .collect();
            for action in &plan.actions {
                let files_of_it = |found: &Found| matches!(found, Found::Plugin { id, .. } if id == action.id());
                let owner = known.plugins.get(action.id()).map(|owned| &owned.file);
                let concerned = touched.iter().any(|path| {
                    owner == Some(*path)
                        || [before.get(*path), last.files.get(*path), files.get(*path)]
                            .into_iter()
                            .flatten()
                            .any(files_of_it)
                });
                assert!(concerned, "seed {seed}, step {step}: {action:?} for a plugin nobody touched");
            }
            acted += plan.actions.len();
            apply(&mut known, &plan.actions);
            assert_eq!(
                super::plan(&known, &now).actions,
                [],
                "seed {seed}, step {step}: a second look finds more to do"
            );
            last = now;
        }
        // What is bad keeps its version before, which a fresh load cannot know: mended, all is as if loaded anew.
        let mended: BTreeMap<PathBuf, Found> =
            files.into_iter().filter(|(_, found)| matches!(found, Found::Plugin { .. })).collect();
        let end = Scan { files: mended, unreadable: BTreeMap::new() };
        let last_steps = plan(&known, &end).actions;
        apply(&mut known, &last_steps);
        let mut fresh = Known::default();
        apply(&mut fresh, &plan(&Known::default(), &end).actions);
        assert_as_fresh(&known, &fresh, &end, seed);
        assert!(acted > 200, "{acted} actions show nothing");
    }
}
