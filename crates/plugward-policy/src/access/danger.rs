//! Places whose reading or writing gives away more than the path says. Owns the list of those
//! places and the reasons. Refuses nothing: whoever installs decides, after reading the reason.

/// What a plugin wants with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

const KEYS: &str = "holds keys and passwords that open other machines and services";
const CLIENTS: &str = "holds settings of clients of plugins, often with keys in them";
const CLIENTS_WRITE: &str = "can change which plugins and programs other clients run";
const LOGIN_WRITE: &str = "can run code outside the sandbox at your next login or command";
const BROWSERS: &str = "holds what a browser remembers, sessions and passwords included";
const OWN: &str = "holds what plugward was told to allow";
const SYSTEM_WRITE: &str = "can change programs and settings of the whole machine";
const SOCKETS: &str = "holds the sockets of services that act with more rights";
const KERNEL: &str = "shows and changes other programs and the machine itself";
const WHOLE: &str = "is the whole machine with all its files";
const HOME: &str = "is a whole home folder: documents, keys and settings of all programs";
const CODE_WRITE: &str = "can change the plugin's own code";
const SHARED_WRITE: &str = "is shared with every other program";
const ACCOUNTS: &str = "holds the accounts and settings of the whole machine";

/// A path, the reason to think twice before it is read (if any), and before it is written.
type Place = (&'static str, Option<&'static str>, &'static str);

/// Places below a home folder. The first that matches gives the reason, so the worst come first.
const HOME_PLACES: [Place; 67] = [
    (".ssh", Some(KEYS), KEYS),
    (".gnupg", Some(KEYS), KEYS),
    (".aws", Some(KEYS), KEYS),
    (".azure", Some(KEYS), KEYS),
    (".kube", Some(KEYS), KEYS),
    (".docker", Some(KEYS), KEYS),
    (".config/gcloud", Some(KEYS), KEYS),
    (".config/gh", Some(KEYS), KEYS),
    (".config/containers", Some(KEYS), KEYS),
    (".config/op", Some(KEYS), KEYS),
    (".config/rclone", Some(KEYS), KEYS),
    (".config/sops", Some(KEYS), KEYS),
    (".netrc", Some(KEYS), KEYS),
    (".npmrc", Some(KEYS), KEYS),
    (".pypirc", Some(KEYS), KEYS),
    (".pgpass", Some(KEYS), KEYS),
    (".git-credentials", Some(KEYS), KEYS),
    (".cargo/credentials.toml", Some(KEYS), KEYS),
    (".terraform.d", Some(KEYS), KEYS),
    (".vault-token", Some(KEYS), KEYS),
    (".password-store", Some(KEYS), KEYS),
    (".local/share/keyrings", Some(KEYS), KEYS),
    (".local/share/kwalletd", Some(KEYS), KEYS),
    (".bash_history", Some(KEYS), KEYS),
    (".zsh_history", Some(KEYS), KEYS),
    ("Library/Keychains", Some(KEYS), KEYS),
    (".mozilla", Some(BROWSERS), BROWSERS),
    (".thunderbird", Some(BROWSERS), BROWSERS),
    (".config/google-chrome", Some(BROWSERS), BROWSERS),
    (".config/chromium", Some(BROWSERS), BROWSERS),
    (".config/BraveSoftware", Some(BROWSERS), BROWSERS),
    ("Library/Application Support/Google", Some(BROWSERS), BROWSERS),
    ("Library/Application Support/Firefox", Some(BROWSERS), BROWSERS),
    (".claude", Some(CLIENTS), CLIENTS_WRITE),
    (".claude.json", Some(CLIENTS), CLIENTS_WRITE),
    (".config/Claude", Some(CLIENTS), CLIENTS_WRITE),
    ("Library/Application Support/Claude", Some(CLIENTS), CLIENTS_WRITE),
    (".cursor", Some(CLIENTS), CLIENTS_WRITE),
    (".codeium", Some(CLIENTS), CLIENTS_WRITE),
    (".codex", Some(CLIENTS), CLIENTS_WRITE),
    (".copilot", Some(CLIENTS), CLIENTS_WRITE),
    (".gemini", Some(CLIENTS), CLIENTS_WRITE),
    (".cline", Some(CLIENTS), CLIENTS_WRITE),
    (".continue", Some(CLIENTS), CLIENTS_WRITE),
    (".kiro", Some(CLIENTS), CLIENTS_WRITE),
    (".lmstudio", Some(CLIENTS), CLIENTS_WRITE),
    (".vscode", Some(CLIENTS), CLIENTS_WRITE),
    (".config/Code", Some(CLIENTS), CLIENTS_WRITE),
    ("Library/Application Support/Code", Some(CLIENTS), CLIENTS_WRITE),
    (".config/zed", Some(CLIENTS), CLIENTS_WRITE),
    (".config/goose", Some(CLIENTS), CLIENTS_WRITE),
    (".config/opencode", Some(CLIENTS), CLIENTS_WRITE),
    (".config/amp", Some(CLIENTS), CLIENTS_WRITE),
    (".config/crush", Some(CLIENTS), CLIENTS_WRITE),
    (".config/plugward", Some(OWN), OWN),
    (".local/share/plugward", Some(OWN), OWN),
    (".bashrc", None, LOGIN_WRITE),
    (".bash_profile", None, LOGIN_WRITE),
    (".profile", None, LOGIN_WRITE),
    (".zshrc", None, LOGIN_WRITE),
    (".zshenv", None, LOGIN_WRITE),
    (".gitconfig", None, LOGIN_WRITE),
    (".config/git", None, LOGIN_WRITE),
    (".config/fish", None, LOGIN_WRITE),
    (".config/autostart", None, LOGIN_WRITE),
    (".config/systemd", None, LOGIN_WRITE),
    (".local/bin", None, LOGIN_WRITE),
];

/// Places of the machine, in the same form.
const MACHINE_PLACES: [Place; 20] = [
    ("/proc", Some(KERNEL), KERNEL),
    ("/sys", Some(KERNEL), KERNEL),
    ("/dev", Some(KERNEL), KERNEL),
    ("/run", Some(SOCKETS), SOCKETS),
    ("/var/run", Some(SOCKETS), SOCKETS),
    ("/etc/shadow", Some(KEYS), KEYS),
    ("/etc/ssh", Some(KEYS), KEYS),
    ("/etc", Some(ACCOUNTS), SYSTEM_WRITE),
    ("/var/lib/docker", Some(SOCKETS), SOCKETS),
    ("/var", None, SYSTEM_WRITE),
    ("/boot", None, SYSTEM_WRITE),
    ("/usr", None, SYSTEM_WRITE),
    ("/bin", None, SYSTEM_WRITE),
    ("/sbin", None, SYSTEM_WRITE),
    ("/lib", None, SYSTEM_WRITE),
    ("/lib64", None, SYSTEM_WRITE),
    ("/opt", None, SYSTEM_WRITE),
    ("/Library", None, SYSTEM_WRITE),
    ("/System", None, SYSTEM_WRITE),
    ("/tmp", None, SHARED_WRITE),
];

/// Folders that hold one home for each user.
const HOMES: [&str; 2] = ["/home", "/Users"];

/// Homes of the administrator.
const ROOT_HOMES: [&str; 2] = ["/root", "/var/root"];

/// Why a person should think twice before `path`, as written or expanded, is read or written.
/// `home` is the user's home folder when it is known.
pub(crate) fn place_flag(path: &str, home: Option<&str>, wanted: Use) -> Option<&'static str> {
    let home = home.filter(|home| home.starts_with('/'));
    if path == "/" {
        return Some(WHOLE);
    }
    if let Some(rest) = below_home(path, home) {
        return home_flag(rest, wanted);
    }
    if HOMES.into_iter().chain(home).any(|inside| covers(path, inside)) {
        return Some(HOME);
    }
    if wanted == Use::Write && covers("${PLUGIN_DIR}", path) {
        return Some(CODE_WRITE);
    }
    first_reason(&MACHINE_PLACES, path, wanted)
}

fn home_flag(rest: &str, wanted: Use) -> Option<&'static str> {
    if rest.is_empty() {
        return Some(HOME);
    }
    first_reason(&HOME_PLACES, rest, wanted)
}

/// The reason of the first place that `path` is, holds or is inside of.
fn first_reason(places: &[Place], path: &str, wanted: Use) -> Option<&'static str> {
    let touched = places.iter().filter(|(place, ..)| covers(place, path) || covers(path, place));
    let reason = |(_, read, write): &Place| match wanted {
        Use::Read => *read,
        Use::Write => Some(*write),
    };
    touched.filter_map(reason).next()
}

/// The part of `path` below a home folder: the user's own, or one that looks like somebody's.
fn below_home<'p>(path: &'p str, home: Option<&str>) -> Option<&'p str> {
    let marks = ["~", "${HOME}"].into_iter().chain(home).chain(ROOT_HOMES);
    if let Some(rest) = marks.into_iter().find_map(|mark| below(mark, path)) {
        return Some(rest);
    }
    let inside = HOMES.iter().find_map(|homes| below(homes, path)).filter(|inside| !inside.is_empty())?;
    Some(inside.split_once('/').map_or("", |(_, rest)| rest))
}

/// What follows `place` in `path`, when `path` is it or inside it.
fn below<'p>(place: &str, path: &'p str) -> Option<&'p str> {
    let (start, rest) = path.split_at_checked(place.len())?;
    let inside = rest.is_empty() || rest.starts_with('/');
    (same(start, place) && inside).then(|| rest.trim_start_matches('/'))
}

fn covers(place: &str, path: &str) -> bool {
    below(place, path).is_some()
}

/// Without regard to case, because the file systems of some machines have none.
fn same(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 94 and SEP-1024: sensitive places are pointed out, however they are reached.
    #[test]
    fn dangerous_places_are_known_from_inside_and_from_above() {
        for (path, wanted, words) in [
            ("/", Use::Read, "whole machine"),
            ("/", Use::Write, "whole machine"),
            ("~", Use::Read, "whole home"),
            ("${HOME}", Use::Read, "whole home"),
            ("/home", Use::Read, "whole home"),
            ("/home/ann", Use::Read, "whole home"),
            ("/Users/ann", Use::Read, "whole home"),
            ("/root", Use::Read, "whole home"),
            ("/srv/people/ann", Use::Read, "whole home"),
            ("/srv/people", Use::Read, "whole home"),
            ("~/.ssh", Use::Read, "keys"),
            ("~/.SSH", Use::Read, "keys"),
            ("~/.ssh/id_ed25519", Use::Read, "keys"),
            ("${HOME}/.ssh", Use::Read, "keys"),
            ("/home/bob/.ssh", Use::Read, "keys"),
            (concat!("/root", "/.aws/credentials"), Use::Read, "keys"),
            ("/srv/people/ann/.netrc", Use::Read, "keys"),
            ("~/.config", Use::Read, "keys"),
            ("~/Library", Use::Read, "keys"),
            ("~/.cursor/mcp.json", Use::Read, "clients"),
            ("~/.cursor/mcp.json", Use::Write, "which plugins"),
            ("~/.config/zed", Use::Write, "which plugins"),
            ("~/.mozilla", Use::Read, "browser"),
            ("~/.local/share/plugward", Use::Write, "plugward"),
            ("~/.bashrc", Use::Write, "next login"),
            ("~/.local", Use::Write, "keys"),
            ("/etc/shadow", Use::Read, "keys"),
            ("/etc", Use::Read, "keys"),
            ("/etc/hosts", Use::Write, "whole machine"),
            ("/run/docker.sock", Use::Read, "sockets"),
            ("/var", Use::Write, "sockets"),
            ("/proc/1", Use::Read, "other programs"),
            ("/usr/local/bin", Use::Write, "whole machine"),
            ("/tmp", Use::Write, "shared"),
            ("${PLUGIN_DIR}", Use::Write, "own code"),
            ("${PLUGIN_DIR}/data", Use::Write, "own code"),
        ] {
            let found = place_flag(path, Some("/srv/people/ann"), wanted);
            assert!(found.is_some_and(|reason| reason.contains(words)), "{path} {wanted:?}: {found:?}");
        }
        for (path, wanted) in [
            ("/data", Use::Read),
            ("/data", Use::Write),
            ("/srv/people", Use::Read),
            ("/usr/share/dict", Use::Read),
            ("~/notes", Use::Write),
            ("~/.sshd", Use::Read),
            ("~/.bashrc", Use::Read),
            ("/home/ann/notes", Use::Write),
            ("/homestead", Use::Read),
            ("/etcetera", Use::Write),
            ("${PLUGIN_DIR}/data", Use::Read),
            ("${DATA}", Use::Write),
            ("/tmp", Use::Read),
        ] {
            assert_eq!(place_flag(path, None, wanted), None, "{path} {wanted:?}");
        }
    }
}
