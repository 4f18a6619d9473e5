//! The tokens that callers have to show: one for the Host API, another for the MCP path, so that whoever may call tools
//! may not approve plugins.
//!
//! Owns their making, their files `run/api-token` and `run/mcp-token` in the home and the comparison. Refuses to be printed: people are told
//! where it is, never what it is; and refuses a file that others could have read or put there.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;

use crate::settings::RUN_DIR;

/// The file of the Host API's token.
const API_TOKEN_FILE: &str = "api-token";

/// The file of the MCP path's token.
const MCP_TOKEN_FILE: &str = "mcp-token";

/// Random bytes in a token: 256 bits cannot be guessed over any interface.
const TOKEN_BYTES: usize = 32;

/// Longest file that is read: a token, its line end and some white space.
const MAX_FILE_BYTES: u64 = 128;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The folder or the file cannot be read or written.
    #[error("token file `{path}` cannot be used: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else owns the file or may read it.
    #[error("token file `{path}` is not private; delete it, and the next start makes a new one")]
    NotPrivate {
        /// The file.
        path: String,
    },
    /// The file holds something else.
    #[error("token file `{path}` holds no token; delete it, and the next start makes a new one")]
    NoToken {
        /// The file.
        path: String,
    },
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for a token")]
    NoRandomness,
}

/// 64 hexadecimal digits. `Debug` shows none of them.
#[derive(Clone)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

impl Token {
    /// Where the token of the Host API is kept.
    pub(crate) fn path(home: &Path) -> PathBuf {
        home.join(RUN_DIR).join(API_TOKEN_FILE)
    }

    /// Where the token of the MCP path is kept.
    pub(crate) fn mcp_path(home: &Path) -> PathBuf {
        home.join(RUN_DIR).join(MCP_TOKEN_FILE)
    }

    /// The token of the Host API; made at the first call and the same ever after, so that programs can keep it. Who
    /// deletes its file gets a new one at the next start.
    pub(crate) fn open(home: &Path) -> Result<Self, TokenError> {
        Self::open_at(home, &Self::path(home))
    }

    /// The token of the MCP path, as [`open`](Self::open).
    pub(crate) fn open_mcp(home: &Path) -> Result<Self, TokenError> {
        Self::open_at(home, &Self::mcp_path(home))
    }

    fn open_at(home: &Path, path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.display().to_string(), source };
        match read(path) {
            Err(TokenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            found => return found,
        }
        let run = home.join(RUN_DIR);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&run).map_err(io)?;
        let token = Self::random()?;
        // Written whole under another name first: a crash leaves no half a token.
        let mut file = tempfile::NamedTempFile::new_in(&run).map_err(io)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        file.write_all(format!("{}\n", token.0).as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(io)?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(token),
            // Another start was faster; its token counts.
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => read(path),
            Err(error) => Err(io(error.error)),
        }
    }

    /// A new one.
    pub(crate) fn random() -> Result<Self, TokenError> {
        use std::fmt::Write as _;
        let mut bytes = [0u8; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        let mut text = String::with_capacity(TOKEN_BYTES * 2);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// Whether `shown` is the token; takes the same time for every wrong one of its length.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }

    /// The digits, for whoever compares or digests them.
    pub(crate) fn digits(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Replaces the token of the MCP path; a host that runs notices.
    pub(crate) fn renew_mcp(home: &Path) -> Result<Self, TokenError> {
        let path = Self::mcp_path(home);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TokenError::Io { path: path.display().to_string(), source })
            }
            _ => Self::open_mcp(home),
        }
    }

    /// The digits, for the one time that a person is told them.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

fn read(path: &Path) -> Result<Token, TokenError> {
    let shown = || path.display().to_string();
    let io = |source| TokenError::Io { path: shown(), source };
    // A link or a pipe in its place is somebody's trick: it is neither followed nor waited for.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
    let facts = file.metadata().map_err(io)?;
    let is_ours = facts.uid() == rustix::process::geteuid().as_raw();
    if !facts.is_file() || !is_ours || facts.mode() & 0o077 != 0 {
        return Err(TokenError::NotPrivate { path: shown() });
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(io)?;
    let text = text.trim();
    let is_token = text.len() == TOKEN_BYTES * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_token { Ok(Token(text.to_owned())) } else { Err(TokenError::NoToken { path: shown() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_private() {
        let home = tempfile::tempdir().unwrap();
        let first = Token::open(home.path()).unwrap();
        let again = Token::open(home.path()).unwrap();
        assert_eq!(first.reveal(), again.reveal());
        assert_eq!(first.reveal().len(), 64);
        let facts = std::fs::metadata(Token::path(home.path())).unwrap();
        assert_eq!(facts.mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(home.path().join("run")).unwrap().mode() & 0o777, 0o700);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Token::open(other.path()).unwrap().reveal(), first.reveal());
        // Only the token stays in the folder.
        assert_eq!(std::fs::read_dir(home.path().join("run")).unwrap().count(), 1);
    }

    #[test]
    fn a_token_shows_itself_to_nobody_and_knows_itself() {
        let token = Token::random().unwrap();
        assert_eq!(format!("{token:?}"), "Token(***)");
        assert!(token.matches(token.reveal().as_bytes()));
        for wrong in ["", "x", &token.reveal()[1..], &format!("{}0", token.reveal()), &"0".repeat(64)] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_others_could_have_made_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let made = Token::open(home.path()).unwrap();
        let path = Token::path(home.path());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::open(home.path()), Err(TokenError::NotPrivate { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Token::open(home.path()).unwrap().reveal(), made.reveal());
        for text in ["", "short", &"g".repeat(64), &"0".repeat(65)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Token::open(home.path()), Err(TokenError::NoToken { .. })), "{text}");
        }
        let target = home.path().join("elsewhere");
        std::fs::rename(&path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(Token::open(home.path()), Err(TokenError::Io { .. })));
    }
}
