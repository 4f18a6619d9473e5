//! What may be repeated of a text that a plugin wrote: without secrets, visible, and cut so that no cut leaves part of
//! one.
//!
//! Owns the bounds of such quotes. Refuses payloads, which are passed on whole.

use std::borrow::Cow;
use std::sync::Arc;

use plugward_policy::visible;
use plugward_store::Redactor;

/// Characters the protocol quotes of a line at most. A quote of this length may have lost its end.
const EXCERPT_CHARS: usize = 200;

/// Bytes of a secret that may stand at a cut unrecognised: fewer are shared by too many words, and tell nothing.
const PART_MIN_BYTES: usize = 3;

/// The values one plugin was given, and the redactor that knows those of all.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    /// Knows the values of every plugin.
    pub(crate) redactor: Redactor,
    /// Values of this plugin, for what the redactor cannot know: the beginning of a value whose rest was cut off.
    pub(crate) own: Arc<[String]>,
}

impl Secrets {
    /// A line that the protocol has cut already, without secrets and without the beginning of one at the cut.
    pub(crate) fn excerpt(&self, excerpt: &str) -> String {
        let is_cut = excerpt.chars().count() >= EXCERPT_CHARS;
        // The whole values go first: one of them may end in what looks like the beginning of another.
        let redacted = self.redactor.redact(excerpt);
        match is_cut {
            true => format!("{}…", without_part(&redacted, &self.own)),
            false => redacted.into_owned(),
        }
    }
}

/// `text` without the longest beginning of a secret that it ends in.
fn without_part<'t>(text: &'t str, secrets: &[String]) -> &'t str {
    let end_of = |secret: &String| {
        // A value of several lines is never on one line; its lines are.
        let lines = secret.lines().map(str::trim).chain([secret.trim()]);
        lines.filter_map(|line| part_at_end(text, line)).min()
    };
    secrets.iter().filter_map(end_of).min().map_or(text, |begin| &text[..begin])
}

/// Where in `text` a proper beginning of `secret` starts that reaches to the end of `text`.
fn part_at_end(text: &str, secret: &str) -> Option<usize> {
    let longest = secret.len().min(text.len());
    let begins = (PART_MIN_BYTES..=longest).rev().map(|length| text.len() - length);
    begins.into_iter().find(|begin| text.is_char_boundary(*begin) && secret.starts_with(&text[*begin..]))
}

/// A short text of a plugin about itself, such as its name: without secrets, visible, at most `max_chars` characters.
pub(crate) fn label(redactor: &Redactor, text: &str, max_chars: usize) -> String {
    let redacted: Cow<'_, str> = redactor.redact(text);
    let mut cut: String = redacted.chars().take(max_chars).collect();
    if cut.len() < redacted.len() {
        cut.push('…');
    }
    visible(&cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-0123456789abcdef";

    fn secrets() -> Secrets {
        let redactor = Redactor::new();
        redactor.set_secrets("fx", &[SECRET.to_owned()]);
        Secrets { redactor, own: [SECRET.to_owned()].into() }
    }

    #[test]
    fn a_secret_that_the_cut_went_through_leaves_nothing() {
        // Invariant 4: the redactor does not know half a value, and the log of a plugin is shown to whoever may look.
        for kept in PART_MIN_BYTES..=SECRET.len() {
            let filler = "x".repeat(EXCERPT_CHARS - kept);
            let shown = secrets().excerpt(&format!("{filler}{}", &SECRET[..kept]));
            assert!(!shown.contains("sk-"), "{shown}");
        }
        let short = secrets().excerpt("the key begins with sk-");
        assert_eq!(short, "the key begins with sk-", "nothing was cut, so nothing is hidden");
    }

    #[test]
    fn a_line_of_a_longer_value_is_known_as_well() {
        let value = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n";
        let own: Arc<[String]> = [value.to_owned()].into();
        let text = format!("{}MIIEvQIB", "x".repeat(EXCERPT_CHARS - 8));
        assert!(!Secrets { redactor: Redactor::new(), own }.excerpt(&text).contains("MII"));
    }

    #[test]
    fn a_label_is_clean_visible_and_short() {
        let Secrets { redactor, .. } = secrets();
        assert_eq!(label(&redactor, "files\u{1b}[2J", 50), "files\\u{1b}[2J");
        assert_eq!(label(&redactor, &format!("a {SECRET}"), 50), "a ***");
        assert_eq!(label(&redactor, &"é".repeat(9), 8), format!("{}…", "é".repeat(8)));
    }
}
