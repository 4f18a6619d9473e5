//! The record of a trial, from the launcher to the host.
//!
//! Owns counting within bounds, and the bytes in the piece of memory that both sides hold. Refuses growing with what a
//! plugin does, and believing a record that is not complete: its last byte is written last.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::{Attempt, AttemptKind, Observations};

/// Most different attempts kept. What a plugin wants beyond its package is a handful of files; a search through the whole
/// machine is told by the number that was dropped.
const MAX_ATTEMPTS: usize = 2048;
/// Most bytes of all targets together, so that long paths do not add up.
const MAX_TARGET_BYTES: usize = 512 * 1024;
/// Largest record: the bounds above with their numbers.
const MAX_RECORD_BYTES: u64 = 1024 * 1024;
/// Last byte of a complete record.
const COMPLETE: u8 = b'.';

/// Kinds by their number in the record.
const KINDS: [AttemptKind; 5] =
    [AttemptKind::Look, AttemptKind::Read, AttemptKind::Write, AttemptKind::Execute, AttemptKind::Connect];

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The sandbox has it.
    Reached,
    /// The sandbox has it, and a person wants to know all the same.
    Used,
    /// It is on the machine, or beyond it, and not in the sandbox.
    Wanted,
    /// It is nowhere.
    Missing,
}

/// The launcher's side: what has been seen so far.
#[derive(Default)]
pub(in crate::linux) struct Pages {
    noted: BTreeMap<(AttemptKind, OsString), Tally>,
    target_bytes: usize,
    counts: Counts,
}

#[derive(Debug, Clone, Copy)]
struct Tally {
    count: u32,
    reached: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    reached: u64,
    missing: u64,
    unread: u64,
    dropped: u64,
}

impl Pages {
    /// Counts an attempt; asks for its fate if it is not noted already.
    pub(super) fn note(&mut self, kind: AttemptKind, target: &OsStr, fate: impl FnOnce(AttemptKind, &Path) -> Fate) {
        let key = (kind, target.to_owned());
        if let Some(tally) = self.noted.get_mut(&key) {
            tally.count = tally.count.saturating_add(1);
            return;
        }
        let fate = fate(kind, Path::new(target));
        match fate {
            Fate::Reached => self.counts.reached += 1,
            Fate::Missing => self.counts.missing += 1,
            Fate::Wanted | Fate::Used => {
                let bytes = self.target_bytes + target.len();
                if self.noted.len() < MAX_ATTEMPTS && bytes <= MAX_TARGET_BYTES {
                    self.target_bytes = bytes;
                    self.noted.insert(key, Tally { count: 1, reached: fate == Fate::Used });
                } else {
                    self.counts.dropped += 1;
                }
            }
        }
    }

    pub(super) fn unread(&mut self) {
        self.counts.unread += 1;
    }

    pub(super) fn write_to(&self, notebook: OwnedFd) -> io::Result<()> {
        let mut out = Vec::new();
        let Counts { reached, missing, unread, dropped } = self.counts;
        for count in [reached, missing, unread, dropped] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for ((kind, target), Tally { count, reached }) in &self.noted {
            let number = KINDS.iter().position(|known| known == kind).and_then(|it| u8::try_from(it).ok());
            out.push(number.unwrap_or(u8::MAX));
            out.push(u8::from(*reached));
            out.extend_from_slice(&count.to_le_bytes());
            // Within the bounds above.
            out.extend_from_slice(&u32::try_from(target.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(target.as_bytes());
        }
        out.push(COMPLETE);
        let mut file = File::from(notebook);
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&out)
    }
}

/// Where the launcher writes down what it saw. Read it once the plugin has ended.
#[derive(Debug)]
pub struct Notebook(File);

impl Notebook {
    pub(in crate::linux) fn new() -> io::Result<Self> {
        Ok(Self(File::from(memfd_create("plugward-trial", MemfdFlags::CLOEXEC)?)))
    }

    /// What was seen, from the start to the end of the plugin.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the launcher has not written it: the plugin still runs, or its launcher was
    /// lost.
    pub fn read(mut self) -> io::Result<Observations> {
        let mut bytes = Vec::new();
        self.0.seek(SeekFrom::Start(0))?;
        (&self.0).take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
        decode(&bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl AsFd for Notebook {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn decode(bytes: &[u8]) -> Option<Observations> {
    let (last, mut rest) = bytes.split_last()?;
    if *last != COMPLETE {
        return None;
    }
    let [reached, missing, unread, dropped] =
        [take_u64(&mut rest)?, take_u64(&mut rest)?, take_u64(&mut rest)?, take_u64(&mut rest)?];
    let mut attempts = Vec::new();
    while !rest.is_empty() {
        let [number, reached] = take::<2>(&mut rest)?;
        let kind = *KINDS.get(usize::from(number))?;
        let count = u32::from_le_bytes(take(&mut rest)?);
        let length = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
        let (target, others) = rest.split_at_checked(length)?;
        rest = others;
        attempts.push(Attempt { kind, target: OsString::from_vec(target.to_vec()), count, reached: reached != 0 });
    }
    Some(Observations { attempts, reached, missing, unread, dropped })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pages: &Pages) -> io::Result<Observations> {
        let notebook = Notebook::new().unwrap();
        pages.write_to(notebook.as_fd().try_clone_to_owned().unwrap()).unwrap();
        notebook.read()
    }

    #[test]
    fn what_was_noted_is_read() {
        let mut pages = Pages::default();
        for _ in 0..3 {
            pages.note(AttemptKind::Read, OsStr::new("/srv/a"), |_, _| Fate::Wanted);
        }
        pages.note(AttemptKind::Write, OsStr::from_bytes(b"/srv/\xff"), |_, _| Fate::Wanted);
        pages.note(AttemptKind::Look, OsStr::new("/usr"), |_, _| Fate::Reached);
        pages.note(AttemptKind::Look, OsStr::new("/none"), |_, _| Fate::Missing);
        pages.unread();
        let seen = written(&pages).unwrap();
        let attempt = |kind, target: &[u8], count| Attempt {
            kind,
            target: OsString::from_vec(target.to_vec()),
            count,
            reached: false,
        };
        let expected = [attempt(AttemptKind::Read, b"/srv/a", 3), attempt(AttemptKind::Write, b"/srv/\xff", 1)];
        assert_eq!(seen.attempts, expected);
        assert_eq!((seen.reached, seen.missing, seen.unread, seen.dropped), (1, 1, 1, 0));
    }

    /// A plugin that looks through the whole machine must not fill the launcher's memory, and must not hide that it did.
    #[test]
    fn the_record_is_bounded_and_says_so() {
        let mut pages = Pages::default();
        for number in 0..MAX_ATTEMPTS + 5 {
            pages.note(AttemptKind::Read, OsStr::new(&format!("/srv/{number}")), |_, _| Fate::Wanted);
        }
        let seen = written(&pages).unwrap();
        assert_eq!((seen.attempts.len(), seen.dropped), (MAX_ATTEMPTS, 5));
        let mut pages = Pages::default();
        let long = "x".repeat(4000);
        for number in 0..200 {
            pages.note(AttemptKind::Read, OsStr::new(&format!("/{number}/{long}")), |_, _| Fate::Wanted);
        }
        let seen = written(&pages).unwrap();
        assert!(seen.dropped > 0 && seen.attempts.len() as u64 + seen.dropped == 200);
    }

    /// A launcher that was lost has seen nothing that could be believed.
    #[test]
    fn an_incomplete_record_is_none() {
        assert_eq!(Notebook::new().unwrap().read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut pages = Pages::default();
        pages.note(AttemptKind::Read, OsStr::new("/srv/a"), |_, _| Fate::Wanted);
        let notebook = Notebook::new().unwrap();
        pages.write_to(notebook.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let mut whole = Vec::new();
        let mut file = notebook.0;
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut whole).unwrap();
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "cut at {length}");
        }
    }
}
