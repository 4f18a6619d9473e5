//! Tokens of single clients of the MCP path, each with a name and a profile.
//!
//! Owns `client-tokens.json` in the home: which names there are, and a digest of each token. Refuses to keep a token: it
//! is told once, when it is made, and 256 random bits need no slow digest. What a token opens is the gateway's to know.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::api::{Token, TokenError};

/// The file in the home.
const FILE: &str = "client-tokens.json";

/// Held while the file is changed.
const LOCK_FILE: &str = "client-tokens.lock";

/// Tokens of one home. A team has tens; each is compared at each request.
pub(crate) const TOKENS_MAX: usize = 256;

/// Longest name of a token.
const NAME_BYTES_MAX: usize = 64;

/// Longest file that is read: as many tokens as there may be, with room for their names.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The name that stands for the token in `run/mcp-token`.
pub(crate) const DEFAULT_NAME: &str = "default";

/// Why tokens cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientTokenError {
    /// The name is none.
    #[error("name `{0}` of a token is none: use up to 64 letters, digits, `.`, `_` and `-`, and not `default`")]
    Name(String),
    /// There is one of this name.
    #[error("there is a token `{0}` already")]
    Taken(String),
    /// There is none of this name.
    #[error("there is no token `{0}`")]
    Unknown(String),
    /// No more are kept.
    #[error("there are {TOKENS_MAX} tokens already")]
    Full,
    /// The file cannot be read or written.
    #[error("token file `{path}` cannot be used: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds something else, or others can read or write it.
    #[error("token file `{path}` {reason}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No token could be made.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// What is kept of one token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientToken {
    /// What it is called, in traces too.
    pub(crate) name: String,
    /// The profile of who shows it; none is the default profile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) profile: Option<String>,
    /// SHA-256 of its digits.
    sha256: String,
    /// Seconds since the epoch when it was made or last changed.
    pub(crate) made_at: u64,
}

/// What tells one content of the file from another: it is always replaced whole.
pub(crate) type Stamp = Option<(u64, i64, i64, u64)>;

/// The tokens of a home.
#[derive(Debug, Clone)]
pub(crate) struct TokenBook {
    home: PathBuf,
}

impl TokenBook {
    pub(crate) fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// Changes when the tokens do.
    pub(crate) fn stamp(&self) -> Stamp {
        stamp(&self.path())
    }

    /// The tokens there are, by name.
    pub(crate) fn read(&self) -> Result<Vec<ClientToken>, ClientTokenError> {
        let path = self.path();
        let io = |source| ClientTokenError::Io { path: path.display().to_string(), source };
        let unusable = |reason: String| ClientTokenError::Unusable { path: path.display().to_string(), reason };
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(io)?,
        };
        let facts = file.metadata().map_err(io)?;
        let is_ours = facts.uid() == rustix::process::geteuid().as_raw();
        if !facts.is_file() || !is_ours || facts.mode() & 0o077 != 0 {
            return Err(unusable("is not private: others could have written it".to_owned()));
        }
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::Read::take(file, FILE_BYTES_MAX), &mut text).map_err(io)?;
        let tokens: Vec<ClientToken> =
            serde_json::from_str(&text).map_err(|error| unusable(format!("is not one: {error}")))?;
        if tokens.len() > TOKENS_MAX {
            return Err(unusable(format!("holds more than {TOKENS_MAX} tokens")));
        }
        Ok(tokens)
    }

    /// Makes a token of this name.
    pub(crate) fn add(&self, name: &str, profile: Option<&str>) -> Result<Token, ClientTokenError> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_safe);
        if !is_name || name == DEFAULT_NAME {
            return Err(ClientTokenError::Name(plugward_policy::visible(name)));
        }
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                return Err(ClientTokenError::Taken(name.to_owned()));
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(ClientTokenError::Full);
            }
            let made = Token::random()?;
            let (profile, sha256) = (profile.map(str::to_owned), digest(made.digits()));
            tokens.push(ClientToken { name: name.to_owned(), profile, sha256, made_at: now() });
            tokens.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(made)
        })
    }

    /// Replaces a token by a new one of the same name and profile.
    pub(crate) fn rotate(&self, name: &str) -> Result<Token, ClientTokenError> {
        self.change(|tokens| {
            let token = tokens.iter_mut().find(|token| token.name == name);
            let token = token.ok_or_else(|| unknown(name))?;
            let made = Token::random()?;
            (token.sha256, token.made_at) = (digest(made.digits()), now());
            Ok(made)
        })
    }

    /// Takes a token back.
    pub(crate) fn revoke(&self, name: &str) -> Result<(), ClientTokenError> {
        self.change(|tokens| {
            let index = tokens.iter().position(|token| token.name == name).ok_or_else(|| unknown(name))?;
            tokens.remove(index);
            Ok(())
        })
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<ClientToken>) -> Result<T, ClientTokenError>,
    ) -> Result<T, ClientTokenError> {
        let path = self.path();
        let io = |source| ClientTokenError::Io { path: path.display().to_string(), source };
        std::fs::create_dir_all(&self.home).map_err(io)?;
        let mut options = std::fs::OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(self.home.join(LOCK_FILE));
        let lock = lock.map_err(io)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
        let mut tokens = self.read()?;
        let told = change(&mut tokens)?;
        let text = serde_json::to_string_pretty(&tokens).map_err(|error| io(error.into()))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.home).map_err(io)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(io)?;
        file.persist(&path).map_err(|error| io(error.error))?;
        Ok(told)
    }
}

/// The token that was shown; each is compared, whichever fits, so that time tells nothing.
pub(crate) fn find<'a, T>(tokens: &'a [T], shown: &[u8], of: impl Fn(&T) -> &ClientToken) -> Option<&'a T> {
    let shown = digest(shown);
    let mut found = None;
    for candidate in tokens {
        let is_it: Choice = of(candidate).sha256.as_bytes().ct_eq(shown.as_bytes());
        if bool::from(is_it) {
            found = Some(candidate);
        }
    }
    found
}

/// What tells one content of a file from another that replaced it.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let facts = std::fs::symlink_metadata(path).ok()?;
    Some((facts.ino(), facts.mtime(), facts.mtime_nsec(), facts.len()))
}

fn unknown(name: &str) -> ClientTokenError {
    ClientTokenError::Unknown(plugward_policy::visible(name))
}

fn digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_name(book: &TokenBook, shown: &[u8]) -> Option<String> {
        let tokens = book.read().unwrap();
        find(&tokens, shown, |token| token).map(|token| token.name.clone())
    }

    #[test]
    fn a_token_is_known_until_it_is_replaced_or_taken_back_and_never_kept() {
        let home = tempfile::tempdir().unwrap();
        let book = TokenBook::of(home.path());
        assert!(book.read().unwrap().is_empty());
        let first = book.add("zed", Some("narrow")).unwrap();
        let other = book.add("cursor", None).unwrap();
        assert_eq!(find_name(&book, first.reveal().as_bytes()).as_deref(), Some("zed"));
        assert_eq!(find_name(&book, other.reveal().as_bytes()).as_deref(), Some("cursor"));
        for wrong in ["", "x", &first.reveal()[1..], &first.reveal().to_uppercase(), &"0".repeat(64)] {
            assert_eq!(find_name(&book, wrong.as_bytes()), None, "{wrong}");
        }
        // Whoever reads the file cannot call with it.
        let text = std::fs::read_to_string(home.path().join(FILE)).unwrap();
        assert!(!text.contains(first.reveal()) && !text.contains(other.reveal()));
        let kept = book.read().unwrap();
        assert_eq!(find_name(&book, kept[0].sha256.as_bytes()), None, "a digest is no token");
        assert_eq!(std::fs::metadata(home.path().join(FILE)).unwrap().mode() & 0o777, 0o600);
        let stamp = book.stamp();
        let second = book.rotate("zed").unwrap();
        assert_ne!(book.stamp(), stamp, "a running host has to notice");
        assert_eq!(find_name(&book, first.reveal().as_bytes()), None);
        assert_eq!(find_name(&book, second.reveal().as_bytes()).as_deref(), Some("zed"));
        assert_eq!(book.read().unwrap()[1].profile.as_deref(), Some("narrow"));
        book.revoke("zed").unwrap();
        assert_eq!(find_name(&book, second.reveal().as_bytes()), None);
    }

    #[test]
    fn names_are_plain_and_one_token_has_each() {
        let home = tempfile::tempdir().unwrap();
        let book = TokenBook::of(home.path());
        for bad in ["", "default", "a b", "é", "a/b", &"x".repeat(65), "a\u{1b}[2J"] {
            assert!(matches!(book.add(bad, None), Err(ClientTokenError::Name(_))), "{bad}");
        }
        book.add("a", None).unwrap();
        assert!(matches!(book.add("a", None), Err(ClientTokenError::Taken(_))));
        assert!(matches!(book.rotate("b"), Err(ClientTokenError::Unknown(_))));
        assert!(matches!(book.revoke("b"), Err(ClientTokenError::Unknown(_))));
    }

    #[test]
    fn a_file_that_others_could_have_written_lets_nobody_in() {
        let home = tempfile::tempdir().unwrap();
        let book = TokenBook::of(home.path());
        book.add("a", None).unwrap();
        let path = home.path().join(FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(book.read(), Err(ClientTokenError::Unusable { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(book.read(), Err(ClientTokenError::Unusable { .. })));
        assert!(matches!(book.add("b", None), Err(ClientTokenError::Unusable { .. })), "it is not overwritten");
    }
}
