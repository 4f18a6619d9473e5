//! Owns the folders under `.xtask/`: published servers and clients, installed once from their registries and used
//! again while what pins them is unchanged. Refuses install scripts, unpinned versions and half-made folders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Job;
use crate::tools;

/// About a hundred packages over a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);
/// Making a repository with one commit is instant; the margin is for a cold disk.
const GIT_LIMIT: Duration = Duration::from_secs(60);
/// Written last into a finished folder's neighbour file; holds what the folder was made from.
const MARKER: &str = "made-from";

/// A folder with everything a published server or client needs to start.
pub(crate) struct Package {
    /// Where it is.
    pub(crate) dir: PathBuf,
}

impl Package {
    /// The package made from the files in `source`, at `.xtask/<place>`; `finish` adds what no registry has.
    pub(crate) fn prepare(
        root: &Path,
        source: &Path,
        place: &str,
        finish: impl Fn(&Path) -> Result<()>,
    ) -> Result<Self> {
        let dir = root.join(".xtask").join(place);
        let marker = dir.with_extension(MARKER);
        let inputs = read_inputs(source)?;
        let made_from = describe(&inputs);
        if dir.is_dir() && fs::read_to_string(&marker).is_ok_and(|text| text == made_from) {
            return Ok(Self { dir });
        }
        // The marker goes first: a folder without one is never used, whenever this is interrupted.
        remove_if_there(&marker)?;
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("`{}` cannot be removed", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("`{}` cannot be made", dir.display()))?;
        for (name, bytes) in &inputs {
            fs::write(dir.join(name), bytes)?;
        }
        println!("    installing {place}");
        install_node(&dir)?;
        install_python(&dir)?;
        finish(&dir)?;
        fs::write(&marker, made_from)?;
        Ok(Self { dir })
    }
}

/// Files of a source folder with their names, sorted.
fn read_inputs(source: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    let entries = fs::read_dir(source).with_context(|| format!("`{}` cannot be read", source.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            inputs.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
        }
    }
    inputs.sort();
    Ok(inputs)
}

fn describe(inputs: &[(String, Vec<u8>)]) -> String {
    inputs.iter().map(|(name, bytes)| format!("== {name}\n{}\n", String::from_utf8_lossy(bytes))).collect()
}

fn install_node(dir: &Path) -> Result<()> {
    if !dir.join("package-lock.json").is_file() {
        return Ok(());
    }
    // Not `npm ci`: it refuses a lock file without the optional packages of other systems that a registry lacks, while
    // `install` takes what the lock file pins and leaves those out.
    Job::new(tools::require("npm")?, "npm install", INSTALL_LIMIT)
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"])
        .dir(dir)
        .run()?
        .success()?;
    Ok(())
}

fn install_python(dir: &Path) -> Result<()> {
    if !dir.join("requirements.txt").is_file() {
        return Ok(());
    }
    Job::new(tools::require("python3")?, "pip install", INSTALL_LIMIT)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(["--target", "lib", "--requirement", "requirements.txt"])
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .dir(dir)
        .run()?
        .success()?;
    Ok(())
}

/// The fixture in one of its modes as a plugin folder, at `.xtask/servers/<place>`. It is made anew each time: what it holds was
/// built just now.
pub(crate) fn fixture(root: &Path, place: &str, id: &str, mode: &str, permissions: &str) -> Result<PathBuf> {
    let dir = root.join(".xtask/servers").join(place);
    fs::create_dir_all(&dir)?;
    let manifest = format!(
        "id: {id}\nname: Fixture\nversion: 1.0.0\npermissions: {permissions}\nbackend:\n  type: mcp\n  transport: stdio\n  \
         command: ./mcp-fixture\n  args: [{mode}]\n"
    );
    fs::write(dir.join("plugin.yaml"), manifest)?;
    let binary = tools::debug_binaries(root)?.join("mcp-fixture");
    let copy = dir.join("mcp-fixture");
    fs::copy(&binary, &copy).with_context(|| {
        format!(
            "`{}` is not built; run `cargo build --workspace --features mcp-fixture/misbehaviours`",
            binary.display()
        )
    })?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Makes `history.git` in `dir`: a bare repository with one commit on `main`.
pub(crate) fn make_repository(dir: &Path, message: &str) -> Result<()> {
    let tree = dir.join("tree");
    fs::create_dir_all(&tree)?;
    fs::write(tree.join("greeting.txt"), "hello from the first commit\n")?;
    let git = |from: &Path, arguments: &[&str]| -> Result<()> {
        Job::new(tools::require("git")?, "git", GIT_LIMIT)
            .args(["-c", "user.name=Plugward check", "-c", "user.email=check@plugward.test"])
            .args(arguments)
            .dir(from)
            .run()?
            .success()?;
        Ok(())
    };
    git(&tree, &["init", "--quiet", "--initial-branch=main"])?;
    git(&tree, &["add", "."])?;
    git(&tree, &["commit", "--quiet", "--message", message])?;
    git(dir, &["clone", "--quiet", "--bare", "tree", "history.git"])?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("`{}` cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_package_is_made_once_and_again_when_a_pin_or_an_interruption_asks_for_it() {
        let root = std::env::temp_dir().join(format!("plugward-packages-{}", std::process::id()));
        let source = root.join("source");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("plugin.yaml"), "version: 1").unwrap();
        let made = AtomicUsize::new(0);
        let prepare = || {
            let finish = |dir: &Path| {
                made.fetch_add(1, Ordering::Relaxed);
                fs::write(dir.join("data"), "x").context("data cannot be written")
            };
            Package::prepare(&root, &source, "servers/sample", finish).unwrap().dir
        };
        let dir = prepare();
        assert!(dir.join("plugin.yaml").is_file() && dir.join("data").is_file());
        prepare();
        assert_eq!(made.load(Ordering::Relaxed), 1, "used again");

        fs::write(source.join("plugin.yaml"), "version: 2").unwrap();
        fs::write(dir.join("stale"), "x").unwrap();
        prepare();
        assert_eq!(made.load(Ordering::Relaxed), 2, "a pin has changed");
        assert!(!dir.join("stale").exists());

        fs::remove_file(dir.with_extension(MARKER)).unwrap();
        prepare();
        assert_eq!(made.load(Ordering::Relaxed), 3, "the last time was interrupted");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_repository_has_its_commit() {
        let root = std::env::temp_dir().join(format!("plugward-repository-{}", std::process::id()));
        make_repository(&root, "Say hello").unwrap();
        let log = Job::new("git", "git log", GIT_LIMIT).args(["--git-dir", "history.git", "log", "main"]).dir(&root);
        assert!(log.run().unwrap().success().unwrap().stdout.contains("Say hello"));
        assert!(!root.join("tree").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
