//! This program, ready to be executed where none of its files exist.
//!
//! Owns finding what it consists of: its file, the loader and the libraries it has loaded. Refuses adding any of them to
//! the plugin's tree: they are reached through open descriptors.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// How loaders are called, by the C libraries there are.
const LOADER_NAMES: [&str; 2] = ["ld-", "ld.so"];

pub(super) struct OwnProgram {
    file: OwnedFd,
    /// Absent for a static program.
    loader: Option<OwnedFd>,
    libraries: Vec<OwnedFd>,
    arguments: Vec<OsString>,
}

impl OwnProgram {
    pub(super) fn open() -> io::Result<Self> {
        let itself = fs::read_link("/proc/self/exe")?;
        let mut loader = None;
        let mut libraries = Vec::new();
        for path in executable_files(&fs::read_to_string("/proc/self/maps")?) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path == itself {
                continue;
            } else if LOADER_NAMES.iter().any(|start| name.starts_with(start)) {
                loader = Some(open(&path)?);
            } else {
                libraries.push(open(&path)?);
            }
        }
        let arguments = std::env::args_os().skip(1).collect();
        Ok(Self { file: open(Path::new("/proc/self/exe"))?, loader, libraries, arguments })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        [&self.file].into_iter().chain(&self.loader).chain(&self.libraries).map(AsRawFd::as_raw_fd)
    }

    /// Its command line inside, where `/proc` shows the descriptors. The loader is told about every library, so it looks
    /// for none.
    pub(super) fn command(&self) -> Vec<OsString> {
        let through = |descriptor: &OwnedFd| format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let mut command: Vec<OsString> = Vec::new();
        if let Some(loader) = &self.loader {
            command.push(through(loader).into());
            if !self.libraries.is_empty() {
                let libraries: Vec<String> = self.libraries.iter().map(through).collect();
                command.extend(["--preload".into(), libraries.join(":").into()]);
            }
        }
        command.push(through(&self.file).into());
        command.extend(self.arguments.iter().cloned());
        command
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Files of a list of mappings that code is executed from, each once.
fn executable_files(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        // Addresses, rights, offset, device, inode, path; columns are filled with spaces.
        let Some(path) = line.find('/').map(|at| PathBuf::from(&line[at..])) else { continue };
        let is_executable = line.split_whitespace().nth(1).is_some_and(|rights| rights.contains('x'));
        if is_executable && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that is missed is one the second stage cannot start without.
    #[test]
    fn finds_what_is_executed_and_nothing_else() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 12                 /usr/bin/a b\n\
                    55d1-55d2 r-xp 00001000 fe:00 12                 /usr/bin/a b\n\
                    7f00-7f01 r-xp 00001000 fe:00 13                 /usr/lib/libc.so.6\n\
                    7f01-7f02 rw-p 00000000 00:00 0\n\
                    7f02-7f03 r-xp 00001000 fe:00 13                 /usr/lib/libc.so.6\n\
                    7f03-7f04 r--p 00001000 fe:00 14                 /usr/lib/locale/C.utf8\n\
                    7fff-7fff r-xp 00000000 00:00 0                  [vdso]\n";
        assert_eq!(executable_files(maps), [PathBuf::from("/usr/bin/a b"), "/usr/lib/libc.so.6".into()]);
    }
}
