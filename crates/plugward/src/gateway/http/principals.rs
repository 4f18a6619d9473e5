//! Who calls over HTTP: one principal for the token everybody shares, and one for each client's own.
//!
//! Owns what a token opens: a server with the profile of its client, and the name in traces. Looks at the files of the
//! tokens when they change, so that one that is replaced or taken back ends at once: its streams, its sessions and every
//! request after that. Refuses to trust a name that a client gives itself where its token has one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::super::{Options, Server};
use crate::api::{Refusal, Token};
use crate::client_tokens::{self, ClientToken, Stamp, TokenBook};
use crate::profile::{Only, Profile, Profiles};

/// One who calls.
pub(super) struct Principal {
    /// What it sees, and its name in traces. The server of no other, which is how its sessions are told from others'.
    pub(super) server: Server,
    /// Its token is worth nothing any more, or the program ends.
    pub(super) closing: CancellationToken,
}

/// Where the tokens are kept.
#[derive(Debug, Clone)]
pub(crate) struct TokenFiles {
    /// The home.
    pub(crate) home: PathBuf,
    /// What profiles there are.
    pub(crate) profiles: Profiles,
}

struct Known {
    shared: (Token, Stamp, Arc<Principal>),
    own: Vec<(ClientToken, Arc<Principal>)>,
    own_stamp: Stamp,
}

/// All who may call.
pub(super) struct Principals {
    known: Mutex<Known>,
    server: Server,
    files: Option<TokenFiles>,
    closing: CancellationToken,
}

impl Principals {
    /// `server` is what the shared token opens.
    pub(super) fn new(server: Server, token: Token, files: Option<TokenFiles>, closing: CancellationToken) -> Self {
        let stamp = files.as_ref().and_then(|files| client_tokens::stamp(&Token::mcp_path(&files.home)));
        let shared = Principal { server: server.clone(), closing: closing.child_token() };
        let known = Known { shared: (token, stamp, Arc::new(shared)), own: Vec::new(), own_stamp: None };
        Self { known: Mutex::new(known), server, files, closing }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who shows this token.
    pub(super) fn admit(&self, shown: &[u8]) -> Result<Arc<Principal>, Refusal> {
        self.refresh();
        let known = self.known();
        let is_shared = known.shared.0.matches(shown);
        let own = client_tokens::find(&known.own, shown, |(token, _)| token).map(|(_, principal)| principal);
        match (is_shared, own) {
            (true, _) => Ok(Arc::clone(&known.shared.2)),
            (false, Some(principal)) => Ok(Arc::clone(principal)),
            (false, None) => Err(Refusal::TokenWrong),
        }
    }

    /// Looks whether tokens changed; what was opened by those that are gone ends.
    pub(super) fn refresh(&self) {
        let Some(files) = &self.files else { return };
        let mut known = self.known();
        self.refresh_shared(files, &mut known);
        let book = TokenBook::of(&files.home);
        let stamp = book.stamp();
        if stamp == known.own_stamp {
            return;
        }
        known.own_stamp = stamp;
        let tokens = book.read().unwrap_or_else(|error| {
            tracing::error!("no client's own token is let in: {error}");
            Vec::new()
        });
        let before = std::mem::take(&mut known.own);
        for token in tokens {
            let same = before.iter().find(|(old, _)| *old == token).map(|(_, principal)| Arc::clone(principal));
            let principal = same.unwrap_or_else(|| Arc::new(self.principal(&token, &files.profiles)));
            known.own.push((token, principal));
        }
        for (old, principal) in before {
            if !known.own.iter().any(|(token, _)| *token == old) {
                tracing::info!(token = old.name, "a client's token is worth nothing any more");
                principal.closing.cancel();
            }
        }
    }

    fn refresh_shared(&self, files: &TokenFiles, known: &mut Known) {
        let path = Token::mcp_path(&files.home);
        let stamp = client_tokens::stamp(&path);
        // One that was only deleted counts on: a new one comes with the next start.
        if stamp == known.shared.1 || stamp.is_none() {
            return;
        }
        known.shared.1 = stamp;
        match Token::open_mcp(&files.home) {
            Ok(token) if known.shared.0.matches(token.digits()) => {}
            Ok(token) => {
                tracing::info!("the token of the MCP path was replaced");
                known.shared.2.closing.cancel();
                let closing = self.closing.child_token();
                known.shared.0 = token;
                known.shared.2 = Arc::new(Principal { server: self.server.anew(), closing });
            }
            Err(error) => tracing::error!("the old token of the MCP path counts on: {error}"),
        }
    }

    fn principal(&self, token: &ClientToken, profiles: &Profiles) -> Principal {
        let profile = match &token.profile {
            None => profiles.of_client(Some(&token.name)),
            Some(name) => profiles.named(name).cloned().unwrap_or_else(|| {
                // Everything is not what somebody meant who named a profile.
                tracing::error!(token = token.name, "profile `{name}` of a token is not set up: it sees nothing");
                Profile { name: name.clone(), only: Some(Only::default()), ..Profile::default() }
            }),
        };
        let options = Options { profile, token_name: Some(token.name.clone()), ..Options::default() };
        let server = Server::new(self.server.host().clone(), options);
        Principal { server, closing: self.closing.child_token() }
    }
}
