//! From a path a person typed to a package: which folder, which manifest, and the manifest's text.
//!
//! Refuses to follow a manifest that is a link: the text that is reviewed has to be the package's own.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::error::PackageError;

/// Names a package's manifest may have, in the order they are looked for.
pub(crate) const MANIFEST_NAMES: [&str; 3] = ["plugin.yaml", "plugin.yml", "plugin.json"];

/// Largest manifest that is read, in bytes: what the parser takes.
pub(crate) const MAX_MANIFEST_BYTES: u64 = plugward_policy::MANIFEST_BYTES_MAX as u64;

/// A package as it lies on disk, before anything of it was copied or run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageSource {
    /// The package folder: absolute, without links.
    pub(crate) dir: PathBuf,
    /// The manifest, directly inside `dir`.
    pub(crate) manifest_path: PathBuf,
}

/// Finds the package a path means: a folder with one of [`MANIFEST_NAMES`], or a manifest file, whose folder then is
/// the package. Reads names only.
///
/// # Errors
/// [`PackageError`] naming the path and what was looked for.
pub(crate) fn locate(path: &Path) -> Result<PackageSource, PackageError> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => PackageError::NotFound { path: path.to_owned() },
        _ => PackageError::os(path, "read", error),
    })?;
    let source = if found.is_dir() { locate_in_folder(path)? } else { locate_file(path)? };
    if source.dir.parent().is_none() {
        return Err(PackageError::RootFolder { path: path.to_owned() });
    }
    Ok(source)
}

fn locate_in_folder(path: &Path) -> Result<PackageSource, PackageError> {
    let dir = path.canonicalize().map_err(|error| PackageError::os(path, "read", error))?;
    for name in MANIFEST_NAMES {
        let manifest_path = dir.join(name);
        match fs::symlink_metadata(&manifest_path) {
            Ok(found) => {
                require_regular(&manifest_path, found.file_type())?;
                return Ok(PackageSource { dir, manifest_path });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(PackageError::os(&manifest_path, "read", error)),
        }
    }
    let looked_for = format!("{}, {} and {}", MANIFEST_NAMES[0], MANIFEST_NAMES[1], MANIFEST_NAMES[2]);
    Err(PackageError::NoManifest { path: path.to_owned(), looked_for })
}

fn locate_file(path: &Path) -> Result<PackageSource, PackageError> {
    let is_manifest_name = path
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension));
    let Some(name) = path.file_name().filter(|_| is_manifest_name) else {
        return Err(PackageError::NotAManifest { path: path.to_owned() });
    };
    let found = fs::symlink_metadata(path).map_err(|error| PackageError::os(path, "read", error))?;
    require_regular(path, found.file_type())?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let dir = folder.canonicalize().map_err(|error| PackageError::os(folder, "read", error))?;
    Ok(PackageSource { manifest_path: dir.join(name), dir })
}

/// Reads the manifest's text: at most [`MAX_MANIFEST_BYTES`], UTF-8, never through a link.
///
/// # Errors
/// [`PackageError`] for a manifest that is a link or special, too large, not text, or unreadable.
pub(crate) fn read_manifest(manifest_path: &Path) -> Result<String, PackageError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(manifest_path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::NOENT => PackageError::NotFound { path: manifest_path.to_owned() },
        rustix::io::Errno::LOOP => PackageError::ManifestNotRegular { path: manifest_path.to_owned(), found: "a link" },
        other => PackageError::os(manifest_path, "read", other),
    })?;
    let file = File::from(opened);
    let found = file.metadata().map_err(|error| PackageError::os(manifest_path, "read", error))?;
    require_regular(manifest_path, found.file_type())?;
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| PackageError::os(manifest_path, "read", error))?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(PackageError::ManifestTooLarge { path: manifest_path.to_owned(), limit_bytes: MAX_MANIFEST_BYTES });
    }
    String::from_utf8(bytes).map_err(|error| PackageError::ManifestNotText {
        path: manifest_path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

fn require_regular(path: &Path, kind: fs::FileType) -> Result<(), PackageError> {
    let found = if kind.is_file() {
        return Ok(());
    } else if kind.is_symlink() {
        "a link"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(PackageError::ManifestNotRegular { path: path.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder_with(name: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), "id: demo\n").unwrap();
        dir
    }

    #[test]
    fn a_folder_is_found_by_each_manifest_name() {
        for name in MANIFEST_NAMES {
            let dir = folder_with(name);
            let source = locate(dir.path()).unwrap();
            assert_eq!(source.dir, dir.path().canonicalize().unwrap());
            assert_eq!(source.manifest_path, source.dir.join(name));
            assert_eq!(read_manifest(&source.manifest_path).unwrap(), "id: demo\n");
        }
    }

    #[test]
    fn yaml_wins_over_json_so_that_the_choice_is_stable() {
        let dir = folder_with("plugin.json");
        fs::write(dir.path().join("plugin.yaml"), "id: other\n").unwrap();
        assert!(locate(dir.path()).unwrap().manifest_path.ends_with("plugin.yaml"));
    }

    #[test]
    fn a_manifest_file_means_its_folder_whatever_its_base_name() {
        let dir = folder_with("weather.yaml");
        let source = locate(&dir.path().join("weather.yaml")).unwrap();
        assert_eq!(source.dir, dir.path().canonicalize().unwrap());
        assert!(source.manifest_path.ends_with("weather.yaml"));
    }

    #[test]
    fn a_linked_folder_is_named_by_its_real_place() {
        let dir = folder_with("plugin.yaml");
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert_eq!(locate(&link).unwrap().dir, dir.path().canonicalize().unwrap());
    }

    #[test]
    fn errors_name_the_path_and_what_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        let text = locate(dir.path()).unwrap_err().to_string();
        assert_eq!(text, format!("`{shown}` holds no manifest, looked for plugin.yaml, plugin.yml and plugin.json"));
        let text = locate(&dir.path().join("gone")).unwrap_err().to_string();
        assert_eq!(text, format!("`{shown}/gone` does not exist"));
        fs::write(dir.path().join("x.txt"), "").unwrap();
        let text = locate(&dir.path().join("x.txt")).unwrap_err().to_string();
        assert!(text.contains("expected a folder or a file ending in .yaml, .yml or .json"), "{text}");
        let text = locate(&dir.path().join("x.txt/plugin.yaml")).unwrap_err().to_string();
        assert!(text.ends_with("does not exist"), "{text}");
    }

    #[test]
    fn a_manifest_that_is_a_link_is_refused_even_when_it_points_to_a_good_one() {
        let real = folder_with("plugin.yaml");
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("plugin.yaml");
        symlink(real.path().join("plugin.yaml"), &link).unwrap();
        for path in [dir.path(), link.as_path()] {
            let text = locate(path).unwrap_err().to_string();
            assert!(text.ends_with("is a link, it must be a regular file"), "{text}");
        }
        let text = read_manifest(&link).unwrap_err().to_string();
        assert!(text.contains("is a link"), "{text}");
    }

    #[test]
    fn a_pipe_in_place_of_the_manifest_is_refused_without_waiting_for_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("plugin.yaml");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(locate(dir.path()), Err(PackageError::ManifestNotRegular { found: "a pipe", .. })));
        assert!(matches!(read_manifest(&pipe), Err(PackageError::ManifestNotRegular { found: "a pipe", .. })));
    }

    #[test]
    fn a_manifest_is_bounded_and_text() {
        let dir = folder_with("plugin.yaml");
        let path = dir.path().join("plugin.yaml");
        fs::write(&path, vec![b'#'; MAX_MANIFEST_BYTES as usize]).unwrap();
        assert_eq!(read_manifest(&path).unwrap().len() as u64, MAX_MANIFEST_BYTES);
        fs::write(&path, vec![b'#'; MAX_MANIFEST_BYTES as usize + 1]).unwrap();
        let text = read_manifest(&path).unwrap_err().to_string();
        assert!(text.ends_with("is larger than 262144 bytes"), "{text}");
        fs::write(&path, b"id: \xff\n").unwrap();
        let text = read_manifest(&path).unwrap_err().to_string();
        assert!(text.contains("byte 4 is the first that does not fit"), "{text}");
    }

    #[test]
    fn the_root_of_the_file_system_is_no_package() {
        // A manifest in `/` would make a copy of the whole machine the package.
        let source = PackageSource { dir: "/".into(), manifest_path: "/plugin.yaml".into() };
        assert!(source.dir.parent().is_none());
        assert!(matches!(
            locate(Path::new("/")),
            Err(PackageError::NoManifest { .. } | PackageError::RootFolder { .. })
        ));
    }
}
