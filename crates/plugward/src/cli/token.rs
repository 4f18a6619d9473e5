//! `token`: tokens of single clients over HTTP.
//!
//! Owns the texts and the check that a profile is there. Refuses to show a token a second time: nobody has it to show.

use serde::Serialize;

use super::Context;
use super::arguments::TokenCommand;
use super::output::table;
use crate::api::{Token, TokenError};
use crate::client_tokens::{ClientToken, ClientTokenError, DEFAULT_NAME, TokenBook};
use crate::control::Failure;
use crate::exit::Exit;

/// A new token for programs.
#[derive(Serialize)]
struct MadeBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    token: &'a str,
}

/// A token in the list, for programs.
#[derive(Serialize)]
struct TokenBody<'a> {
    name: &'a str,
    /// The one that was asked for; none is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    /// Seconds since the epoch when it was made or last replaced.
    made_at: u64,
}

pub(super) fn run(context: &Context, command: TokenCommand) -> Result<Exit, Failure> {
    let book = TokenBook::of(&context.settings.home);
    match command {
        TokenCommand::Add { name, profile } => {
            if let Some(profile) = &profile
                && context.settings.profiles.named(profile).is_none()
            {
                let message = format!("profile `{}` is not set up", plugward_policy::visible(profile));
                let hint =
                    format!("add `[profiles.NAME]` to `{}`", context.settings.home.join("config.toml").display());
                return Err(Failure::usage(message).with_hint(hint));
            }
            let made = book.add(&name, profile.as_deref()).map_err(|error| failure(&error))?;
            tell(context, &name, profile.as_deref(), &made);
        }
        TokenCommand::List => list(context, &book)?,
        TokenCommand::Rotate { name } if name == DEFAULT_NAME => {
            let made = Token::renew_mcp(&context.settings.home);
            let made = made.map_err(|error| failure(&ClientTokenError::Token(error)))?;
            tell(context, &name, None, &made);
        }
        TokenCommand::Rotate { name } => {
            let made = book.rotate(&name).map_err(|error| failure(&error))?;
            tell(context, &name, None, &made);
        }
        TokenCommand::Revoke { name } => {
            book.revoke(&name).map_err(|error| failure(&error))?;
            context.output.note(&format!("token `{name}` is taken back"));
            if context.output.json {
                context.output.keyed("revoked", &name);
            }
        }
    }
    Ok(Exit::Ok)
}

fn tell(context: &Context, name: &str, profile: Option<&str>, made: &Token) {
    if context.output.json {
        context.output.object(&MadeBody { name, profile, token: made.reveal() });
        return;
    }
    context.output.text(made.reveal());
    context.output.note(&format!("this is shown once; clients send it as `Authorization: Bearer TOKEN` (`{name}`)"));
}

fn list(context: &Context, book: &TokenBook) -> Result<(), Failure> {
    let tokens = book.read().map_err(|error| failure(&error))?;
    if context.output.json {
        context.output.keyed("tokens", &tokens.iter().map(body).collect::<Vec<_>>());
        return Ok(());
    }
    if tokens.is_empty() {
        context.output.to_stderr("no client has a token of its own; all share the one in run/mcp-token");
        return Ok(());
    }
    let row = |token: &ClientToken| {
        let made = std::time::UNIX_EPOCH + std::time::Duration::from_secs(token.made_at);
        let made = humantime::format_rfc3339_seconds(made).to_string();
        vec![token.name.clone(), token.profile.clone().unwrap_or_default(), made]
    };
    context.output.text(&table(&["TOKEN", "PROFILE", "MADE"], tokens.iter().map(row).collect()));
    Ok(())
}

fn body(token: &ClientToken) -> TokenBody<'_> {
    TokenBody { name: &token.name, profile: token.profile.as_deref(), made_at: token.made_at }
}

fn failure(error: &ClientTokenError) -> Failure {
    let message = error.to_string();
    match error {
        ClientTokenError::Name(_) => Failure::usage(message),
        ClientTokenError::Taken(_) => Failure::new(Exit::Failure, "TOKEN_EXISTS", message)
            .with_hint("`plugward token rotate NAME` replaces it by a new one"),
        ClientTokenError::Unknown(_) => {
            Failure::new(Exit::NotFound, "TOKEN_NOT_FOUND", message).with_hint("`plugward token list` shows them")
        }
        ClientTokenError::Full => {
            Failure::new(Exit::Failure, "TOKENS_FULL", message).with_hint("take back those that nobody uses")
        }
        ClientTokenError::Io { .. }
        | ClientTokenError::Unusable { .. }
        | ClientTokenError::Token(TokenError::Io { .. }) => Failure::new(Exit::Failure, "TOKENS_UNUSABLE", message),
        ClientTokenError::Token(_) => Failure::new(Exit::Failure, "TOKENS_UNUSABLE", message),
    }
}
