//! Which values of a backend are secret. Owns the rules by name, by option and by shape. Refuses to
//! redact anything itself: whoever stores or shows text asks here first.

use std::collections::BTreeSet;

use crate::expand::ExpandedBackend;

/// Shortest value treated as a secret, in bytes. Replacing shorter ones wherever they occur would
/// make logs unreadable, and no service hands out keys that short.
pub const SECRET_BYTES_MIN: usize = 6;

/// Words that make a variable, option or query key a secret's name wherever they occur in it.
const SECRET_WORDS: [&str; 12] = [
    "APIKEY",
    "SECRET",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "PRIVATE",
    "TOKEN",
    "AUTH",
    "COOKIE",
    "SESSION",
    "BEARER",
    "SIGNATURE",
];

/// Words that do so only as a whole part of a name: `KEY` in `API_KEY`, not in `KEYBOARD`.
const SECRET_PARTS: [&str; 6] = ["KEY", "KEYS", "PWD", "PASS", "PAT", "DSN"];

/// Whole names that hold a secret word by accident and never a secret.
const INNOCENT_NAMES: [&str; 5] = ["PWD", "OLDPWD", "AUTHOR", "SSH_AUTH_SOCK", "XDG_SESSION_ID"];

/// How keys of well-known services begin.
const SECRET_SHAPES: [&str; 13] = [
    "sk-",
    "sk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "npm_",
    "pypi-",
];

/// Shortest text taken for a key by its beginning alone; `sk-` alone begins ordinary words too.
const SHAPE_BYTES_MIN: usize = 20;

/// Whether a variable, option or query key called `name` holds a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let upper = name.trim_start_matches('-').to_ascii_uppercase();
    if INNOCENT_NAMES.contains(&upper.as_str()) {
        return false;
    }
    let flat: String = upper.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let spaced = split_camel_case(name).to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| flat.contains(word))
        || spaced.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| SECRET_PARTS.contains(&part))
}

/// `apiKey` as `api_Key`, so that its parts can be compared.
fn split_camel_case(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for character in name.chars() {
        if after_lower && character.is_ascii_uppercase() {
            spaced.push('_');
        }
        after_lower = character.is_ascii_lowercase();
        spaced.push(character);
    }
    spaced
}

/// Whether `value` begins like a key of a well-known service.
pub(crate) fn is_secret_shape(value: &str) -> bool {
    value.len() >= SHAPE_BYTES_MIN && SECRET_SHAPES.iter().any(|shape| value.starts_with(shape))
}

/// The values of `backend` that must not be shown, logged or stored, longest first so that
/// replacing them one after the other never leaves the rest of a longer one behind. Those are:
///
/// - variables in `secret_env`, or whose name [says so](is_secret_name);
/// - what variables of the host with such a name put anywhere;
/// - values of options with such a name (`--api-key V`, `--api-key=V`), of `-e NAME=VALUE` and
///   `NAME=VALUE` arguments, and of header options (`--header 'Authorization: Bearer V'`);
/// - bearer tokens, passwords in URLs and query parameters with such a name;
/// - anything shaped like a key of a well-known service.
///
/// Values below [`SECRET_BYTES_MIN`] bytes are left out.
#[must_use]
pub fn secret_values(backend: &ExpandedBackend) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (name, value) in &backend.env {
        if backend.secret_env.contains(name) || is_secret_name(name) {
            found.insert(value.as_str());
        }
        collect_from_text(value, &mut found);
    }
    found.extend(backend.secret_substitutions().iter().map(String::as_str));
    for (_, value) in argument_secrets(&backend.args) {
        found.insert(value);
    }
    collect_from_text(&backend.command, &mut found);
    let mut values: Vec<String> =
        found.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN).map(str::to_owned).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

/// Positions of arguments that hold a secret in the text itself rather than by reference.
pub(crate) fn literal_positions(args: &[String]) -> BTreeSet<usize> {
    argument_secrets(args)
        .into_iter()
        .filter(|(_, value)| value.len() >= SECRET_BYTES_MIN && !value.contains("${"))
        .map(|(index, _)| index)
        .collect()
}

/// Secrets in a list of arguments with the argument each is in.
fn argument_secrets(args: &[String]) -> Vec<(usize, &str)> {
    let mut secrets = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        let mut found = BTreeSet::new();
        let before = index.checked_sub(1).map(|before| args[before].as_str());
        let follows_secret_option =
            before.is_some_and(|option| option.starts_with('-') && !option.contains('=') && is_secret_name(option));
        if follows_secret_option && !arg.starts_with('-') {
            found.insert(arg.as_str());
        }
        // `--api-key=V`, `NAME=V` after `-e`, and both at once as in `--env=NAME=V`.
        let mut rest = arg.as_str();
        while let Some((name, value)) = rest.split_once('=')
            && !name.contains(['/', ' ', '?'])
        {
            if is_secret_name(name) {
                found.insert(value);
                break;
            }
            rest = value;
        }
        // `--header=Authorization: Bearer V` and the same as an argument of its own.
        let header = arg.split_once('=').filter(|_| arg.starts_with('-')).map_or(arg.as_str(), |h| h.1);
        if let Some((name, value)) = header.split_once(':')
            && !value.starts_with("//")
            && is_secret_name(name)
            && !name.contains(['/', '{'])
        {
            let value = value.trim();
            found.insert(value);
            found.extend(value.split_once(' ').map(|(_, credentials)| credentials.trim()));
        }
        collect_from_text(arg, &mut found);
        secrets.extend(found.into_iter().map(|value| (index, value)));
    }
    secrets
}

/// Secrets inside a text: bearer tokens, URL passwords, query parameters, well-known shapes.
fn collect_from_text<'a>(text: &'a str, found: &mut BTreeSet<&'a str>) {
    let delimiter = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '=' | ':' | '{' | '}');
    let mut after_bearer = false;
    for word in text.split(delimiter).filter(|word| !word.is_empty()) {
        if after_bearer || is_secret_shape(word) {
            found.insert(word);
        }
        after_bearer = word.eq_ignore_ascii_case("bearer");
    }
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let url = &rest[start + 3..];
        let url = url.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).next().unwrap_or("");
        let authority = url.split(['/', '?', '#']).next().unwrap_or("");
        if let Some((user, _)) = authority.rsplit_once('@') {
            // `user:password@` has a password; a lone `token@` is one.
            found.insert(user.split_once(':').map_or(user, |(_, password)| password));
        }
        if let Some((_, query)) = url.split_once('?') {
            let pairs = query.split(['&', ';', '#']).filter_map(|pair| pair.split_once('='));
            found.extend(pairs.filter(|(key, _)| is_secret_name(key)).map(|(_, value)| value));
        }
        rest = &rest[start + 3..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{expand_backend, parse_manifest};

    fn secrets(lines: &str) -> Vec<String> {
        let text =
            format!("id: a\nname: A\nversion: 1\nbackend:\n  type: mcp\n  transport: stdio\n  command: x\n{lines}");
        let backend = parse_manifest(&text, "plugin.yaml").unwrap().manifest.backend;
        let lookup = |name: &str| Some(format!("value-of-{name}"));
        secret_values(&expand_backend(&backend, lookup).unwrap())
    }

    #[test]
    fn names_of_secrets_are_told_from_ordinary_names() {
        for name in [
            "API_KEY",
            "apiKey",
            "--api-key",
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "DB_PASSWORD",
            "PGPASSWORD",
            "AUTHORIZATION",
            "Authorization",
            "X-Api-Key",
            "AWS_SECRET_ACCESS_KEY",
            "GOOGLE_CREDENTIALS",
            "PRIVATE_KEY",
            "GITHUB_PAT",
            "DB_PASS",
            "SENTRY_DSN",
            "accessToken",
            "key",
            "client_secret",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "PWD",
            "KEYBOARD",
            "MONKEY",
            "LANG",
            "AUTHOR",
            "PATTERN",
            "COMPASS",
            "--verbose",
            "MODE",
            "PORT",
            "SSH_AUTH_SOCK",
            "DEMO_FLAG",
            "",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    // B020: whichever way a key reaches the server, it is known before anything is logged.
    #[test]
    fn every_way_to_pass_a_secret_is_found() {
        for (lines, wanted) in [
            ("  env: {API_KEY: s3cr3t-1}\n", "s3cr3t-1"),
            ("  env: {PLAIN: s3cr3t-2}\n  secret_env: [PLAIN]\n", "s3cr3t-2"),
            ("  env: {PLAIN: '${MY_TOKEN}'}\n", "value-of-MY_TOKEN"),
            ("  args: ['x=${MY_TOKEN}']\n", "value-of-MY_TOKEN"),
            ("  args: [--api-key, s3cr3t-3]\n", "s3cr3t-3"),
            ("  args: ['--token=s3cr3t-4']\n", "s3cr3t-4"),
            ("  args: [-e, 'DEMO_KEY=s3cr3t-5']\n", "s3cr3t-5"),
            ("  args: ['--env=DEMO_KEY=s3cr3t-5']\n", "s3cr3t-5"),
            ("  args: [--header, 'Authorization: Bearer s3cr3t-6']\n", "s3cr3t-6"),
            ("  args: ['--header=X-Api-Key: s3cr3t-7']\n", "s3cr3t-7"),
            ("  args: ['postgres://ann:s3cr3t-8@db.test/x']\n", "s3cr3t-8"),
            ("  args: ['https://s3cr3t-9@git.test/x']\n", "s3cr3t-9"),
            ("  args: ['https://api.test/mcp?a=b&apiKey=s3cr3t-10']\n", "s3cr3t-10"),
            ("  env: {URL: 'https://api.test/mcp?token=s3cr3t-11'}\n", "s3cr3t-11"),
            ("  env: {HEADERS: '{\"Authorization\": \"Bearer s3cr3t-12\"}'}\n", "s3cr3t-12"),
            ("  args: [ghp_0123456789abcdefghij]\n", "ghp_0123456789abcdefghij"),
            ("  env: {X: sk-0123456789abcdefghij}\n", "sk-0123456789abcdefghij"),
        ] {
            let found = secrets(lines);
            assert!(found.iter().any(|value| value == wanted), "{lines}{found:?}");
        }
    }

    // Masking `yes` or `1` everywhere would make traces useless.
    #[test]
    fn short_and_ordinary_values_are_not_secrets() {
        let lines = "  env: {API_KEY: short, MODE: production, URL: 'https://api.test/?page=12345678'}
  args: [--token, abc, --api-key, --verbose, --name, something-long, 'https://api.test/a/b']
";
        assert_eq!(secrets(lines), Vec::<String>::new());
    }

    // Replacing a short secret first would leave the rest of a longer one in the open.
    #[test]
    fn longer_secrets_come_first() {
        let lines = "  env: {A_KEY: abcdef, B_KEY: abcdef-and-more}\n";
        assert_eq!(secrets(lines), ["abcdef-and-more", "abcdef"]);
    }
}
