//! `docker run` and `podman run` as a plugin's command.
//!
//! The container is a child of the engine's daemon, not of the client we start: killing the client leaves it running
//! (case B047). So the run gets `--rm` and `--init`, a label that finds leftovers after a crash of the host, and per
//! start a name to stop it by. A `--name` of the manifest gives way to ours: stopping by a name
//! that is not ours could end somebody else's container, and a leftover of that name would block every later start.
//! Owns recognising such a command and the argument lists of the engine; refuses to run any of them.

use std::path::Path;
use std::time::Duration;

use plugward_policy::{Digest, PluginId};

/// Label every container of ours carries; its value is the plugin of one home.
const LABEL: &str = "plugward.plugin";

/// Hex digits that tell one home's containers from another's in names and labels.
const OWNER_DIGITS: usize = 8;

/// Options of `run` that take no value, in Docker and Podman. Every other option without `=` takes the next argument;
/// a new option without value that is missing here can only hide a `--rm` or `--name` that follows it.
const OPTIONS_WITHOUT_VALUE: [&str; 25] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--help",
    "--http-proxy",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--no-hostname",
    "--no-hosts",
    "--oom-kill-disable",
    "--passwd",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--read-only-tmpfs",
    "--replace",
    "--rm",
    "--rmi",
    "--rootfs",
    "--sig-proxy",
    "--tls-verify",
    "--tty",
    "--use-api-socket",
];

/// One-letter options of `run` that take no value and may be joined (`-it`).
const LETTERS_WITHOUT_VALUE: &str = "diPqt";

/// Options of the engine itself, before `run`, that take a value.
const ENGINE_OPTIONS_WITH_VALUE: [&str; 14] = [
    "--config",
    "--context",
    "--host",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--connection",
    "--identity",
    "--root",
    "--runroot",
    "--url",
    "-H",
    "-c",
];

/// Programs that run containers; Podman takes Docker's arguments.
const ENGINES: [&str; 2] = ["docker", "podman"];

/// A command that starts a container, with what is needed to end that container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerRun {
    /// Arguments of the engine before its subcommand, such as `--host`; stopping needs them as well.
    engine_arguments: Vec<String>,
    /// All arguments, with the options we add to every start.
    arguments: Vec<String>,
    /// Where options may be inserted: right behind `run`.
    options_at: usize,
    /// Value of our label.
    owner: String,
    /// Names of all starts begin with this.
    prefix: String,
}

impl ContainerRun {
    /// Recognises `docker run …` and `podman run …`. `home_dir` is the plugin's private home; it tells two homes on
    /// one machine apart.
    pub(super) fn recognise(command: &str, args: &[String], plugin: &PluginId, home_dir: &Path) -> Option<Self> {
        let program = Path::new(command).file_name()?.to_str()?;
        if !ENGINES.contains(&program) {
            return None;
        }
        let tag = Digest::of(home_dir.as_os_str().as_encoded_bytes()).hex();
        let tag: String = tag.chars().take(OWNER_DIGITS).collect();
        Self::of(args, format!("{tag}.{}", plugin.as_str()), format!("plugward-{tag}-{}", plugin.as_str()))
    }

    /// The same plugin's container with other arguments: those of one call of a command. None if they start none.
    pub(super) fn with_arguments(&self, args: &[String]) -> Option<Self> {
        Self::of(args, self.owner.clone(), self.prefix.clone())
    }

    fn of(args: &[String], owner: String, prefix: String) -> Option<Self> {
        let (subcommand, options_at) = find_run(args)?;
        let given = GivenOptions::read(&args[options_at..]);
        let mut added = Vec::new();
        if !given.removes {
            added.push("--rm".to_owned());
        }
        if !given.has_init {
            added.push("--init".to_owned());
        }
        added.push("--label".to_owned());
        added.push(format!("{LABEL}={owner}"));
        let mut arguments = args[..options_at].to_vec();
        arguments.extend(added);
        let kept = args[options_at..].iter().enumerate().filter(|(index, _)| !given.name_at.contains(index));
        arguments.extend(kept.map(|(_, argument)| argument.clone()));
        Some(Self { engine_arguments: args[..subcommand].to_vec(), arguments, options_at, owner, prefix })
    }

    /// The arguments as they are reviewed and approved: the manifest's, with `--rm`, `--init` and our label.
    #[must_use]
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The container's name at start `generation`; no other start has it.
    #[must_use]
    pub(crate) fn name(&self, generation: u64) -> String {
        format!("{}-{generation}", self.prefix)
    }

    /// The arguments of start `generation`: the approved ones with `--name`.
    #[must_use]
    pub(crate) fn start_arguments(&self, generation: u64) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        let name = ["--name".to_owned(), self.name(generation)];
        arguments.splice(self.options_at..self.options_at, name);
        arguments
    }

    /// Arguments that ask the container to end and kill it after `grace` (whole seconds, at least one).
    #[must_use]
    pub(crate) fn stop_arguments(&self, name: &str, grace: Duration) -> Vec<String> {
        let seconds = grace.as_secs().max(1).to_string();
        self.engine_command(["stop", "--time", &seconds, name])
    }

    /// Arguments that end and remove the containers at once.
    #[must_use]
    pub(crate) fn remove_arguments(&self, names: &[&str]) -> Vec<String> {
        self.engine_command(["rm", "--force"].iter().chain(names).copied())
    }

    /// Arguments that print the names of this plugin's containers, one a line: what a host that was killed left.
    #[must_use]
    pub(crate) fn list_arguments(&self) -> Vec<String> {
        let filter = format!("label={LABEL}={}", self.owner);
        self.engine_command(["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"])
    }

    /// Whether `name`, as the engine listed it, is a container of ours. An engine that ignores the filter must
    /// not make us remove somebody else's containers.
    #[must_use]
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        let numbered = name.strip_prefix(self.prefix.as_str()).and_then(|rest| rest.strip_prefix('-'));
        numbered.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    }

    fn engine_command<'a>(&self, rest: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        self.engine_arguments.iter().cloned().chain(rest.into_iter().map(str::to_owned)).collect()
    }
}

/// Where the subcommand begins and where its options begin.
fn find_run(args: &[String]) -> Option<(usize, usize)> {
    let mut at = 0;
    while args.get(at)?.starts_with('-') {
        at += if ENGINE_OPTIONS_WITH_VALUE.contains(&args[at].as_str()) { 2 } else { 1 };
    }
    match args.get(at)?.as_str() {
        "run" => Some((at, at + 1)),
        "container" if args.get(at + 1)? == "run" => Some((at, at + 2)),
        _ => None,
    }
}

/// The options of the manifest that decide what we add.
#[derive(Debug, Default, PartialEq, Eq)]
struct GivenOptions {
    removes: bool,
    has_init: bool,
    /// Positions of `--name` and its value.
    name_at: Vec<usize>,
}

impl GivenOptions {
    /// Reads options up to the image: what follows belongs to the program in the container.
    fn read(args: &[String]) -> Self {
        let mut given = Self::default();
        let mut at = 0;
        while let Some(arg) = args.get(at).filter(|arg| arg.len() > 1 && arg.starts_with('-') && *arg != "--") {
            let (option, value) = match arg.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (arg.as_str(), None),
            };
            let length = if value.is_none() && takes_next(option) { 2 } else { 1 };
            match option {
                "--rm" => given.removes = value != Some("false"),
                "--init" => given.has_init = value != Some("false"),
                "--name" => given.name_at.extend(at..at + length),
                _ => {}
            }
            at += length;
        }
        given
    }
}

/// Whether an option without `=` takes the next argument as its value.
fn takes_next(option: &str) -> bool {
    if option.starts_with("--") {
        return !OPTIONS_WITHOUT_VALUE.contains(&option);
    }
    // `-e NAME` and `-ite NAME` take one, `-it` and `-p80:80` do not.
    option[1..].trim_start_matches(|letter| LETTERS_WITHOUT_VALUE.contains(letter)).chars().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(line: &str) -> Vec<String> {
        line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn run(command: &str, line: &str) -> Option<ContainerRun> {
        let plugin = PluginId::new("demo").unwrap();
        ContainerRun::recognise(command, &strings(line), &plugin, Path::new("/state/home/demo"))
    }

    fn tag() -> String {
        Digest::of(b"/state/home/demo").hex()[..8].to_owned()
    }

    // Case B047: without these the container outlives its client.
    #[test]
    fn a_run_gets_rm_init_label_and_a_name_of_its_start() {
        let found = run("docker", "run -i --rm demo/image").unwrap();
        let tag = tag();
        assert_eq!(
            found.arguments().join(" "),
            format!("run --init --label plugward.plugin={tag}.demo -i --rm demo/image")
        );
        assert_eq!(found.name(7), format!("plugward-{tag}-demo-7"));
        assert_eq!(
            found.start_arguments(7).join(" "),
            format!("run --name plugward-{tag}-demo-7 --init --label plugward.plugin={tag}.demo -i --rm demo/image")
        );
        assert_ne!(found.name(7), found.name(8), "a late stop of an old start would end its replacement");
    }

    #[test]
    fn options_behind_the_image_belong_to_the_container() {
        let found = run("podman", "run image --rm --init --name x").unwrap();
        assert!(found.arguments().join(" ").starts_with("run --rm --init --label "));
        assert!(found.arguments().join(" ").ends_with(" image --rm --init --name x"));
    }

    #[test]
    fn values_that_look_like_options_are_skipped() {
        let found = run("docker", "run -e --rm -ite A=1 --env --init -p80:80 --name=mine --network host img").unwrap();
        assert!(found.arguments().join(" ").starts_with("run --rm --init --label "));
        assert!(found.arguments().join(" ").ends_with(" -e --rm -ite A=1 --env --init -p80:80 --network host img"));
    }

    // `docker rm --force` by a name of the manifest could remove a container that was there before.
    #[test]
    fn a_name_of_the_manifest_gives_way_to_ours() {
        for line in ["run --name postgres -i img --name kept", "run -i --name=postgres img --name kept"] {
            let found = run("docker", line).unwrap();
            let arguments = found.start_arguments(1).join(" ");
            assert!(!arguments.contains("postgres"), "{arguments}");
            assert!(arguments.starts_with("run --name plugward-") && arguments.ends_with(" -i img --name kept"));
        }
        assert!(run("docker", "run --name").unwrap().arguments().join(" ").starts_with("run --rm --init --label "));
    }

    #[test]
    fn a_switched_off_option_counts_as_missing() {
        let found = run("docker", "run --rm=false --init=true img").unwrap();
        assert!(found.arguments().join(" ").starts_with("run --rm --label "));
    }

    #[test]
    fn options_of_the_engine_are_kept_for_stopping() {
        let found = run("/usr/bin/docker", "--context far -H tcp://d.test:1 container run -i img").unwrap();
        assert_eq!(
            found.stop_arguments("n", Duration::from_millis(300)).join(" "),
            "--context far -H tcp://d.test:1 stop --time 1 n"
        );
        assert_eq!(found.remove_arguments(&["n", "m"]).join(" "), "--context far -H tcp://d.test:1 rm --force n m");
        assert!(found.list_arguments().join(" ").contains(&format!("label=plugward.plugin={}.demo", tag())));
        assert!(found.arguments().join(" ").starts_with("--context far -H tcp://d.test:1 container run --rm"));
    }

    #[test]
    fn other_commands_are_left_alone() {
        assert!(run("docker", "exec -i x y").is_none());
        assert!(run("docker", "").is_none());
        assert!(run("docker", "--context").is_none());
        assert!(run("docker", "container ls").is_none());
        assert!(run("dockerish", "run img").is_none());
        assert!(run("node", "run docker").is_none());
    }

    #[test]
    fn only_names_we_give_are_ours() {
        let found = run("docker", "run img").unwrap();
        assert!(found.list_arguments().join(" ").contains(&format!("label=plugward.plugin={}.demo ", tag())));
        assert!(found.is_ours(&found.name(12)));
        for name in ["postgres", "plugward-00000000-demo-1", &format!("plugward-{}-demo-", tag()), ""] {
            assert!(!found.is_ours(name), "{name}");
        }
        assert!(!found.is_ours(&format!("plugward-{}-demo-other-1", tag())));
    }
}
