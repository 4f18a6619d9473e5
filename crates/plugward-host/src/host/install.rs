//! Installing and removing packages.
//!
//! Owns the package folders under the home. Install copies and reads; it runs nothing (requirement 35). Files come
//! first and the record last on the way in, the record first and the files last on the way out, and what a crash
//! leaves between is swept at the next start. Refuses to replace an installed plugin.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use plugward_policy::{
    Diagnostic, Manifest, ManifestError, ManifestErrorKind, ParsedManifest, PluginId, parse_manifest,
};
use plugward_store::PluginRow;

use super::kept::{Afterwards, Kept, kept_key};
use super::{HOMES_DIR, Host, INCOMING_DIR, Inner, PACKAGES_DIR, beside_tools_key, disabled_key, store_error};
use crate::call::epoch_us;
use crate::error::{ErrorCode, HostError};
use crate::events::HostEvent;
use crate::ids::random_hex;
use crate::package::{self, PackageLimits};
use crate::supervisor::Plugin;
use crate::supervisor::command::OUTPUTS_DIR;
use crate::supervisor::stop::{self, Ladder};
use crate::views::PluginView;

impl Host {
    /// Installs a folder or a manifest file; `id` overrides nothing, it must be the manifest's own if given.
    pub async fn install(&self, source: &Path, id: Option<&str>) -> Result<PluginView, HostError> {
        let inner = Arc::clone(&self.inner);
        let (source, id) = (source.to_owned(), id.map(str::to_owned));
        self.inner.operation(async move { inner.install(source, id).await }).await
    }

    /// Stops a plugin and forgets it: package, private home, approvals, grants. Traces stay.
    pub async fn remove(&self, id: &str) -> Result<(), HostError> {
        let inner = Arc::clone(&self.inner);
        let id = id.to_owned();
        self.inner.operation(async move { inner.remove(&id).await }).await
    }
}

impl Inner {
    async fn install(self: Arc<Self>, source: PathBuf, id: Option<String>) -> Result<PluginView, HostError> {
        let _roster = self.roster.lock().await;
        let given = source.display().to_string();
        let worker = Arc::clone(&self);
        let (row, parsed) = tokio::task::spawn_blocking(move || worker.unpack(&source, &given, id.as_deref()))
            .await
            .map_err(|_| HostError::internal("copying a package"))??;
        let record = row.clone();
        let project = self.project_folder();
        if let Err(error) = self.forget_kept(&row.id).await {
            remove_aside(self.package_dir(&row)).await;
            return Err(error);
        }
        let inserted = self
            .blocking(move |inner| {
                // First: without it a crash in between would leave a plugin whose project is another one.
                inner.path.store.set_setting(&super::trust::project_key(&record.id), project.as_deref())?;
                inner.path.store.insert_plugin(&record)
            })
            .await;
        if let Err(error) = inserted {
            remove_aside(self.package_dir(&row)).await;
            return Err(error);
        }
        tracing::info!(plugin = %parsed.manifest.id, version = %parsed.manifest.version, "installed");
        let plugin = self.adopt(row).await?;
        self.plugin_changed(&plugin);
        Ok(self.view(&plugin))
    }

    /// The folder this host works in, which is the project of commands that are installed now.
    pub(super) fn project_folder(&self) -> Option<String> {
        self.environment.get(package::PROJECT_SETTING).and_then(std::ffi::OsStr::to_str).map(str::to_owned)
    }

    /// Reads and copies a package; the folder is complete when this returns, and nothing refers to it yet.
    fn unpack(
        &self,
        source: &Path,
        given: &str,
        wanted: Option<&str>,
    ) -> Result<(PluginRow, ParsedManifest), HostError> {
        let found = package::locate(source).map_err(|error| package_error(&error))?;
        let text = package::read_manifest(&found.manifest_path).map_err(|error| package_error(&error))?;
        let file = found.manifest_path.display().to_string();
        let parsed = parse_manifest(&text, &file).map_err(|error| manifest_error(&error))?;
        let is_lone = lone_file(&found.manifest_path, &parsed);
        if !is_lone {
            self.refuse_own_home(&found.dir, given)?;
        }
        self.check_manifest(&parsed, wanted)?;
        let incoming = self.config.home.join(INCOMING_DIR);
        create_private_dir(&incoming)?;
        create_private_dir(&self.config.home.join(PACKAGES_DIR))?;
        let copy = incoming.join(random_hex::<8>());
        let facts = match is_lone {
            true => copy_lone_file(&found.manifest_path, &text, &copy),
            false => package::copy_package(&found.dir, &copy, &PackageLimits::default()),
        };
        let facts = facts.map_err(|error| {
            remove_tree(&copy);
            package_error(&error)
        })?;
        // The manifest that was read is the manifest that is kept: a file swapped in between would show here.
        let name = found.manifest_path.file_name().unwrap_or_default();
        let kept = package::read_manifest(&copy.join(name)).map_err(|error| package_error(&error));
        if kept.as_ref().ok() != Some(&text) {
            remove_tree(&copy);
            let message = format!("package `{given}` changed while it was being copied");
            return Err(HostError::new(ErrorCode::PluginPackageInvalid, message).with_hint("install it again"));
        }
        let id = &parsed.manifest.id;
        // One folder per id: the paths in a review are the same on every install.
        let package_dir = format!("{PACKAGES_DIR}/{id}");
        remove_tree(&self.config.home.join(&package_dir));
        std::fs::rename(&copy, self.config.home.join(&package_dir)).map_err(|error| {
            remove_tree(&copy);
            io_error(&self.config.home.join(&package_dir), &error)
        })?;
        let row = PluginRow {
            id: id.to_string(),
            source: given.to_owned(),
            version: parsed.manifest.version.clone(),
            package_dir,
            package_digest: facts.digest.to_string(),
            manifest_text: text,
            enabled: false,
            installed_at_us: epoch_us(SystemTime::now()),
            last_error: None,
        };
        Ok((row, parsed))
    }

    /// A package that holds this host's own home would be copied into itself.
    pub(super) fn refuse_own_home(&self, package: &Path, given: &str) -> Result<(), HostError> {
        let is_within = match (self.config.home.canonicalize(), package.canonicalize()) {
            (Ok(home), Ok(package)) => home.starts_with(package),
            _ => false,
        };
        if !is_within {
            return Ok(());
        }
        let message = format!("package `{}` holds the home of plugward itself", plugward_policy::visible(given));
        Err(HostError::new(ErrorCode::PluginPackageInvalid, message)
            .with_hint("put the manifest and its files into a folder of their own"))
    }

    fn check_manifest(&self, parsed: &ParsedManifest, wanted: Option<&str>) -> Result<(), HostError> {
        let manifest = &parsed.manifest;
        let id = &manifest.id;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != id.as_str()) {
            let wanted = plugward_policy::visible(wanted);
            let message = format!("package is plugin `{id}`, not `{wanted}`");
            return Err(HostError::new(ErrorCode::PluginManifestInvalid, message));
        }
        if self.leaving.lock().unwrap_or_else(PoisonError::into_inner).contains(id) {
            let message = format!("plugin `{id}` is being removed at this moment");
            let error = HostError::new(ErrorCode::PluginStateConflict, message);
            return Err(error.with_hint("install it again when it is gone"));
        }
        // The store decides: a record that could not be read when the host opened is an installed plugin as well.
        if self.path.store.plugin(id.as_str()).map_err(|error| store_error(&error))?.is_some() {
            let message = format!("plugin `{id}` is installed already");
            let hint = format!("remove the installed one first: `plugward remove {id}`");
            return Err(HostError::new(ErrorCode::PluginAlreadyInstalled, message).with_hint(hint));
        }
        self.check_offer(manifest)
    }

    /// Requirement 33: what nobody here knows, or nobody could use, is refused before anything is kept.
    pub(super) fn check_offer(&self, manifest: &Manifest) -> Result<(), HostError> {
        let id = &manifest.id;
        if let Some(Err(reason)) = manifest.backend.command_tool().map(crate::command::check_schemas) {
            let message = format!("tool `{id}`: {reason}");
            return Err(HostError::new(ErrorCode::PluginManifestInvalid, message));
        }
        let unknown = self.config.catalogue.unknown(&manifest.permissions);
        if let Some((name, suggestion)) = unknown.first() {
            let message = format!("plugin `{id}` asks for permission `{name}`, which this deployment does not know");
            let error = HostError::new(ErrorCode::PluginPermissionUnknown, message);
            return Err(match suggestion {
                Some(suggestion) => error.with_hint(format!("did you mean `{suggestion}`?")),
                None => error.with_hint("add it to the catalogue in config.toml, or ask the author to drop it"),
            });
        }
        Ok(())
    }

    async fn remove(self: Arc<Self>, id: &str) -> Result<(), HostError> {
        self.take_out(id, Afterwards::Forget).await
    }

    /// Stops a plugin and takes it out of the set of plugins.
    pub(super) async fn take_out(self: Arc<Self>, id: &str, afterwards: Afterwards) -> Result<(), HostError> {
        let plugin = match self.plugin(id) {
            Ok(plugin) => plugin,
            Err(_) => {
                // An install under way may be about to bring it.
                let _roster = self.roster.lock().await;
                match self.plugin(id) {
                    Ok(plugin) => plugin,
                    Err(not_found) => return self.remove_unreadable(id, not_found, afterwards).await,
                }
            }
        };
        let operation = plugin.interrupt().await;
        if plugin.state().replaced_by.as_ref().is_some_and(|new| new.strong_count() > 0) {
            // Another version took its place meanwhile, and is what has this id now.
            drop(operation);
            return Box::pin(self.take_out(id, afterwards)).await;
        }
        plugin.still_installed()?;
        // Its folders go last, and must not be those of a successor.
        let leaving = Leaving::begin(&self, &plugin.id);
        plugin.state().removed = true;
        // Without the roster: others may be installed and removed for as long as this one takes to end.
        stop::stop(&self, &plugin, Ladder::ORDERLY).await;
        let row = plugin.state().row.clone();
        if let Err(error) = self.forget(&plugin, &row, afterwards).await {
            // It is still installed, and can be removed once the store takes it.
            let missing = !plugin.missing_grants().is_empty();
            let mut state = plugin.state();
            state.removed = false;
            state.settle(missing);
            return Err(error);
        }
        self.remove_folders(&row, afterwards).await;
        drop(leaving);
        tracing::info!(plugin = %plugin.id, "removed");
        self.events.send(HostEvent::PluginRemoved(plugin.id.clone()));
        Ok(())
    }

    /// Takes a stopped plugin out of the records and the set of plugins.
    async fn forget(
        self: &Arc<Self>,
        plugin: &Plugin,
        row: &PluginRow,
        afterwards: Afterwards,
    ) -> Result<(), HostError> {
        let _roster = self.roster.lock().await;
        self.forget_record(row, afterwards).await?;
        self.plugins.write().unwrap_or_else(PoisonError::into_inner).remove(&plugin.id);
        self.path.registry.forget(&plugin.id);
        self.path.asks.forget(&plugin.id);
        plugin.redactor.clear(plugin.id.as_str());
        Ok(())
    }

    /// Forgets a plugin whose record could not be read when the host opened. It never ran here, and would otherwise
    /// neither go nor make room for a new installation.
    async fn remove_unreadable(
        self: &Arc<Self>,
        id: &str,
        not_found: HostError,
        afterwards: Afterwards,
    ) -> Result<(), HostError> {
        let wanted = id.to_owned();
        let Some(row) = self.blocking(move |inner| inner.path.store.plugin(&wanted)).await? else {
            return if self.forget_kept(id).await? { Ok(()) } else { Err(not_found) };
        };
        self.forget_record(&row, afterwards).await?;
        self.remove_folders(&row, afterwards).await;
        tracing::info!(plugin = %row.id, "removed a plugin whose record is not readable");
        Ok(())
    }

    /// Forgets what was kept of a plugin whose file had gone; returns whether there was any. What remains in its private
    /// folder must not fall to another plugin with its id.
    async fn forget_kept(self: &Arc<Self>, id: &str) -> Result<bool, HostError> {
        let id = id.to_owned();
        self.blocking(move |inner| {
            let key = kept_key(&id);
            if inner.path.store.setting(&key)?.is_none() {
                return Ok(false);
            }
            remove_tree(&inner.config.home.join(HOMES_DIR).join(&id));
            inner.path.store.set_setting(&key, None)?;
            Ok(true)
        })
        .await
    }

    async fn forget_record(self: &Arc<Self>, row: &PluginRow, afterwards: Afterwards) -> Result<(), HostError> {
        let id = row.id.clone();
        self.offers.forget(&id);
        self.blocking(move |inner| {
            let kept = match afterwards {
                Afterwards::Forget => None,
                Afterwards::Keep => Kept::of(&inner.path.store, &id)?,
            };
            // One transaction: half a memory of a removed plugin would hold back its next installation.
            inner.path.store.write(move |tx| {
                tx.remove_plugin(&id)?;
                tx.set_setting(&kept_key(&id), kept.as_deref())?;
                tx.set_setting(&disabled_key(&id), None)?;
                tx.set_setting(&beside_tools_key(&id), None)?;
                tx.set_setting(&crate::supervisor::era_key(&id), None)?;
                tx.set_setting(&crate::supervisor::attempts_key(&id), None)?;
                tx.set_setting(&super::trust::offered_key(&id), None)?;
                tx.set_setting(&super::load::loaded_key(&id), None)?;
                tx.set_setting(&super::trust::project_key(&id), None)?;
                tx.set_setting(&super::trust::pinned_key(&id), None)
            })
        })
        .await
    }

    async fn remove_folders(&self, row: &PluginRow, afterwards: Afterwards) {
        let home = &self.config.home;
        let mut folders = vec![self.package_dir(row), home.join(OUTPUTS_DIR).join(&row.id)];
        if afterwards == Afterwards::Forget {
            folders.push(home.join(HOMES_DIR).join(&row.id));
        }
        let _ = tokio::task::spawn_blocking(move || folders.iter().for_each(|folder| remove_tree(folder))).await;
    }

    pub(crate) fn private_home(&self, id: &PluginId) -> PathBuf {
        self.config.home.join(HOMES_DIR).join(id.as_str())
    }

    /// Deletes packages and private homes that no record refers to: what a crash left of an install or a remove.
    pub(super) async fn sweep(self: &Arc<Self>) -> Result<(), HostError> {
        self.blocking(|inner| {
            let home = &inner.config.home;
            let kept: BTreeSet<PathBuf> = inner
                .path
                .store
                .plugins()?
                .iter()
                .flat_map(|row| {
                    let outputs = home.join(OUTPUTS_DIR).join(&row.id);
                    [inner.package_dir(row), home.join(HOMES_DIR).join(&row.id), outputs]
                })
                .collect();
            remove_tree(&home.join(INCOMING_DIR));
            let is_kept = |path: &Path| {
                let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
                let is_home = path.parent() == Some(&home.join(HOMES_DIR));
                // What cannot be told is not deleted.
                is_home && inner.path.store.setting(&kept_key(name)).map_or(true, |kept| kept.is_some())
            };
            let folders = [PACKAGES_DIR, HOMES_DIR, OUTPUTS_DIR].map(|name| std::fs::read_dir(home.join(name)));
            for folder in folders
                .into_iter()
                .flatten()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| !kept.contains(path) && !is_kept(path))
            {
                tracing::info!(folder = %folder.display(), "removing what is left of an unfinished install or remove");
                remove_tree(&folder);
            }
            inner.forget_users()
        })
        .await
    }
}

/// An id that nothing may be installed under until this is dropped.
struct Leaving<'a>(&'a Inner, &'a PluginId);

impl<'a> Leaving<'a> {
    fn begin(inner: &'a Inner, id: &'a PluginId) -> Self {
        inner.leaving.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        Self(inner, id)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.lock().unwrap_or_else(PoisonError::into_inner).remove(self.1);
    }
}

pub(super) fn create_private_dir(path: &Path) -> Result<(), HostError> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| io_error(path, &error))
}

pub(super) fn manifest_error(error: &ManifestError) -> HostError {
    let code = match error.kind() {
        ManifestErrorKind::Unsupported => ErrorCode::McpCapabilityUnsupported,
        ManifestErrorKind::Invalid => ErrorCode::PluginManifestInvalid,
    };
    let details: Vec<String> = error.diagnostics().iter().map(Diagnostic::to_string).collect();
    let first = details.first().cloned().unwrap_or_default();
    HostError::new(code, first).with_details(details.into_iter().skip(1).collect())
}

/// Whether a package is this one file: the file of a single command, unless its name says that its folder belongs to it.
/// Such files lie side by side, and a change of one is none of the others'.
fn lone_file(manifest_path: &Path, parsed: &ParsedManifest) -> bool {
    let is_package_name = package::MANIFEST_NAMES.iter().any(|name| manifest_path.ends_with(name));
    parsed.manifest.backend.is_lone_file() && !is_package_name
}

/// Copies the one file, whose text was read, as a package of its own.
pub(super) fn copy_lone_file(
    manifest_path: &Path,
    text: &str,
    copy: &Path,
) -> Result<package::PackageFacts, package::PackageError> {
    let written = |error| package::PackageError::os(copy, "written", error);
    std::fs::create_dir(copy).map_err(written)?;
    let name = manifest_path.file_name().unwrap_or_default();
    std::fs::write(copy.join(name), text).map_err(written)?;
    // As a copied package has it: a plugin may run as a user of its own.
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(copy, mode).map_err(written)?;
    package::hash_package(copy)
}

pub(super) fn io_error(path: &Path, error: &std::io::Error) -> HostError {
    HostError::new(ErrorCode::HomeUnusable, format!("`{}` cannot be written: {error}", path.display()))
}

pub(super) fn package_error(error: &package::PackageError) -> HostError {
    HostError::new(ErrorCode::PluginPackageInvalid, error.to_string())
}

/// As [`remove_tree`], on a thread that may wait for a disk.
pub(super) async fn remove_aside(path: PathBuf) {
    // A removal that panicked is one that failed: the sweep at the next start tries again.
    let _ = tokio::task::spawn_blocking(move || remove_tree(&path)).await;
}

/// Removal of folders is best effort: the sweep at the next start tries again.
pub(super) fn remove_tree(path: &Path) {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(folder = %path.display(), "a folder could not be removed: {error}");
        }
        _ => {}
    }
}
