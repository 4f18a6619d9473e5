//! From a manifest's command to the one file that would be run, and that file's digest.
//!
//! A bare name is looked for in the absolute folders of `PATH`, never in the working folder. A command with a folder
//! part has to lie inside the package after every link is followed (requirement 33). No shell, no words: a command is
//! one program. Refuses to run or to read more of the file than its bytes for the digest.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plugward_policy::Digest;
use rustix::fs::{Access, Mode, OFlags};

use super::program_digest::{MAX_EXECUTABLE_BYTES, digest_of_program};
use super::shown;

/// The program a command means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedExecutable {
    /// The path to execute, absolute, under the name it was found by: programs such as Python's virtual
    /// environments and busybox look at their own name.
    pub(crate) path: PathBuf,
    /// The regular file at the end of all links; this is what the digest is of.
    pub(crate) file: PathBuf,
    /// Digest of the file's bytes.
    pub(crate) digest: Digest,
}

/// A command that cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The command has no characters, or is only dots.
    #[error("command `{}` names no program", shown(command))]
    NoProgram {
        /// The command.
        command: String,
    },
    /// No folder of `PATH` has the command.
    #[error("command `{}` was not found in PATH `{}`{}", shown(command), shown(path_var), hint_text(*hint))]
    NotInPath {
        /// The command.
        command: String,
        /// The PATH that was searched.
        path_var: String,
        /// What probably went wrong.
        hint: Option<&'static str>,
    },
    /// The file a command with a folder part names is not there.
    #[error("command `{}` does not exist, looked for `{}`{}", shown(command), shown(path), hint_text(*hint))]
    NotInPackage {
        /// The command.
        command: String,
        /// Where it should be.
        path: PathBuf,
        /// What probably went wrong.
        hint: Option<&'static str>,
    },
    /// The command lies outside the package.
    #[error("command `{}` lies outside the package, at `{}`{}", shown(command), shown(path), bare_name_text(path))]
    OutsidePackage {
        /// The command.
        command: String,
        /// Where it lies.
        path: PathBuf,
    },
    /// A link of the package leads the command outside.
    #[error(
        "command `{}` leads out of the package through a link, to `{}`{}",
        shown(command),
        shown(path),
        bare_name_text(path)
    )]
    LinkOutside {
        /// The command.
        command: String,
        /// Where the link ends.
        path: PathBuf,
    },
    /// A folder or a special file.
    #[error("command `{}` is no program, `{}` is not a regular file", shown(command), shown(path))]
    NotAFile {
        /// The command.
        command: String,
        /// What was found.
        path: PathBuf,
    },
    /// The file may not be executed.
    #[error("command `{}` is not executable, `{}` lacks the permission", shown(command), shown(path))]
    NotExecutable {
        /// The command.
        command: String,
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than what is hashed.
    #[error("command `{}` is larger than {limit_bytes} bytes", shown(command))]
    TooLarge {
        /// The command.
        command: String,
        /// The bound that was passed.
        limit_bytes: u64,
    },
    /// The operating system refused to look.
    #[error("command `{}` cannot be read at `{}`: {source}", shown(command), shown(path))]
    Os {
        /// The command.
        command: String,
        /// The path that was tried.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Where a command is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandPlace<'a> {
    /// The package folder; a command with a folder part has to end inside it.
    pub(crate) package_dir: &'a Path,
    /// What a relative command with a folder part is relative to: the working folder of the plugin.
    pub(crate) base_dir: &'a Path,
    /// The `PATH` a bare name is looked for in.
    pub(crate) path_var: &'a OsStr,
}

/// Finds the program `command` means and hashes it. Reads only; blocks on the file system.
///
/// # Errors
/// [`ResolveError`] with the command and the place that was searched (requirement 33).
pub(crate) fn resolve_command(command: &str, place: CommandPlace<'_>) -> Result<ResolvedExecutable, ResolveError> {
    if command.is_empty() || command == "." || command == ".." || command.contains('\0') {
        return Err(ResolveError::NoProgram { command: command.to_owned() });
    }
    if command.contains('/') { resolve_inside(command, place) } else { resolve_by_name(command, place.path_var) }
}

fn resolve_inside(command: &str, place: CommandPlace<'_>) -> Result<ResolvedExecutable, ResolveError> {
    let os = |path: &Path, source| ResolveError::Os { command: command.to_owned(), path: path.to_owned(), source };
    let package = place.package_dir.canonicalize().map_err(|error| os(place.package_dir, error))?;
    let base = place.base_dir.canonicalize().map_err(|error| os(place.base_dir, error))?;
    // The exec path keeps the names of the package: only the folder above is made canonical.
    let named = lexical(&base.join(command));
    let named = match named.strip_prefix(place.package_dir) {
        Ok(inside) => package.join(inside),
        Err(_) => named,
    };
    if !named.starts_with(&package) {
        return Err(ResolveError::OutsidePackage { command: command.to_owned(), path: named });
    }
    let file = named.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ResolveError::NotInPackage { command: command.to_owned(), path: named.clone(), hint: words_hint(command) }
        }
        _ => os(&named, error),
    })?;
    if !file.starts_with(&package) {
        return Err(ResolveError::LinkOutside { command: command.to_owned(), path: file });
    }
    finish(command, named, file)
}

fn resolve_by_name(command: &str, path_var: &OsStr) -> Result<ResolvedExecutable, ResolveError> {
    let mut unusable = None;
    for folder in search_folders(path_var) {
        let candidate = folder.join(command);
        let Ok(found) = fs::metadata(&candidate) else { continue };
        if !found.is_file() {
            continue;
        }
        if rustix::fs::access(&candidate, Access::EXEC_OK).is_err() {
            unusable.get_or_insert(candidate);
            continue;
        }
        let file = candidate.canonicalize().map_err(|source| ResolveError::Os {
            command: command.to_owned(),
            path: candidate.clone(),
            source,
        })?;
        return finish(command, candidate, file);
    }
    Err(match unusable {
        Some(path) => ResolveError::NotExecutable { command: command.to_owned(), path },
        None => ResolveError::NotInPath {
            command: command.to_owned(),
            path_var: path_var.to_string_lossy().into_owned(),
            hint: words_hint(command),
        },
    })
}

/// The folders of a `PATH` that count. An empty or relative entry would mean the working folder, which is the
/// package: it could then put its own `node` before the real one.
pub(super) fn search_folders(path_var: &OsStr) -> impl Iterator<Item = &Path> {
    path_var
        .as_bytes()
        .split(|&b| b == b':')
        .map(|entry| Path::new(OsStr::from_bytes(entry)))
        .filter(|entry| entry.is_absolute())
}

/// `path` without `.` and `..`, by its text alone.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn finish(command: &str, path: PathBuf, file: PathBuf) -> Result<ResolvedExecutable, ResolveError> {
    let os = |source: io::Error| ResolveError::Os { command: command.to_owned(), path: file.clone(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let found = fs::metadata(&file).map_err(os)?;
    if !found.is_file() {
        return Err(ResolveError::NotAFile { command: command.to_owned(), path });
    }
    if rustix::fs::access(&file, Access::EXEC_OK).is_err() {
        return Err(ResolveError::NotExecutable { command: command.to_owned(), path: file });
    }
    let opened = rustix::fs::open(&file, flags, Mode::empty()).map_err(|errno| os(errno.into()))?;
    let digest = match digest_of_program(File::from(opened)).map_err(os)? {
        Some(digest) => digest,
        None => {
            return Err(ResolveError::TooLarge { command: command.to_owned(), limit_bytes: MAX_EXECUTABLE_BYTES });
        }
    };
    Ok(ResolvedExecutable { path, file, digest })
}

/// A command with blanks or shell signs that is no file is nearly always a command line in the wrong key.
fn words_hint(command: &str) -> Option<&'static str> {
    let is_line = command.contains(|c: char| c.is_whitespace() || "&|;<>$`\"'".contains(c));
    is_line.then_some("command is one program; put its arguments into `args`")
}

fn hint_text(hint: Option<&str>) -> String {
    hint.map(|hint| format!(" ({hint})")).unwrap_or_default()
}

/// The way out for `/usr/bin/python3`: its bare name goes through `PATH`.
fn bare_name_text(path: &Path) -> String {
    match path.file_name() {
        Some(name) => format!(" (a program of this machine is named without its folder: `{}`)", shown(name)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Place {
        _dir: tempfile::TempDir,
        package: PathBuf,
        bin: PathBuf,
    }

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (package, bin) = (root.join("package"), root.join("bin"));
        fs::create_dir_all(package.join("sub")).unwrap();
        program(&bin.join("tool"), 0o755);
        program(&package.join("sub/server"), 0o755);
        Place { _dir: dir, package, bin }
    }

    impl Place {
        fn resolve(&self, command: &str) -> Result<ResolvedExecutable, ResolveError> {
            self.resolve_in(command, &self.package, self.bin.as_os_str())
        }

        fn resolve_in(&self, command: &str, base: &Path, path: &OsStr) -> Result<ResolvedExecutable, ResolveError> {
            resolve_command(command, CommandPlace { package_dir: &self.package, base_dir: base, path_var: path })
        }

        fn refusal(&self, command: &str) -> String {
            self.resolve(command).unwrap_err().to_string()
        }
    }

    // Requirement 32.
    #[test]
    fn a_bare_name_is_found_through_path() {
        let place = place();
        let found = place.resolve("tool").unwrap();
        assert_eq!(found.path, place.bin.join("tool"));
        assert_eq!(found.digest, Digest::of(b"#!/bin/sh\n"));
    }

    #[test]
    fn the_found_name_is_kept_and_the_file_at_the_end_of_the_links_is_hashed() {
        let place = place();
        symlink("tool", place.bin.join("tool3")).unwrap();
        symlink("tool3", place.bin.join("t")).unwrap();
        let found = place.resolve("t").unwrap();
        assert_eq!(found.path, place.bin.join("t"));
        assert_eq!(found.file, place.bin.join("tool"));
    }

    // Requirement 33: a package must not pick a program of the machine that its author chose by path.
    #[test]
    fn a_command_with_a_folder_part_stays_inside_the_package() {
        let place = place();
        assert_eq!(place.resolve("sub/server").unwrap().path, place.package.join("sub/server"));
        assert_eq!(place.resolve("./sub/../sub/server").unwrap().path, place.package.join("sub/server"));
        let absolute = place.package.join("sub/server");
        assert_eq!(place.resolve(absolute.to_str().unwrap()).unwrap().path, absolute);
        symlink("sub/server", place.package.join("inner")).unwrap();
        assert_eq!(place.resolve("./inner").unwrap().file, absolute);

        let outside = place.bin.join("tool");
        assert!(outside.exists(), "positive control: there is something to run");
        let text = place.refusal("../bin/tool");
        assert!(text.contains("lies outside the package"), "{text}");
        let text = place.refusal(outside.to_str().unwrap());
        assert!(text.contains("lies outside") && text.contains("named without its folder: `tool`"), "{text}");
        symlink(&outside, place.package.join("python")).unwrap();
        let text = place.refusal("./python");
        assert!(text.contains("leads out of the package through a link"), "{text}");
        symlink(&place.bin, place.package.join("linked")).unwrap();
        assert!(place.refusal("linked/tool").contains("leads out of the package through a link"));
        // A folder whose name merely begins like the package's.
        program(&place.package.with_file_name("package-evil").join("x"), 0o755);
        assert!(place.refusal("../package-evil/x").contains("lies outside the package"));
    }

    #[test]
    fn a_package_reached_through_a_link_is_the_same_package() {
        let place = place();
        let link = place.bin.join("link");
        symlink(&place.package, &link).unwrap();
        let command = link.join("sub/server");
        let found = resolve_command(
            command.to_str().unwrap(),
            CommandPlace { package_dir: &link, base_dir: &link, path_var: OsStr::new("") },
        );
        assert_eq!(found.unwrap().path, place.package.join("sub/server"));
    }

    // Case B035: relative commands belong to the working folder.
    #[test]
    fn a_relative_command_is_relative_to_the_working_folder() {
        let place = place();
        let found = place.resolve_in("./server", &place.package.join("sub"), OsStr::new(""));
        assert_eq!(found.unwrap().path, place.package.join("sub/server"));
    }

    // Case B002.
    #[test]
    fn a_missing_command_is_named_with_the_path_that_was_searched() {
        let place = place();
        let text = place.refusal("no-such-cmd-demo");
        assert_eq!(text, format!("command `no-such-cmd-demo` was not found in PATH `{}`", place.bin.display()));
        let text = place.refusal("sub/gone");
        assert!(text.contains("`sub/gone` does not exist, looked for"), "{text}");
    }

    // Case B071.
    #[test]
    fn a_command_line_in_place_of_a_program_gets_a_hint() {
        let place = place();
        for line in ["tool --flag", "tool && tool", "sub/server --flag", "tool;id"] {
            let text = place.refusal(line);
            assert!(text.ends_with("(command is one program; put its arguments into `args`)"), "{text}");
        }
        program(&place.bin.join("my tool"), 0o755);
        assert!(place.resolve("my tool").is_ok(), "a blank in a real name is no fault");
    }

    // N8: with `.` or an empty entry in PATH the package could bring its own `node`.
    #[test]
    fn relative_path_entries_are_never_searched() {
        let place = place();
        program(&place.package.join("node"), 0o755);
        let path = OsStr::new(":.:./sub::sub");
        let text = place.resolve_in("node", &place.package, path).unwrap_err().to_string();
        assert!(text.contains("was not found in PATH"), "{text}");
    }

    #[test]
    fn files_without_permission_are_passed_over_and_named_when_nothing_else_is_there() {
        let place = place();
        program(&place.bin.join("plain"), 0o644);
        program(&place.package.join("plain"), 0o644);
        assert!(place.refusal("plain").contains("is not executable"));
        assert!(place.refusal("./plain").contains("is not executable"));
        let second = place.bin.with_file_name("bin2");
        program(&second.join("plain"), 0o755);
        let path = std::env::join_paths([&place.bin, &second]).unwrap();
        assert_eq!(place.resolve_in("plain", &place.package, &path).unwrap().path, second.join("plain"));
    }

    #[test]
    fn folders_pipes_loops_and_dots_are_no_programs() {
        let place = place();
        assert!(place.refusal("./sub").contains("is not a regular file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, place.package.join("pipe"), Mode::from_raw_mode(0o777)).unwrap();
        assert!(place.refusal("./pipe").contains("is not a regular file"));
        symlink("loop", place.package.join("loop")).unwrap();
        assert!(place.refusal("./loop").contains("cannot be read"));
        for command in ["", ".", "..", "a\0b"] {
            assert!(place.refusal(command).contains("names no program"), "{command:?}");
        }
    }

    // A program replaced after its approval must not be taken for the old one, even with its old times.
    #[test]
    fn a_replaced_program_has_a_new_digest() {
        let place = place();
        let path = place.bin.join("tool");
        let settled = File::options().write(true).open(&path).unwrap();
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::futimens(&settled, &times).unwrap();
        let first = place.resolve("tool").unwrap().digest;
        fs::write(&path, "#!/bin/SH\n").unwrap();
        rustix::fs::futimens(&settled, &times).unwrap();
        let second = place.resolve("tool").unwrap().digest;
        assert_ne!(first, second);
        assert_eq!(second, Digest::of(b"#!/bin/SH\n"));
    }
}
