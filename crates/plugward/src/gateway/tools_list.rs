//! `tools/list`: every callable tool, as its plugin described it, under the exposed name.
//!
//! Owns the cutting into pages, the cursors between them, and the few lists that walks may still be in. The order is the host's: plugins as they were installed,
//! tools as their plugin lists them, whatever started first (case B053). Refuses to reword or sort anything.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use plugward_host::Host;
use plugward_protocol::mcp::codes;
use plugward_protocol::{DEFAULT_MAX_MESSAGE_BYTES, RpcError};
use serde_json::value::RawValue;

use super::view::View;

/// Longest page, in bytes of its tools. With its envelope a page then stays below the message limit that we ourselves
/// put on peers; a single longer tool gets a page of its own.
const MAX_PAGE_BYTES: usize = DEFAULT_MAX_MESSAGE_BYTES - 4096;

/// Lists kept for walks that are under way. A walk takes a few round trips; one that outlives so many changes begins
/// again.
const MAX_KEPT_LISTS: usize = 4;

/// The lists of one server, shared by all its clients.
#[derive(Debug)]
pub(super) struct Lists {
    view: Arc<View>,
    hashing: RandomState,
    /// Newest last; no two with the same fingerprint.
    kept: Mutex<VecDeque<Arc<Listing>>>,
}

impl Lists {
    pub(super) fn new(view: Arc<View>) -> Self {
        Self { view, hashing: RandomState::default(), kept: Mutex::default() }
    }

    /// The tools as they are now.
    pub(super) fn current(&self, host: &Host) -> Arc<Listing> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = kept.back().filter(|newest| newest.is_current(host)) {
            return Arc::clone(newest);
        }
        let listing = Arc::new(Listing::of(host, &self.view, &self.hashing));
        kept.retain(|older| older.fingerprint != listing.fingerprint);
        if kept.len() == MAX_KEPT_LISTS {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&listing));
        listing
    }

    /// The page that a cursor names, of any list that is still kept.
    ///
    /// # Errors
    /// -32602 when there is none.
    pub(super) fn page(&self, cursor: &str) -> Result<Box<RawValue>, RpcError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find_map(|listing| listing.page(cursor).ok()).ok_or_else(unknown_cursor)
    }
}

/// What a list looked like, for comparing. Equal lists have equal fingerprints; it means nothing outside its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(pub(super) u64);

impl Fingerprint {
    /// The fingerprint of no list that was ever made.
    pub(super) const UNKNOWN: Fingerprint = Fingerprint(0);
}

/// The tools of one moment, in pages. Kept while a client walks through them, so that a change in between neither
/// repeats nor skips a tool.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) fingerprint: Fingerprint,
    /// Version of the tool set before the definitions were read.
    version: u64,
    /// Results of `tools/list`; at least one.
    pages: Vec<Box<RawValue>>,
}

impl Listing {
    fn of(host: &Host, view: &View, hashing: &RandomState) -> Self {
        let version = *host.tools_version().borrow();
        Self::cut(&view.definitions(host), version, MAX_PAGE_BYTES, hashing)
    }

    fn cut(tools: &[Box<RawValue>], version: u64, page_bytes: usize, hashing: &RandomState) -> Self {
        let fingerprint = fingerprint(tools, hashing);
        let mut pages = Vec::new();
        let mut page = String::new();
        for tool in tools {
            let tool = tool.get();
            if !page.is_empty() {
                if page.len() + 1 + tool.len() > page_bytes {
                    let next = cursor(fingerprint, pages.len() + 1);
                    pages.push(result(&page, Some(&next)));
                    page.clear();
                } else {
                    page.push(',');
                }
            }
            page.push_str(tool);
        }
        pages.push(result(&page, None));
        Self { fingerprint, version, pages }
    }

    /// Whether no tool has changed since.
    pub(super) fn is_current(&self, host: &Host) -> bool {
        *host.tools_version().borrow() == self.version
    }

    /// Where every walk begins.
    pub(super) fn first_page(&self) -> Box<RawValue> {
        self.pages.first().cloned().unwrap_or_else(|| result("", None))
    }

    /// The page that a cursor names.
    ///
    /// # Errors
    /// -32602 when the cursor is not one of this listing: invented, or of tools as they were at another time.
    fn page(&self, cursor: &str) -> Result<Box<RawValue>, RpcError> {
        self.index(cursor).and_then(|index| self.pages.get(index)).cloned().ok_or_else(unknown_cursor)
    }

    fn index(&self, text: &str) -> Option<usize> {
        let index = text.rsplit('-').next()?.parse().ok()?;
        // Rebuilt and compared whole: one page has one cursor.
        (index > 0 && cursor(self.fingerprint, index) == text).then_some(index)
    }
}

/// The answer to a cursor that names no page.
fn unknown_cursor() -> RpcError {
    RpcError::new(codes::INVALID_PARAMS, "`cursor` is not one of the current list: list again without a cursor")
}

fn fingerprint(tools: &[Box<RawValue>], hashing: &RandomState) -> Fingerprint {
    let mut hasher = hashing.build_hasher();
    for tool in tools {
        hasher.write(tool.get().as_bytes());
        // No definition holds this byte, so lists that differ only in where one ends differ here.
        hasher.write_u8(0);
    }
    Fingerprint(hasher.finish().max(1))
}

fn cursor(fingerprint: Fingerprint, index: usize) -> String {
    format!("{:016x}-{index}", fingerprint.0)
}

fn result(tools: &str, next_cursor: Option<&str>) -> Box<RawValue> {
    let next = next_cursor.map_or_else(String::new, |cursor| format!(",\"nextCursor\":\"{cursor}\""));
    // Composed of definitions that are JSON and a cursor of hexadecimal digits.
    RawValue::from_string(format!("{{\"tools\":[{tools}]{next}}}")).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use plugward_protocol::mcp::ListToolsPage;

    use super::*;

    fn tools(names: &[&str]) -> Vec<Box<RawValue>> {
        let definition = |name: &&str| RawValue::from_string(format!(r#"{{"name":"{name}"}}"#)).unwrap();
        names.iter().map(definition).collect()
    }

    /// Walks through a listing as a client does.
    fn walk(listing: &Listing) -> Vec<Vec<String>> {
        let mut result = listing.first_page();
        let mut pages = Vec::new();
        loop {
            let page = ListToolsPage::parse(&result).unwrap();
            pages.push(page.tools.iter().map(|tool| tool.get().to_owned()).collect());
            assert!(pages.len() < 100, "the list does not end");
            match page.next_cursor {
                Some(next) => result = listing.page(&next).unwrap(),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_hold_every_tool_once_and_in_order() {
        let hashing = RandomState::new();
        let all = tools(&["a", "b", "c", "d", "e"]);
        let whole: Vec<String> = all.iter().map(|tool| tool.get().to_owned()).collect();
        for page_bytes in [1, 12, 13, 25, 26, 1000] {
            let listing = Listing::cut(&all, 1, page_bytes, &hashing);
            let pages = walk(&listing);
            assert_eq!(pages.concat(), whole, "{page_bytes}");
            assert!(pages.iter().all(|page| !page.is_empty()), "{page_bytes}");
        }
        assert_eq!(Listing::cut(&all, 1, 25, &hashing).pages.len(), 3);
        assert_eq!(walk(&Listing::cut(&[], 1, 25, &hashing)), [Vec::<String>::new()]);
    }

    #[test]
    fn a_cursor_belongs_to_one_list() {
        // A client that guesses or keeps cursors gets an error, never other tools than it thinks.
        let hashing = RandomState::new();
        let listing = Listing::cut(&tools(&["a", "b", "c"]), 1, 1, &hashing);
        let other = Listing::cut(&tools(&["a", "b", "x"]), 2, 1, &hashing);
        let good = cursor(listing.fingerprint, 2);
        assert!(listing.page(&good).is_ok());
        let padded = good.replace("-2", "-02");
        let beyond = cursor(listing.fingerprint, 3);
        let zero = cursor(listing.fingerprint, 0);
        for bad in ["", "2", "-1", "x-1", &padded, &beyond, &zero, &good.to_uppercase(), &"9".repeat(4000)] {
            if bad != good {
                assert_eq!(listing.page(bad).unwrap_err().code, codes::INVALID_PARAMS, "{bad}");
            }
        }
        assert_eq!(other.page(&good).unwrap_err().code, codes::INVALID_PARAMS);
    }

    #[test]
    fn fingerprints_tell_lists_apart() {
        let hashing = RandomState::new();
        let of = |names: &[&str]| fingerprint(&tools(names), &hashing);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&[]), of(&["a"]));
        assert_ne!(of(&[]), Fingerprint::UNKNOWN);
    }
}
