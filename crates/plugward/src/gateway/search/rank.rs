//! Ranking of tools by words: BM25 over weighted fields.
//!
//! Owns how texts become words (case, word parts, endings, words that mean the same in names of tools) and the formula.
//! Our own because what matters here no small library has: fields that weigh differently, and names such as
//! `createPullRequest` and `list_pull_requests` that are several words. Refuses randomness and clocks: the same tools and
//! words give the same order.

use std::collections::HashMap;

/// How much a word counts by where it stands. A name says best what a tool does.
const NAME_WEIGHT: f64 = 3.0;
const TEXT_WEIGHT: f64 = 1.0;
const ARGUMENT_WEIGHT: f64 = 0.8;
const NOTE_WEIGHT: f64 = 0.3;

/// BM25's saturation: how much a second and third mention of a word add.
const SATURATION: f64 = 1.2;

/// BM25's length share: how much a long text is held against a tool. Below the usual 0.75, as long descriptions are a
/// habit of authors and no sign of being about something else.
const LENGTH_SHARE: f64 = 0.5;

/// What a word of the same meaning counts in place of the word itself.
const SYNONYM_WEIGHT: f64 = 0.6;

/// Longest query looked at, in words; people and models write a sentence.
const QUERY_WORDS_MAX: usize = 48;

/// Words that say nothing about a tool.
const EMPTY_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "for", "from", "has", "have", "how", "i", "if", "in",
    "into", "is", "it", "its", "me", "my", "need", "of", "on", "or", "our", "please", "some", "that", "the", "their",
    "them", "there", "this", "to", "tool", "us", "use", "want", "was", "we", "what", "which", "with", "you", "your",
];

/// Groups of words that names of tools use for one thing.
const SYNONYMS: &[&[&str]] = &[
    &["add", "create", "new", "make", "insert"],
    &["delete", "remove", "drop", "erase", "uninstall"],
    &["find", "search", "query", "lookup", "locate"],
    &["get", "read", "fetch", "show", "view", "retrieve", "describe", "open"],
    &["list", "all", "enumerate"],
    &["update", "edit", "change", "modify", "set", "rename", "replace"],
    &["run", "execute", "start", "launch", "trigger", "call"],
    &["stop", "cancel", "kill", "terminate", "abort"],
    &["send", "post", "publish", "write", "reply"],
    &["folder", "directory"],
    &["mail", "email", "message"],
    &["image", "picture", "screenshot", "photo"],
    &["repo", "repository"],
    &["mr", "merge"],
    &["pr", "pull"],
    &["db", "database"],
    &["website", "page", "url", "web", "site"],
    &["move", "relocate"],
    &["calendar", "event", "meeting", "appointment"],
    &["spreadsheet", "sheet", "worksheet"],
    &["person", "user", "member", "people"],
    &["issue", "ticket", "bug"],
    &["weather", "forecast"],
    &["download", "export", "save"],
];

/// The texts of one tool.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) arguments: String,
    pub(super) notes: String,
}

/// A searchable set of documents.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Of each word: documents in order, with its weighted count in each.
    postings: HashMap<String, Vec<(usize, f64)>>,
    /// Weighted lengths.
    lengths: Vec<f64>,
    average: f64,
}

impl Index {
    pub(super) fn new(documents: &[Document]) -> Self {
        let mut index = Self::default();
        for (number, document) in documents.iter().enumerate() {
            let fields = [
                (&document.name, NAME_WEIGHT),
                (&document.text, TEXT_WEIGHT),
                (&document.arguments, ARGUMENT_WEIGHT),
                (&document.notes, NOTE_WEIGHT),
            ];
            let mut length = 0.0;
            for (text, weight) in fields {
                for word in words(text) {
                    length += weight;
                    let postings = index.postings.entry(word).or_default();
                    match postings.last_mut() {
                        Some((last, count)) if *last == number => *count += weight,
                        _ => postings.push((number, weight)),
                    }
                }
            }
            index.lengths.push(length);
        }
        let count = index.lengths.len().max(1);
        index.average = (index.lengths.iter().sum::<f64>() / count as f64).max(1.0);
        index
    }

    /// The best documents, best first; of equals the earlier one. None that shares no word.
    pub(super) fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut scores = vec![0.0; self.lengths.len()];
        let mut asked: Vec<String> = Vec::new();
        for word in words(query).take(QUERY_WORDS_MAX) {
            if !asked.contains(&word) {
                asked.push(word);
            }
        }
        for word in &asked {
            // Of a word and those that mean the same, the best counts, so that a name with three of them gains nothing.
            let mut best: HashMap<usize, f64> = HashMap::new();
            self.score(word, 1.0, &mut best);
            for synonym in same_meaning(word).filter(|synonym| !asked.contains(synonym)) {
                self.score(&synonym, SYNONYM_WEIGHT, &mut best);
            }
            for (number, score) in best {
                scores[number] += score;
            }
        }
        let mut found: Vec<usize> = (0..scores.len()).filter(|number| scores[*number] > 0.0).collect();
        found.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then_with(|| a.cmp(b)));
        found.truncate(limit);
        found
    }

    fn score(&self, word: &str, weight: f64, best: &mut HashMap<usize, f64>) {
        let Some(postings) = self.postings.get(word) else { return };
        let (all, with) = (self.lengths.len() as f64, postings.len() as f64);
        let rarity = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        for (number, count) in postings {
            let length = 1.0 - LENGTH_SHARE + LENGTH_SHARE * self.lengths[*number] / self.average;
            let score = weight * rarity * count * (SATURATION + 1.0) / (count + SATURATION * length);
            let kept = best.entry(*number).or_default();
            *kept = kept.max(score);
        }
    }
}

fn same_meaning(word: &str) -> impl Iterator<Item = String> + use<> {
    let word = word.to_owned();
    let groups = SYNONYMS.iter().filter({
        let word = word.clone();
        move |group| group.iter().any(|other| stem(other) == word)
    });
    groups.flat_map(|group| group.iter().map(|other| stem(other))).filter(move |other| *other != word)
}

/// The words of a text, in lower case and without endings.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(parts)
        .map(|word| word.to_lowercase())
        .filter(|word| !EMPTY_WORDS.contains(&word.as_str()))
        .map(|word| stem(&word))
}

/// The parts of a word in camel case, and the word itself: `createPR2` is `create`, `PR2` and `createPR2`, and `GitHub`
/// is `github` to whoever writes it so.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let characters: Vec<(usize, char)> = word.char_indices().collect();
    for (index, (at, character)) in characters.iter().enumerate().skip(1) {
        let before = characters[index - 1].1;
        let after = characters.get(index + 1).map(|(_, next)| *next);
        let is_hump = character.is_uppercase()
            && (before.is_lowercase() || (before.is_uppercase() && after.is_some_and(char::is_lowercase)));
        if is_hump {
            parts.push(&word[start..*at]);
            start = *at;
        }
    }
    if start > 0 {
        parts.push(&word[start..]);
    }
    parts.push(word);
    parts
}

/// A word without the commonest English endings, so that `issues`, `creating` and `created` meet `issue` and `create`.
fn stem(word: &str) -> String {
    if word.len() < 4 || !word.is_ascii() {
        return word.to_owned();
    }
    let mut stem = word.to_owned();
    let ending = [("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")];
    if let Some((end, new)) = ending.iter().find(|(end, _)| stem.ends_with(end)) {
        stem.truncate(stem.len() - end.len());
        stem.push_str(new);
    } else if stem.ends_with('s') && !stem.ends_with("ss") && !stem.ends_with("us") {
        stem.pop();
    }
    for end in ["ing", "ed"] {
        let rest = stem.len().saturating_sub(end.len());
        if stem.ends_with(end) && rest >= 3 && stem[..rest].contains(['a', 'e', 'i', 'o', 'u', 'y']) {
            stem.truncate(rest);
            let bytes = stem.as_bytes();
            let last = bytes.len() - 1;
            if bytes[last] == bytes[last - 1] && !b"lsz".contains(&bytes[last]) {
                stem.pop();
            }
            break;
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_meet_in_their_forms() {
        let same = [
            ("issues", "issue"),
            ("creating", "create"),
            ("created", "creates"),
            ("repositories", "repository"),
            ("running", "run"),
            ("branches", "branch"),
            ("boxes", "box"),
            ("listPullRequests", "list pull requests listpullrequests"),
            ("HTTPServer2", "http server2 httpserver2"),
            ("read_text-file", "Read the text file!"),
        ];
        for (a, b) in same {
            assert_eq!(words(a).collect::<Vec<_>>(), words(b).collect::<Vec<_>>(), "{a} {b}");
        }
        for (a, b) in [("status", "statu"), ("process", "proces"), ("ring", "r"), ("bed", "b")] {
            assert_ne!(stem(a), b);
        }
    }

    #[test]
    fn the_better_match_comes_first_and_equals_keep_their_order() {
        let named = |name: &str, text: &str| Document { name: name.into(), text: text.into(), ..Document::default() };
        let index = Index::new(&[
            named("list_files", "Lists files"),
            named("mail_send", "Sends a mail. Files can be attached"),
            named("read_file", "Reads one file"),
            named("copy_a", "Copies"),
            named("copy_b", "Copies"),
        ]);
        assert_eq!(index.search("read a file", 5)[0], 2);
        assert_eq!(index.search("send email", 5)[0], 1);
        assert_eq!(index.search("copy", 5), [3, 4]);
        assert_eq!(index.search("copy", 1), [3]);
        assert_eq!(index.search("", 5), Vec::<usize>::new());
        assert_eq!(index.search("the of", 5), Vec::<usize>::new());
        assert_eq!(Index::new(&[]).search("x", 5), Vec::<usize>::new());
        assert_eq!(index.search(&"file ".repeat(100_000), 5).len(), 3, "a huge query is cut");
    }
}
