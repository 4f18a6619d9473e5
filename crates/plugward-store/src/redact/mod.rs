//! Redaction at the door. Owns which secret values are known, what else is taken for a secret, and how large a stored
//! text may be; refuses to decide where a text goes: everything that is kept, shown or logged passes here.
//!
//! Three layers, each independent of the others:
//! 1. every known secret value, in the spellings a program is likely to print it in ([`spellings`]);
//! 2. shapes that give a secret away without knowing its value, such as `Bearer …` or `ghp_…` ([`shapes`]);
//! 3. for JSON, values under keys that name a secret ([`names`]).

mod json;
mod names;
mod shapes;
mod spellings;
mod stream;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};

pub use stream::MaskedStream;

/// What stands where a secret value stood.
pub const SECRET_MARK: &str = "***";
/// What stands for a value whose key names a secret.
pub const REDACTED_MARK: &str = "[REDACTED]";
/// Secret values shorter than this are not searched for: they would match ordinary text everywhere, and a text full of
/// marks both hides what happened and gives the short value away.
pub const SECRET_MIN_BYTES: usize = 6;
/// A stored string holds at most this many characters: enough to recognise what it was, and a bound on the trace.
pub const TEXT_MAX_CHARS: usize = 4096;

/// Removes secrets from text. Clones share one set of known values.
///
/// The host tells it the secret values of each plugin before the plugin starts and forgets them only after its last
/// output was read.
#[derive(Clone, Default)]
pub struct Redactor {
    state: Arc<RwLock<State>>,
}

#[derive(Default)]
struct State {
    by_plugin: BTreeMap<String, Vec<String>>,
    matcher: Arc<Matcher>,
}

impl fmt::Debug for Redactor {
    /// Shows no value: a `{:?}` of anything that holds a redactor must be safe to log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor that knows no values yet; shapes and key names work at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the secret values of one plugin. A value shared with another plugin stays known through that one.
    pub fn set_secrets(&self, plugin_id: &str, values: &[String]) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.by_plugin.insert(plugin_id.to_owned(), values.to_vec());
        state.rebuild();
    }

    /// Forgets the secret values of one plugin.
    pub fn clear(&self, plugin_id: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.by_plugin.remove(plugin_id).is_some() {
            state.rebuild();
        }
    }

    /// The text without secrets, at full length.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.matcher().redact(text)
    }

    /// The text without the values that are known, and nothing else changed: for payloads that are passed on, where a
    /// shape that only looks like a secret is none of our business. In JSON the mark stands inside a string,
    /// unless a value was printed as a number. Borrowed text is unchanged text.
    #[must_use]
    pub fn redact_values<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.matcher().redact_known(text)
    }

    /// As [`Redactor::redact`], for a text that was cut: the beginning of a known value at its end goes as well.
    #[must_use]
    pub fn redact_cut(&self, text: &str) -> String {
        let matcher = self.matcher();
        let mut redacted = matcher.redact(text).into_owned();
        let mut end = matcher.without_part(redacted.as_bytes()).len();
        while !redacted.is_char_boundary(end) {
            end -= 1;
        }
        redacted.truncate(end);
        redacted
    }

    /// Bytes without the values that are known now, masked as they pass.
    #[must_use]
    pub fn stream(&self) -> MaskedStream {
        MaskedStream::new(self.matcher())
    }

    /// JSON without secrets and of bounded size, always valid JSON. Strings are cut at [`TEXT_MAX_CHARS`], collections
    /// at 100 items, nesting at depth 8; numbers keep their spelling. Text that is not JSON becomes a JSON string.
    #[must_use]
    pub fn redact_json(&self, json: &str) -> String {
        self.matcher().redact_json(json)
    }

    /// The values known now, unaffected by later changes: what is queued is judged by what was secret when it was
    /// handed in.
    pub(crate) fn matcher(&self) -> Arc<Matcher> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).matcher)
    }
}

impl State {
    fn rebuild(&mut self) {
        self.matcher = Arc::new(Matcher::new(self.by_plugin.values().flatten()));
    }
}

/// Known values compiled for searching.
#[derive(Default)]
pub(crate) struct Matcher {
    known: Known,
}

#[derive(Default)]
enum Known {
    #[default]
    Nothing,
    Values {
        search: AhoCorasick,
        spellings: Vec<String>,
        longest_bytes: usize,
    },
    /// The search could not be built; nothing can be shown to be free of secrets.
    Everything,
}

impl Matcher {
    fn new<'v>(values: impl Iterator<Item = &'v String>) -> Self {
        let spellings = spellings::of_all(values);
        if spellings.is_empty() {
            return Self::default();
        }
        // Leftmost-longest: of two secrets of which one begins with the other, the longer one goes whole.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
        let longest_bytes = spellings.iter().map(String::len).max().unwrap_or_default();
        let known = built.map_or(Known::Everything, |search| Known::Values { search, spellings, longest_bytes });
        Self { known }
    }

    pub(crate) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact_known(text) {
            Cow::Borrowed(text) => shapes::redact(text),
            Cow::Owned(text) => Cow::Owned(shapes::redact(&text).into_owned()),
        }
    }

    /// The text without secrets, cut to `max_chars`. The cut comes last, so that it never leaves part of a secret.
    pub(crate) fn redact_to<'t>(&self, text: &'t str, max_chars: usize) -> Cow<'t, str> {
        match self.redact(text) {
            Cow::Borrowed(text) if text.len() <= max_chars => Cow::Borrowed(text),
            text => {
                let mut text = text.into_owned();
                cut(&mut text, max_chars);
                Cow::Owned(text)
            }
        }
    }

    pub(crate) fn redact_json(&self, json: &str) -> String {
        json::redact(self, json)
    }

    fn redact_known<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.known {
            Known::Nothing => Cow::Borrowed(text),
            // Owned: a borrowed answer tells callers that nothing was found.
            Known::Everything => Cow::Owned(SECRET_MARK.to_owned()),
            Known::Values { search, .. } => {
                let mut out = String::new();
                let mut copied = 0;
                for found in search.find_iter(text) {
                    out.push_str(&text[copied..found.start()]);
                    out.push_str(SECRET_MARK);
                    copied = found.end();
                }
                if copied == 0 {
                    return Cow::Borrowed(text);
                }
                out.push_str(&text[copied..]);
                Cow::Owned(out)
            }
        }
    }
}

/// Cuts at a character boundary and says how much is gone.
fn cut(text: &mut String, max_chars: usize) {
    if text.len() <= max_chars {
        return;
    }
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        let gone = text[end..].chars().count();
        text.truncate(end);
        text.push_str(&format!("… [{gone} characters more]"));
    }
}

#[cfg(test)]
mod tests;
