//! Names that say that their value is a secret: JSON keys, header names, flags. Owns the word list; refuses to look at
//! values.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// How strictly a name speaks of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// An ordinary name.
    Plain,
    /// Text under it is a secret; a number is a count (`max_tokens`), a boolean says whether it is set.
    SecretText,
    /// Whatever is under it is a secret.
    Secret,
}

/// A longer name is not read: it is data, not a name, and is cut as such.
const NAME_MAX_BYTES: usize = 256;

const SECRET_WORDS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "pin",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "cookies",
    "apikey",
    "apikeys",
    "privatekey",
    "accesskey",
    "secretkey",
    "authtoken",
    "accesstoken",
    "refreshtoken",
    "bearer",
    "otp",
];
/// `…_key` is a secret only after one of these; `primary_key` and `sort_key` are not.
const SECRET_KEY_KINDS: &[&str] = &["api", "private", "access", "secret", "auth", "signing", "encryption", "master"];

/// Beginnings of all that makes a name more than ordinary, searched for before a name is taken apart: nearly every name
/// is ordinary, and a record has dozens.
static HINTS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let hints = SECRET_WORDS.iter().chain(&["key", "token"]);
    AhoCorasick::builder().ascii_case_insensitive(true).build(hints).ok()
});

/// Whether no word of the name can be one of ours. Words are letters that stand together in any case; those that only
/// become ASCII by folding are left to the reader of words.
fn is_ordinary(name: &str) -> bool {
    name.is_ascii() && HINTS.as_ref().is_some_and(|hints| !hints.is_match(name))
}

/// Reads the words of a name in any of the usual spellings: `api_key`, `api-key`, `apiKey`, `X-API-Key`, `DEMO_API_KEY`.
pub(super) fn naming(name: &str) -> Naming {
    if name.len() > NAME_MAX_BYTES {
        return Naming::Plain;
    }
    if is_ordinary(name) {
        return Naming::Plain;
    }
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let key = |pair: &[&str]| matches!(pair[1], "key" | "keys") && SECRET_KEY_KINDS.contains(&pair[0]);
    if words.iter().any(|word| SECRET_WORDS.contains(word)) || words.windows(2).any(key) {
        Naming::Secret
    } else if words.iter().any(|word| matches!(*word, "token" | "tokens")) {
        Naming::SecretText
    } else {
        Naming::Plain
    }
}

fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let after_lower = previous.is_some_and(|p: char| p.is_lowercase() || p.is_ascii_digit());
        // The last capital of a run begins the next word: `APIKey` is `API` and `Key`.
        let before_lower = previous.is_some_and(char::is_uppercase) && chars.peek().is_some_and(|n| n.is_lowercase());
        if !c.is_alphanumeric() || c.is_uppercase() && (after_lower || before_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        previous = Some(c);
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_every_spelling() {
        let names = [
            "password",
            "PASSWORD",
            "db_password",
            "dbPassword",
            "api_key",
            "apiKey",
            "APIKey",
            "X-API-Key",
            "apikey",
            "--api-key",
            "DEMO_API_KEY",
            "Authorization",
            "proxy-authorization",
            "client_secret",
            "clientSecret",
            "privateKey",
            "AWS_SECRET_ACCESS_KEY",
            "Set-Cookie",
            "pin",
        ];
        for name in names {
            assert_eq!(naming(name), Naming::Secret, "{name}");
        }
        for name in ["token", "accessToken", "GITHUB_TOKEN", "max_tokens", "x-auth-token2-token"] {
            assert_eq!(naming(name), Naming::SecretText, "{name}");
        }
    }

    #[test]
    fn ordinary_names_are_left_alone() {
        let names =
            ["key", "primary_key", "sortKey", "tokenizer", "author", "secretary", "spinner", "", "path", "keyboard"];
        for name in names {
            assert_eq!(naming(name), Naming::Plain, "{name}");
        }
    }
}
