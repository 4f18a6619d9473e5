//! What an edit changes, as a unified diff.
//!
//! Our edits touch one place of a file, so everything between the first and the last line that differ is one hunk.

use std::fmt::Write as _;

/// Lines shown around a change, as other tools do.
const CONTEXT_LINES: usize = 3;

/// The diff between two texts; empty if they are the same. Lines are shown without the tricks they may hold.
pub(crate) fn unified(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    let (before, after) = (lines(old), lines(new));
    let same_head = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same_head;
    let same_tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    if same_head == before.len() && same_head == after.len() {
        return String::new();
    }
    let head = same_head.saturating_sub(CONTEXT_LINES);
    let tail = same_tail.min(CONTEXT_LINES);
    let (old_end, new_end) = (before.len() - same_tail, after.len() - same_tail);
    let path = plugward_policy::visible(path);
    let name = |text: Option<&str>| if text.is_some() { path.as_str() } else { "(no file)" };
    let mut diff = format!("--- {}\n+++ {}\n", name(old), name(new));
    let range = |from: usize, to: usize| format!("{},{}", if to > from { from + 1 } else { from }, to - from);
    // Writing into a `String` cannot fail.
    let _ = writeln!(diff, "@@ -{} +{} @@", range(head, old_end + tail), range(head, new_end + tail));
    let edit = Edit::between(old.unwrap_or_default(), new.unwrap_or_default());
    let context = |diff: &mut String, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(diff, " {}", key_only(line));
        }
    };
    context(&mut diff, &before[head..same_head]);
    for (sign, all, (from, to), part) in
        [('-', &before, (same_head, old_end), edit.old), ('+', &after, (same_head, new_end), edit.new)]
    {
        let mut at: usize = all[..from].iter().map(|line| line.len() + 1).sum();
        for line in &all[from..to] {
            let _ = writeln!(diff, "{sign}{}", part_of(line, at, part));
            at += line.len() + 1;
        }
    }
    context(&mut diff, &before[old_end..old_end + tail]);
    diff
}

/// Where two texts differ: from the first to the last byte, on either side.
struct Edit {
    old: (usize, usize),
    new: (usize, usize),
}

impl Edit {
    fn between(old: &str, new: &str) -> Self {
        let shorter = old.len().min(new.len());
        let same = |(a, b): &(u8, u8)| a == b;
        let mut start = old.bytes().zip(new.bytes()).take_while(same).count();
        while !old.is_char_boundary(start) || !new.is_char_boundary(start) {
            start -= 1;
        }
        let mut tail = old.bytes().rev().zip(new.bytes().rev()).take(shorter - start).take_while(same).count();
        while !old.is_char_boundary(old.len() - tail) || !new.is_char_boundary(new.len() - tail) {
            tail -= 1;
        }
        let (old_end, new_end) = (old.len() - tail, new.len() - tail);
        // What was put in or taken out may as well begin a little earlier, where its neighbour begins like it: at a line.
        let (whole, end) = if old_end == start { (new, new_end) } else { (old, old_end) };
        let is_one_sided = old_end == start || new_end == start;
        let bytes = whole.as_bytes();
        let begins = |by: usize| start == by || bytes[start - by - 1] == b'\n';
        let fits = |by: &usize| bytes[start - by - 1] == bytes[end - by - 1];
        let steps = (0..start.min(end - start)).take_while(fits).count();
        let by = (0..=steps).find(|by| is_one_sided && begins(*by)).unwrap_or(0);
        Self { old: (start - by, old_end - by), new: (start - by, new_end - by) }
    }
}

/// A changed line that begins at `at`: whole if the edit made all of it, else no more than the edit's part of it. The rest
/// is a neighbour's, which may stand in the same line.
fn part_of(line: &str, at: usize, (from, to): (usize, usize)) -> String {
    let text = line.trim_end_matches('\r');
    let (begin, end) = (from.clamp(at, at + text.len()) - at, to.clamp(at, at + text.len()) - at);
    if begin == 0 && end == text.len() {
        return shown(text);
    }
    let part = text.get(begin..end).unwrap_or_default();
    if part.chars().all(|c| c.is_whitespace() || c == ',') {
        return key_only(text);
    }
    let cut = |is_cut: bool| if is_cut { "…" } else { "" };
    format!("{}{}{}", cut(begin > 0), shown(part), cut(end < text.len()))
}

/// A line without its tricks. Tabs are as harmless in a diff as blanks, and look like it.
fn shown(line: &str) -> String {
    line.trim_end_matches('\r').split('\t').map(plugward_policy::visible).collect::<Vec<_>>().join("\t")
}

/// A line that is not ours: its key, and not what stands behind it. Neighbours of our entry hold secrets, under names
/// and in forms that nobody can list.
fn key_only(line: &str) -> String {
    let is_layout = |text: &str| text.chars().all(|c| c.is_whitespace() || "{}[](),:-".contains(c));
    let line = line.trim_end_matches('\r');
    if is_layout(line) {
        return shown(line);
    }
    match line.split_once([':', '=']) {
        Some((key, value)) if is_layout(value) => format!("{}{}", shown(key), shown(&line[key.len()..])),
        Some((key, _)) => format!("{}{} …", shown(key), shown(&line[key.len()..=key.len()])),
        None if line.trim_start().starts_with('[') => shown(line),
        None => format!("{}…", &line[..line.len() - line.trim_start().len()]),
    }
}

fn lines(text: Option<&str>) -> Vec<&str> {
    let text = text.unwrap_or_default();
    if text.is_empty() { Vec::new() } else { text.strip_suffix('\n').unwrap_or(text).split('\n').collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let old = "{\n  \"a\": {\n    \"b\": {\n    }\n  }\n}\n";
        let new = old.replace("    }\n  }", "    },\n    \"ours\": [\"x\"]\n  }");
        assert_eq!(
            unified("f", Some(old), Some(&new)),
            "--- f\n+++ f\n@@ -1,6 +1,7 @@\n {\n   \"a\": {\n     \"b\": {\n-    }\n+    },\n+    \"ours\": [\"x\"]\n   }\n }\n"
        );
        assert_eq!(unified("f", None, Some("a\n")), "--- (no file)\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("f", Some("a\n"), None), "--- f\n+++ (no file)\n@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(unified("f", Some(old), Some(old)), "");
        assert_eq!(unified("f", Some("a\na\n"), Some("a\na\nb\n")).matches("\n+").count(), 2);
    }

    #[test]
    fn a_line_of_a_file_cannot_drive_the_terminal() {
        // Requirement 94: the file is somebody else's.
        let diff = unified("f", Some("a\u{1b}[2J\tb\r\n"), Some("c\r\n"));
        assert!(diff.contains("-a\\u{1b}[2J\tb\n+c\n"), "{diff}");
    }

    /// A file may be one line; its secrets are no less secret.
    #[test]
    fn of_a_line_shared_with_neighbours_only_the_edit_is_shown() {
        let old = r#"{"mcpServers":{"a":{"env":{"T":"hunter22"}}},"theme":"dark"}"#;
        let new = r#"{"mcpServers":{"a":{"env":{"T":"hunter22"}},"ours":{"command":"/bin/x"}},"theme":"dark"}"#;
        for (before, after) in [(old, new), (new, old)] {
            let diff = unified("f", Some(before), Some(after));
            assert!(!diff.contains("hunter22") && !diff.contains("dark"), "{diff}");
            assert!(diff.contains(r#""ours":{"command":"/bin/x"}"#), "{diff}");
        }
        let begins_alike =
            unified("f", Some("{\n  \"b\": \"hunter22\"\n}\n"), Some("{\n  \"ours\": 1,\n  \"b\": \"hunter22\"\n}\n"));
        assert!(begins_alike.contains("\n+  \"ours\": 1,\n") && !begins_alike.contains("hunter22"), "{begins_alike}");
    }

    /// A diff goes into terminals' memories and logs; what stands beside our entry is not for them.
    #[test]
    fn secrets_of_the_neighbours_are_not_shown() {
        let neighbours = [
            "  \"API_TOKEN\": \"hunter22\"",
            "  \"env\": { \"X\": \"hunter22\" }",
            "    \"hunter22\"",
            "  \"u\": \"https://hunter22@example.test\"",
            "key = \"hunter22\" # old one",
            "  - hunter22",
            "  // hunter22",
        ];
        for line in neighbours {
            let old = format!("{{\n{line}\n}}\n");
            let comma = format!("{{\n{line},\n  \"ours\": 1\n}}\n");
            let later = format!("{{\n{line}\n  \"ours\": 1\n}}\n");
            for new in [comma, later] {
                let diff = unified("f", Some(&old), Some(&new));
                assert!(diff.contains("\"ours\": 1") && !diff.contains("hunter22"), "{diff}");
                let back = unified("f", Some(&new), Some(&old));
                assert!(back.contains("\"ours\": 1") && !back.contains("hunter22"), "{back}");
            }
        }
    }
}
