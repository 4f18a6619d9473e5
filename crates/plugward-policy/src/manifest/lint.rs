//! What a manifest may do and a person should notice before agreeing. Owns the red flags as
//! warnings. Refuses nothing: whoever installs decides.

use super::backend::{Argument, Variable};
use super::diagnostic::Report;
use super::tree::Mark;
use crate::secret;

/// A program that fetches the server it then runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// npx and its relatives: `name@1.2.3` pins a version.
    Npm,
    /// uvx and its relatives: `name==1.2.3` (or `name@1.2.3`) pins a version.
    Python,
    /// docker and its relatives.
    Container,
}

/// Options of the npm launchers whose value is the next argument.
const NPM_VALUED: [&str; 6] = ["-p", "--package", "-c", "--call", "-w", "--registry"];

/// Options of the Python launchers whose value is the next argument.
const PYTHON_VALUED: [&str; 14] = [
    "--from",
    "--with",
    "--with-requirements",
    "--with-editable",
    "-p",
    "--python",
    "--index",
    "--index-url",
    "-i",
    "--extra-index-url",
    "--default-index",
    "--find-links",
    "-f",
    "--directory",
];

/// The launcher that `command` and its first arguments amount to.
pub(crate) fn launcher(command: &str, args: &[String]) -> Option<Launcher> {
    launch(command, args).map(|(launcher, _)| launcher)
}

/// The launcher, and how many arguments belong to its own name (`uv tool run` has two).
fn launch(command: &str, args: &[String]) -> Option<(Launcher, usize)> {
    let words: Vec<&str> = args.iter().take(2).map(String::as_str).collect();
    match (program(command), words.as_slice()) {
        ("npx" | "bunx" | "pnpx", _) => Some((Launcher::Npm, 0)),
        ("npm", ["exec" | "x", ..]) | ("pnpm" | "yarn", ["dlx", ..]) | ("bun", ["x", ..]) => Some((Launcher::Npm, 1)),
        ("uvx", _) => Some((Launcher::Python, 0)),
        ("uv", ["tool", "run"]) => Some((Launcher::Python, 2)),
        ("pipx", ["run", ..]) => Some((Launcher::Python, 1)),
        ("docker" | "podman" | "nerdctl", ["run", ..]) => Some((Launcher::Container, 1)),
        _ => None,
    }
}

/// The file name of `command` without a Windows ending.
fn program(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// Reports everything worth a warning about what would be run.
pub(crate) fn check(
    command: &str,
    at: Mark,
    args: &[Argument],
    env: &[Variable],
    secret_env: &[String],
    report: &mut Report,
) {
    let texts: Vec<String> = args.iter().map(|argument| argument.text.clone()).collect();
    check_program(command, at, &texts, report);
    if let Some((launcher, own)) = launch(command, &texts) {
        check_launcher(command, at, launcher, args.get(own..).unwrap_or_default(), report);
    }
    for index in secret::literal_positions(&texts) {
        let Some(argument) = args.get(index) else { continue };
        let hint = "use `${NAME}` so that the manifest can be shared".to_owned();
        let message = "argument holds what looks like a secret";
        report.warning(Some(argument.at), &argument.path, message, Some(hint));
    }
    for variable in env {
        let named = secret_env.contains(&variable.name) || secret::is_secret_name(&variable.name);
        let literal = !variable.value.is_empty() && !variable.value.contains("${");
        if literal && (named || secret::is_secret_shape(&variable.value)) {
            let hint = "use `${NAME}` so that the manifest can be shared".to_owned();
            let message = "variable holds what looks like a secret";
            report.warning(Some(variable.at), &variable.path, message, Some(hint));
        }
    }
}

fn check_program(command: &str, at: Mark, args: &[String], report: &mut Report) {
    let path = "backend.command";
    let first = args.iter().map(String::as_str).find(|arg| arg.starts_with('-') || arg.starts_with('/'));
    match program(command) {
        "sudo" | "doas" | "su" | "pkexec" | "runas" => {
            report.warning(Some(at), path, "runs the plugin as another user", None);
        }
        "sh" | "bash" | "zsh" | "dash" | "fish" | "ksh" | "busybox"
            if first.is_some_and(|arg| arg.starts_with('-') && arg.contains('c')) =>
        {
            let hint = Some("name the program and its arguments instead".to_owned());
            report.warning(Some(at), path, "runs a shell command line", hint);
        }
        "cmd" if first.is_some_and(|arg| arg.eq_ignore_ascii_case("/c")) => {
            let hint = Some("name the program and its arguments instead".to_owned());
            report.warning(Some(at), path, "runs a shell command line", hint);
        }
        "powershell" | "pwsh" => {
            report.warning(Some(at), path, "runs a shell command line", None);
        }
        _ => {}
    }
    if command.contains(char::is_whitespace) && !command.contains(['/', '\\', '$']) {
        let hint = Some("put each argument in `backend.args`".to_owned());
        report.warning(Some(at), path, "looks like a command line, not one executable", hint);
    }
}

fn check_launcher(command: &str, at: Mark, launcher: Launcher, args: &[Argument], report: &mut Report) {
    let message = format!("`{}` may fetch what it runs at start", program(command));
    let hint = "install the package into the plugin's folder for starts that are fast and always the same";
    report.warning(Some(at), "backend.command", message, Some(hint.to_owned()));
    let unpinned = match launcher {
        Launcher::Npm => package(args, &NPM_VALUED, &["-p", "--package"])
            .filter(|(_, name)| !is_pinned_npm(name))
            .map(|found| (found, "name@1.2.3")),
        Launcher::Python => package(args, &PYTHON_VALUED, &["--from"])
            .filter(|(_, name)| !is_pinned_python(name))
            .map(|found| (found, "name==1.2.3")),
        Launcher::Container => {
            check_container(at, args, report);
            None
        }
    };
    if let Some(((argument, name), form)) = unpinned {
        let name = crate::visible::quoted(&name);
        let message = format!("package {name} has no fixed version, so another may run tomorrow");
        let hint = Some(format!("write `{form}`"));
        report.warning(Some(argument.at), &argument.path, message, hint);
    }
}

/// The package a launcher is told to fetch: the value of a `naming` option, otherwise the first
/// argument that is neither an option nor the value of one.
fn package<'a>(args: &'a [Argument], valued: &[&str], naming: &[&str]) -> Option<(&'a Argument, String)> {
    let mut first = None;
    let mut args = args.iter();
    while let Some(argument) = args.next() {
        let text = argument.text.as_str();
        if let Some((option, value)) = text.split_once('=').filter(|_| text.starts_with('-')) {
            if naming.contains(&option) {
                return Some((argument, value.to_owned()));
            }
        } else if valued.contains(&text) {
            let value = args.next();
            if naming.contains(&text) {
                return value.map(|value| (value, value.text.clone()));
            }
        } else if !text.starts_with('-') {
            first = Some((argument, text.to_owned()));
            break;
        }
    }
    first
}

/// Whether `name` is a place on this machine rather than in a registry.
fn is_local(name: &str) -> bool {
    name.starts_with(['.', '/', '~']) || name.starts_with("file:") || name.starts_with("${")
}

fn is_pinned_npm(name: &str) -> bool {
    // A scope begins with `@` too, so the version's `@` is one that is not the first character.
    let version = name.char_indices().rev().find(|(index, c)| *c == '@' && *index > 0);
    is_local(name) || version.is_some_and(|(index, _)| is_exact_version(&name[index + 1..], 3))
}

fn is_pinned_python(name: &str) -> bool {
    let version = name.split_once("==").or_else(|| name.split_once('@'));
    let commit = name.starts_with("git+") && name.contains('@');
    is_local(name) || commit || version.is_some_and(|(_, version)| is_exact_version(version, 1))
}

/// A version number of at least `parts` parts without wildcards or ranges.
fn is_exact_version(version: &str, parts: usize) -> bool {
    let version = version.trim_start_matches('=');
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.split('.').count() >= parts
        && !version.contains(['*', ' ', ',', '<', '>', '|'])
        && !version.split('.').any(|part| part == "x")
}

fn check_container(at: Mark, args: &[Argument], report: &mut Report) {
    let path = "backend.args";
    if !args.iter().any(|arg| matches!(arg.text.as_str(), "--rm" | "--rm=true")) {
        let hint = Some("add `--rm`".to_owned());
        report.warning(Some(at), path, "leaves a container behind after every start", hint);
    }
    for argument in args {
        let text = argument.text.as_str();
        let mounts_host = ["/:", "/var/run/docker.sock:", "~:", "${HOME}:"]
            .iter()
            .any(|source| text.starts_with(source) || text.contains(&format!("={source}")));
        if matches!(text, "--privileged" | "--privileged=true" | "--pid=host") || mounts_host {
            let message = "lets the container reach the whole machine";
            report.warning(Some(argument.at), &argument.path, message, None);
        }
    }
}
