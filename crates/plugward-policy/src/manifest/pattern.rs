//! Which of a server's tools are offered: `tools.allow` and `tools.deny`. Owns the pattern form and
//! its matching. Refuses regular expressions; a person reads a list of names with `*` at a glance.

use std::fmt;
use std::str::FromStr;

use crate::id::REMOTE_TOOL_NAME_BYTES_MAX;
use crate::visible::quoted;

/// A text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tool pattern {} is not valid: use 1 to {REMOTE_TOOL_NAME_BYTES_MAX} ASCII letters, digits, `_`, `-`, `.` and `*`",
    quoted(.0)
)]
pub struct PatternError(pub String);

/// A tool name in which each `*` stands for any number of characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern(String);

impl NamePattern {
    /// Whether the whole of `name` fits; case matters.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut read) = (0, 0);
        // Where to go on after the last `*` when what follows it does not fit here. One place is
        // enough, which keeps the cost at pattern times name whatever the pattern.
        let mut retry: Option<(usize, usize)> = None;
        while read < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    retry = Some((at + 1, read));
                    at += 1;
                }
                Some(byte) if *byte == name[read] => {
                    at += 1;
                    read += 1;
                }
                _ => match retry {
                    Some((after_star, start)) => {
                        retry = Some((after_star, start + 1));
                        (at, read) = (after_star, start + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*');
        let sized = (1..=REMOTE_TOOL_NAME_BYTES_MAX).contains(&text.len());
        if sized && text.chars().all(legal) { Ok(Self(text.to_owned())) } else { Err(PatternError(text.to_owned())) }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which tools are offered, by their original names. A tool that is not offered does not exist for
/// anybody: it is neither listed nor callable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Only these; `None` means all.
    pub allow: Option<Vec<NamePattern>>,
    /// Never these, whatever `allow` says.
    pub deny: Vec<NamePattern>,
}

impl ToolFilter {
    /// Whether the tool `name` is offered.
    #[must_use]
    pub fn permits(&self, name: &str) -> bool {
        let any = |patterns: &[NamePattern]| patterns.iter().any(|p| p.matches(name));
        !any(&self.deny) && self.allow.as_deref().is_none_or(any)
    }

    /// The patterns that fit none of `names`: probably misspelled, so worth a warning.
    #[must_use]
    pub fn unmatched<'f>(&'f self, names: &[&str]) -> Vec<&'f NamePattern> {
        let patterns = self.allow.iter().flatten().chain(&self.deny);
        patterns.filter(|pattern| !names.iter().any(|name| pattern.matches(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().unwrap()
    }

    #[test]
    fn stars_match_any_run_and_nothing_else_is_special() {
        for (text, name, fits) in [
            ("send", "send", true),
            ("send", "Send", false),
            ("send", "send_x", false),
            ("*", "", true),
            ("*", "anything", true),
            ("delete_*", "delete_file", true),
            ("delete_*", "undelete_file", false),
            ("*_file", "read_file", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXc", false),
            ("**", "x", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(pattern(text).matches(name), fits, "{text} on {name}");
        }
    }

    #[test]
    fn a_pattern_made_to_backtrack_costs_little() {
        let hostile = pattern(&"a*".repeat(64));
        assert!(!hostile.matches(&format!("{}b", "a".repeat(40))) || hostile.as_str().ends_with('*'));
        assert!(!pattern(&format!("{}b", "a*".repeat(60))).matches(&"a".repeat(4096)));
    }

    #[test]
    fn patterns_hold_only_name_characters_and_stars() {
        for bad in ["", "a b", "é", "a/b", "[a]", "a?", &"x".repeat(129)] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad}");
        }
    }

    // A filter that only hides a tool would still let it be called: one question serves both.
    #[test]
    fn deny_wins_over_allow_and_unmatched_patterns_are_found() {
        let filter = ToolFilter {
            allow: Some(vec![pattern("safe"), pattern("admin_*"), pattern("no_such_tool")]),
            deny: vec![pattern("*_wipe")],
        };
        assert!(filter.permits("safe") && filter.permits("admin_list"));
        assert!(!filter.permits("admin_wipe") && !filter.permits("Danger"));
        assert!(!filter.permits("Safe") && !filter.permits(" safe"));
        let unmatched = filter.unmatched(&["safe", "admin_wipe"]);
        assert_eq!(unmatched, [&pattern("no_such_tool")]);
        assert!(ToolFilter::default().permits("anything"));
        let nothing = ToolFilter { allow: Some(Vec::new()), deny: Vec::new() };
        assert!(!nothing.permits("anything"));
    }
}
