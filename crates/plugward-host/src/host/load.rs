//! Plugins that come from files in a folder: installed, replaced and removed as the files are.
//!
//! Owns what each step of the loader does to the host. A new version takes the place of the old one once the calls in
//! flight on that have ended; it starts only if exactly it was approved, and is held otherwise. What fails leaves the old
//! version as it was. Refuses to look at folders: the loader does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use plugward_policy::{Manifest, PluginId, parse_manifest};
use plugward_store::PluginRow;
use serde::{Deserialize, Serialize};

use super::install::{
    copy_lone_file, create_private_dir, io_error, manifest_error, package_error, remove_aside, remove_tree,
};
use super::kept::{Afterwards, Kept, kept_key};
use super::{INCOMING_DIR, Inner, PACKAGES_DIR};
use crate::call::epoch_us;
use crate::config::DRAIN_LIMIT_MAX;
use crate::error::{ErrorCode, HostError};
use crate::ids::random_hex;
use crate::package::{self, PackageFacts, PackageLimits};
use crate::supervisor::stop::{self, Ladder};
use crate::supervisor::{Plugin, command};
use crate::views::{FoldersView, LogOrigin};

/// A plugin as its file has it.
#[derive(Debug, Clone)]
pub(crate) struct PluginFile {
    /// The file or package folder it was found at.
    pub(crate) path: PathBuf,
    /// The folder of plugin files it lies in: where the plugin comes from, whatever its file is called today.
    pub(crate) source: String,
    /// Name of the manifest in the package.
    pub(crate) manifest_name: OsString,
    /// The manifest's text as it was read.
    pub(crate) text: String,
    /// The package; none for a file that is all there is of its plugin.
    pub(crate) package: Option<PathBuf>,
    /// What it was recognised by.
    pub(crate) digest: String,
}

/// What is kept about where a plugin was loaded from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoadedFrom {
    pub(crate) file: PathBuf,
    pub(crate) digest: String,
}

/// Setting that tells a plugin that came from a file from one that was installed by hand.
pub(super) fn loaded_key(id: &str) -> String {
    format!("loaded.{id}")
}

impl PluginFile {
    fn loaded_from(&self) -> Option<String> {
        serde_json::to_string(&LoadedFrom { file: self.path.clone(), digest: self.digest.clone() }).ok()
    }
}

/// A package that was copied and read, and that nothing refers to yet.
struct Incoming {
    copy: PathBuf,
    row: PluginRow,
    manifest: Manifest,
}

impl Inner {
    /// Plugins and where they were loaded from; none for those installed by hand.
    pub(crate) async fn loaded(self: &Arc<Self>) -> Result<Vec<(PluginId, Option<LoadedFrom>)>, HostError> {
        self.blocking(|inner| {
            let store = &inner.path.store;
            let mut all = Vec::new();
            for row in store.plugins()? {
                let Ok(id) = PluginId::new(row.id.as_str()) else { continue };
                let from = store.setting(&loaded_key(&row.id))?;
                all.push((id, from.and_then(|text| serde_json::from_str(&text).ok())));
            }
            Ok(all)
        })
        .await
    }

    /// Installs the plugin of a file. It is not approved, so that nothing of it runs, unless the same content was there
    /// before and only its file had gone.
    pub(crate) async fn load_new(self: &Arc<Self>, file: &PluginFile) -> Result<(), HostError> {
        let _roster = self.roster.lock().await;
        let incoming = self.take_in(file).await?;
        let taken = self.path.store.plugin(&incoming.row.id).map_err(|error| super::store_error(&error));
        let is_leaving = {
            let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            leaving.contains(&incoming.manifest.id)
        };
        if is_leaving || !matches!(taken, Ok(None)) {
            remove_aside(incoming.copy).await;
            let message = format!("plugin `{}` is installed already", incoming.row.id);
            return Err(HostError::new(ErrorCode::PluginAlreadyInstalled, message));
        }
        let place = self.package_dir(&incoming.row);
        put_in_place(incoming.copy, place.clone()).await?;
        let (record, from, project) = (incoming.row.clone(), file.loaded_from(), self.project_folder());
        let stored = self.blocking(move |inner| {
            let mut record = record;
            // The same content as before it went: what a person agreed to is agreed to.
            let kept = Kept::read(&inner.path.store, &record.id, &record.package_digest)?;
            record.enabled = kept.as_ref().is_some_and(Kept::enabled);
            inner.path.store.write(move |tx| {
                tx.set_setting(&super::trust::project_key(&record.id), project.as_deref())?;
                tx.insert_plugin(&record)?;
                if let Some(kept) = &kept {
                    kept.restore(tx, &record.id)?;
                }
                tx.set_setting(&kept_key(&record.id), None)?;
                tx.set_setting(&loaded_key(&record.id), from.as_deref())?;
                Ok(record)
            })
        });
        let row = match stored.await {
            Ok(row) => row,
            Err(error) => {
                remove_aside(place).await;
                return Err(error);
            }
        };
        tracing::info!(plugin = %row.id, file = %file.path.display(), "loaded");
        let plugin = self.adopt(row).await?;
        self.plugin_changed(&plugin);
        self.start_if_wanted(&plugin);
        Ok(())
    }

    /// Puts the version of a file in the place of the one that is installed.
    pub(crate) async fn load_version(self: &Arc<Self>, file: &PluginFile) -> Result<(), HostError> {
        let incoming = self.take_in(file).await?;
        let id = incoming.row.id.clone();
        let copy = incoming.copy.clone();
        let replaced = self.replace_version(file, incoming).await;
        // What was put in place is there no more.
        remove_aside(copy).await;
        if let Err(error) = &replaced {
            tracing::warn!(plugin = %id, code = %error.code, "the new version was not taken: {}", error.message);
        }
        replaced
    }

    async fn replace_version(self: &Arc<Self>, file: &PluginFile, incoming: Incoming) -> Result<(), HostError> {
        let Incoming { copy, mut row, manifest } = incoming;
        let old = self.plugin(&row.id)?;
        let _operation = old.interrupt().await;
        old.still_installed()?;
        let before = old.state().row.clone();
        let place = self.package_dir(&row);
        let has_package = tokio::fs::try_exists(&place).await.unwrap_or(false);
        if before.package_digest == row.package_digest && before.source == row.source && has_package {
            // Touched, and the same byte for byte. A start that this broke off begins anew.
            self.start_if_wanted(&old);
            return self.note_file(&old.id, file).await;
        }
        row.enabled = before.enabled;
        row.installed_at_us = before.installed_at_us;
        let drain = old.manifest.backend.tool_timeout.min(DRAIN_LIMIT_MAX);
        stop::stop(self, &old, Ladder { drain, ..Ladder::ORDERLY }).await;
        let _roster = self.roster.lock().await;
        let aside = self.config.home.join(INCOMING_DIR).join(random_hex::<8>());
        let moved = match tokio::fs::rename(&place, &aside).await {
            // A host that died between these two steps left none.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            moved => moved,
        };
        let moved = match moved {
            Ok(()) => tokio::fs::rename(&copy, &place).await,
            failed => failed,
        };
        let stored = match moved {
            Ok(()) => self.store_version(file, &row, &manifest).await,
            Err(error) => Err(io_error(&place, &error)),
        };
        if let Err(error) = stored {
            // The version before comes back, package and process.
            if tokio::fs::try_exists(&aside).await.unwrap_or(false) {
                remove_aside(place.clone()).await;
                let _ = tokio::fs::rename(&aside, &place).await;
            }
            old.state().settle(!old.missing_grants().is_empty());
            self.start_if_wanted(&old);
            return Err(error);
        }
        remove_aside(aside).await;
        // Whoever still waits for a turn with the old version finds that it is over.
        old.state().removed = true;
        self.path.asks.forget(&old.id);
        let line = format!("version {} takes the place of version {}", row.version, before.version);
        old.log.push(LogOrigin::Host, &line);
        let new = self.adopt_after(row, Some(&old)).await?;
        // What a person asked of this plugin meanwhile is asked of the new version.
        old.state().replaced_by = Some(Arc::downgrade(&new));
        tracing::info!(plugin = %new.id, file = %file.path.display(), "loaded another version");
        self.plugin_changed(&new);
        self.note_offer(&new).await;
        // It runs only if exactly this was approved: a start finds out, and says what is missing.
        self.start_if_wanted(&new);
        Ok(())
    }

    /// A command tells what it offers without a start: what changed of its tool is part of the review of its file, so that
    /// one approval covers both.
    async fn note_offer(self: &Arc<Self>, plugin: &Plugin) {
        if plugin.manifest.backend.command_tool().is_none() {
            return;
        }
        let noted = async {
            // What nobody has approved yet is compared with nothing.
            if self.pinned_definitions(plugin).await?.is_some() {
                let contract = command::contract(self, plugin).await?;
                self.hold_to_pins(plugin, &contract).await?;
            }
            Ok::<(), HostError>(())
        };
        if let Err(error) = noted.await {
            plugin.log.push(LogOrigin::Host, &format!("what its new version offers is not known: {error}"));
        }
    }

    /// The record of a version, and the grants that its manifest still asks for.
    async fn store_version(
        self: &Arc<Self>,
        file: &PluginFile,
        row: &PluginRow,
        manifest: &Manifest,
    ) -> Result<(), HostError> {
        let (record, from) = (row.clone(), file.loaded_from());
        let wanted: Vec<String> = manifest.all_permissions().iter().map(ToString::to_string).collect();
        self.blocking(move |inner| {
            let mut grants = inner.path.store.grants(&record.id)?;
            grants.retain(|text| wanted.contains(text));
            inner.path.store.write(move |tx| {
                tx.update_plugin(&record)?;
                tx.set_last_error(&record.id, None)?;
                tx.set_grants(&record.id, &grants)?;
                tx.set_setting(&loaded_key(&record.id), from.as_deref())
            })
        })
        .await
    }

    /// Remembers where a plugin lies now; nothing of it changed.
    pub(crate) async fn note_file(self: &Arc<Self>, id: &PluginId, file: &PluginFile) -> Result<(), HostError> {
        let (id, from) = (id.to_string(), file.loaded_from());
        self.blocking(move |inner| inner.path.store.set_setting(&loaded_key(&id), from.as_deref())).await
    }

    /// Removes a plugin whose file is gone; its private folder and its approval stay for the same content.
    pub(crate) async fn unload(self: &Arc<Self>, id: &PluginId) -> Result<(), HostError> {
        tracing::info!(plugin = %id, "its file is gone");
        Arc::clone(self).take_out(id.as_str(), Afterwards::Keep).await
    }

    /// Copies and reads what a file is the plugin of; nothing refers to the copy yet.
    async fn take_in(self: &Arc<Self>, file: &PluginFile) -> Result<Incoming, HostError> {
        let (inner, file) = (Arc::clone(self), file.clone());
        tokio::task::spawn_blocking(move || inner.take_in_blocking(&file))
            .await
            .map_err(|_| HostError::internal("copying a package"))?
    }

    fn take_in_blocking(&self, file: &PluginFile) -> Result<Incoming, HostError> {
        let parsed = parse_manifest(&file.text, &file.path.display().to_string()).map_err(|e| manifest_error(&e))?;
        self.check_offer(&parsed.manifest)?;
        let incoming = self.config.home.join(INCOMING_DIR);
        create_private_dir(&incoming)?;
        create_private_dir(&self.config.home.join(PACKAGES_DIR))?;
        let copy = incoming.join(random_hex::<8>());
        let facts = self.fill(&copy, file).inspect_err(|_| remove_tree(&copy))?;
        let id = &parsed.manifest.id;
        let row = PluginRow {
            id: id.to_string(),
            source: file.source.clone(),
            version: parsed.manifest.version.clone(),
            package_dir: format!("{PACKAGES_DIR}/{id}"),
            package_digest: facts.digest.to_string(),
            manifest_text: file.text.clone(),
            enabled: false,
            installed_at_us: epoch_us(SystemTime::now()),
            last_error: None,
        };
        Ok(Incoming { copy, row, manifest: parsed.manifest })
    }

    fn fill(&self, copy: &Path, file: &PluginFile) -> Result<PackageFacts, HostError> {
        let Some(package) = &file.package else {
            return copy_lone_file(Path::new(&file.manifest_name), &file.text, copy).map_err(|e| package_error(&e));
        };
        let given = file.path.display().to_string();
        self.refuse_own_home(package, &given)?;
        let facts = package::copy_package(package, copy, &PackageLimits::default()).map_err(|e| package_error(&e))?;
        let kept = package::read_manifest(&copy.join(&file.manifest_name)).map_err(|error| package_error(&error))?;
        if kept != file.text {
            let message = format!("package `{}` changed while it was being copied", plugward_policy::visible(&given));
            return Err(HostError::new(ErrorCode::PluginPackageInvalid, message));
        }
        Ok(facts)
    }

    pub(crate) fn folders(&self) -> Option<FoldersView> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what the last look at the folders came to.
    pub(crate) fn note_folders(&self, view: FoldersView) {
        *self.folders.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }
}

/// Moves a copy to where packages are; what lay there belongs to nobody any more.
async fn put_in_place(copy: PathBuf, place: PathBuf) -> Result<(), HostError> {
    let moved = tokio::task::spawn_blocking(move || {
        remove_tree(&place);
        std::fs::rename(&copy, &place).map_err(|error| {
            remove_tree(&copy);
            io_error(&place, &error)
        })
    });
    moved.await.map_err(|_| HostError::internal("moving a package"))?
}

impl super::Host {
    /// What the folders of plugin files hold, as of the last look; none if there are no such folders.
    pub fn folders(&self) -> Option<FoldersView> {
        self.inner.folders()
    }
}
