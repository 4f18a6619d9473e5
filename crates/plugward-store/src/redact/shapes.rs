//! Secrets recognised by their shape, without knowing their value: tokens with a published prefix, credentials in
//! headers, URLs, flags and assignments, private keys. Owns the table of shapes; refuses regular expressions, so that
//! the cost stays linear in the text whatever the text is.

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::{SECRET_MARK, SECRET_MIN_BYTES};

/// How far an `@` is searched for after `://`: credentials in URLs are short, and the bound keeps the search linear.
const USER_INFO_MAX_BYTES: usize = 512;
/// A token is judged by this many characters and removed whole: the bound keeps the search linear.
const TOKEN_JUDGED_CHARS: usize = 64;
/// Shorter words after `Bearer` are prose.
const BEARER_MIN_BYTES: usize = 6;
/// A user name this long, without a password, is a token.
const USER_TOKEN_MIN_BYTES: usize = 20;

/// What has to follow a trigger for the text there to be a secret.
#[derive(Clone, Copy)]
enum Shape {
    /// Token characters of at least this number, among them a digit; the trigger goes too.
    Token { min: usize },
    /// As `Token`, after a trigger whose spelling is exact.
    ExactToken { min: usize },
    /// `Bearer` and a token of some length; the word stays.
    Bearer,
    /// The rest of a header line; the header's name stays.
    HeaderLine,
    /// A word or a quoted string after `name=`; the name stays.
    Assigned,
    /// A quoted string after `"name":`, the way it looks in JSON within other text; the name stays.
    Quoted,
    /// The next word of a command line, if it is no short word of a sentence; the flag stays.
    FlagValue,
    /// `user:password@` or `token@` after `://`; scheme, user and host stay.
    UserInfo,
    /// A private key, to its end or to the end of the text.
    PrivateKey,
}

const SHAPES: &[(&str, Shape)] = &[
    ("sk-", Shape::Token { min: 16 }),
    ("sk_live_", Shape::Token { min: 8 }),
    ("sk_test_", Shape::Token { min: 8 }),
    ("rk_live_", Shape::Token { min: 8 }),
    ("whsec_", Shape::Token { min: 16 }),
    ("ghp_", Shape::Token { min: 16 }),
    ("gho_", Shape::Token { min: 16 }),
    ("ghu_", Shape::Token { min: 16 }),
    ("ghs_", Shape::Token { min: 16 }),
    ("ghr_", Shape::Token { min: 16 }),
    ("github_pat_", Shape::Token { min: 16 }),
    ("glpat-", Shape::Token { min: 16 }),
    ("npm_", Shape::Token { min: 30 }),
    ("pypi-", Shape::Token { min: 40 }),
    ("hf_", Shape::Token { min: 24 }),
    ("xoxb-", Shape::Token { min: 10 }),
    ("xoxp-", Shape::Token { min: 10 }),
    ("xoxa-", Shape::Token { min: 10 }),
    ("xoxs-", Shape::Token { min: 10 }),
    ("xapp-", Shape::Token { min: 10 }),
    ("AKIA", Shape::ExactToken { min: 16 }),
    ("ASIA", Shape::ExactToken { min: 16 }),
    ("AIza", Shape::ExactToken { min: 30 }),
    ("eyJ", Shape::ExactToken { min: 30 }),
    ("bearer ", Shape::Bearer),
    ("authorization: ", Shape::HeaderLine),
    ("cookie: ", Shape::HeaderLine),
    ("x-api-key: ", Shape::HeaderLine),
    ("password: ", Shape::Assigned),
    ("password=", Shape::Assigned),
    ("passwd=", Shape::Assigned),
    ("pwd=", Shape::Assigned),
    ("secret=", Shape::Assigned),
    ("token=", Shape::Assigned),
    ("api_key=", Shape::Assigned),
    ("api-key=", Shape::Assigned),
    ("apikey=", Shape::Assigned),
    ("access_key=", Shape::Assigned),
    ("secret_key=", Shape::Assigned),
    ("private_key=", Shape::Assigned),
    ("password\":", Shape::Quoted),
    ("password\\\":", Shape::Quoted),
    ("secret\":", Shape::Quoted),
    ("secret\\\":", Shape::Quoted),
    ("token\":", Shape::Quoted),
    ("token\\\":", Shape::Quoted),
    ("api_key\":", Shape::Quoted),
    ("api_key\\\":", Shape::Quoted),
    ("apikey\":", Shape::Quoted),
    ("apikey\\\":", Shape::Quoted),
    ("authorization\":", Shape::Quoted),
    ("authorization\\\":", Shape::Quoted),
    ("--password ", Shape::FlagValue),
    ("--token ", Shape::FlagValue),
    ("--secret ", Shape::FlagValue),
    ("--api-key ", Shape::FlagValue),
    ("--api_key ", Shape::FlagValue),
    ("://", Shape::UserInfo),
    ("-----begin ", Shape::PrivateKey),
];

static TRIGGERS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .ascii_case_insensitive(true)
        .build(SHAPES.iter().map(|(trigger, _)| trigger))
        .ok()
});

/// The text with every shape replaced by the mark.
pub(super) fn redact(text: &str) -> Cow<'_, str> {
    let Some(triggers) = TRIGGERS.as_ref() else {
        return Cow::Owned(SECRET_MARK.to_owned());
    };
    let mut out = String::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = triggers.find(Input::new(text).range(from..)) {
        // Triggers are ASCII: the byte after their first is a character boundary.
        from = found.start() + 1;
        let (trigger, shape) = SHAPES[found.pattern().as_usize()];
        if let Some((start, end)) = secret(text, found.start(), trigger, shape)
            && &text[start..end] != SECRET_MARK
        {
            out.push_str(&text[copied..start]);
            out.push_str(SECRET_MARK);
            copied = end;
            from = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The range of the secret that a trigger at `at` announces, if there is one.
fn secret(text: &str, at: usize, trigger: &str, shape: Shape) -> Option<(usize, usize)> {
    let body = at + trigger.len();
    let rest = &text[body..];
    let word_starts = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    match shape {
        Shape::Token { min } => (word_starts && is_token(rest, min)).then(|| (at, body + run(rest, token_char))),
        Shape::ExactToken { min } => {
            let exact = text[at..].starts_with(trigger);
            (word_starts && exact && is_token(rest, min)).then(|| (at, body + run(rest, token_char)))
        }
        Shape::Bearer => {
            let skipped = rest.len() - rest.trim_start_matches(' ').len();
            let len = run(&rest[skipped..], |c| token_char(c) || matches!(c, '~' | '+' | '/' | '='));
            (len >= BEARER_MIN_BYTES).then_some((body + skipped, body + skipped + len))
        }
        Shape::HeaderLine => non_empty(body, run(rest, |c| !matches!(c, '\n' | '\r' | '"' | '\''))),
        Shape::Assigned => match rest.chars().next()? {
            quote @ ('"' | '\'') => non_empty(body + 1, run(&rest[1..], |c| c != quote && c != '\n')),
            _ => non_empty(body, run(rest, word_char)),
        },
        Shape::Quoted => {
            let open = rest.find('"').filter(|&open| rest[..open].chars().all(|c| matches!(c, ' ' | '\\')))?;
            let value = &rest[open + 1..];
            let value = &value[..run(value, |c| c != '"' && c != '\n')];
            // In escaped JSON the backslash belongs to the closing quote.
            let value = if trigger.contains('\\') { value.strip_suffix('\\').unwrap_or(value) } else { value };
            non_empty(body + open + 1, value.len())
        }
        Shape::FlagValue if rest.starts_with('-') => None,
        Shape::FlagValue => {
            let len = run(rest, word_char);
            (len >= SECRET_MIN_BYTES).then_some((body, body + len))
        }
        Shape::UserInfo => user_info(body, rest),
        Shape::PrivateKey => private_key(at, body, rest),
    }
}

fn token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn word_char(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '&' | ';' | ',' | '<' | '>' | ')' | ']' | '}')
}

fn is_token(rest: &str, min: usize) -> bool {
    let looked_at = rest.chars().take(min.max(TOKEN_JUDGED_CHARS)).take_while(|&c| token_char(c));
    let (len, digit) = looked_at.fold((0, false), |(len, digit), c| (len + 1, digit || c.is_ascii_digit()));
    len >= min && digit
}

/// Bytes of the longest prefix made of such characters.
fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn non_empty(start: usize, len: usize) -> Option<(usize, usize)> {
    (len > 0).then_some((start, start + len))
}

fn user_info(body: usize, rest: &str) -> Option<(usize, usize)> {
    let mut at_sign = None;
    let mut colon = None;
    for (index, c) in rest.char_indices().take_while(|&(index, _)| index < USER_INFO_MAX_BYTES) {
        match c {
            '@' => at_sign = Some(index),
            ':' if colon.is_none() => colon = Some(index),
            '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '\\' => break,
            c if c.is_whitespace() => break,
            _ => {}
        }
    }
    let end = at_sign?;
    match colon.filter(|&colon| colon < end) {
        Some(colon) => non_empty(body + colon + 1, end - colon - 1),
        None if end >= USER_TOKEN_MIN_BYTES => Some((body, body + end)),
        None => None,
    }
}

fn private_key(at: usize, body: usize, rest: &str) -> Option<(usize, usize)> {
    let label = run(rest, |c| c.is_ascii_alphanumeric() || c == ' ');
    if !rest[..label].to_ascii_uppercase().ends_with("PRIVATE KEY") {
        return None;
    }
    const END: &str = "-----END ";
    const DASHES: &str = "-----";
    let tail = &rest[label..];
    let stop = tail.find(END).and_then(|end| {
        let footer = end + END.len();
        tail[footer..].find(DASHES).map(|dashes| footer + dashes + DASHES.len())
    });
    Some((at, body + label + stop.unwrap_or(tail.len())))
}
