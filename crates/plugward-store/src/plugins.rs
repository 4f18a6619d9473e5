//! Installed plugins and their start numbers. Owns their rows; refuses to know what installing or enabling means.

use rusqlite::{Connection, OptionalExtension, Row};

use crate::redact::TEXT_MAX_CHARS;
use crate::{PluginRow, Store, StoreError, WriteTransaction};

const COLUMNS: &str = "plugin_id, source, version, package_dir, package_digest, manifest_text, enabled, \
                       installed_at_us, last_error";

impl Store {
    /// The plugin with this id, if it is installed.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn plugin(&self, plugin_id: &str) -> Result<Option<PluginRow>, StoreError> {
        self.read(|conn| {
            let sql = format!("SELECT {COLUMNS} FROM plugins WHERE plugin_id = ?1");
            Ok(conn.prepare_cached(&sql)?.query_row([plugin_id], plugin_row).optional()?)
        })
    }

    /// All installed plugins in the order of their installation (requirement 144).
    ///
    /// # Errors
    /// Those of the database only.
    pub fn plugins(&self) -> Result<Vec<PluginRow>, StoreError> {
        self.read(|conn| {
            let sql = format!("SELECT {COLUMNS} FROM plugins ORDER BY installed_at_us, plugin_id");
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map([], plugin_row)?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// See [`WriteTransaction::insert_plugin`].
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], and those of [`Store::write`].
    pub fn insert_plugin(&self, plugin: &PluginRow) -> Result<(), StoreError> {
        let plugin = plugin.clone();
        self.write(move |tx| tx.insert_plugin(&plugin))
    }

    /// See [`WriteTransaction::set_enabled`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn set_enabled(&self, plugin_id: &str, enabled: bool) -> Result<(), StoreError> {
        let plugin_id = plugin_id.to_owned();
        self.write(move |tx| tx.set_enabled(&plugin_id, enabled))
    }

    /// See [`WriteTransaction::set_last_error`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn set_last_error(&self, plugin_id: &str, message: Option<&str>) -> Result<(), StoreError> {
        let (plugin_id, message) = (plugin_id.to_owned(), message.map(str::to_owned));
        self.write(move |tx| tx.set_last_error(&plugin_id, message.as_deref()))
    }

    /// See [`WriteTransaction::remove_plugin`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn remove_plugin(&self, plugin_id: &str) -> Result<(), StoreError> {
        let plugin_id = plugin_id.to_owned();
        self.write(move |tx| tx.remove_plugin(&plugin_id))
    }

    /// A number for the next start of a plugin, larger than every one given before, also across restarts of the host
    /// and removal of the plugin. The first is 1.
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub fn next_generation(&self, plugin_id: &str) -> Result<u64, StoreError> {
        let plugin_id = plugin_id.to_owned();
        self.write(move |tx| {
            let generation: i64 = tx
                .conn
                .prepare_cached(
                    "INSERT INTO generations (plugin_id, generation) VALUES (?1, 1) \
                     ON CONFLICT (plugin_id) DO UPDATE SET generation = generation + 1 RETURNING generation",
                )?
                .query_row([plugin_id], |row| row.get(0))?;
            Ok(generation.unsigned_abs())
        })
    }
}

impl WriteTransaction<'_> {
    /// Adds a plugin. Its `last_error` is redacted.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`].
    pub fn insert_plugin(&self, plugin: &PluginRow) -> Result<(), StoreError> {
        if is_installed(self.conn, &plugin.id)? {
            return Err(StoreError::AlreadyExists { what: "plugin", id: plugin.id.clone() });
        }
        let sql = format!("INSERT INTO plugins ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
        self.conn.prepare_cached(&sql)?.execute((
            &plugin.id,
            &plugin.source,
            &plugin.version,
            &plugin.package_dir,
            &plugin.package_digest,
            &plugin.manifest_text,
            plugin.enabled,
            plugin.installed_at_us,
            plugin.last_error.as_deref().map(|text| self.matcher.redact_to(text, TEXT_MAX_CHARS)),
        ))?;
        Ok(())
    }

    /// Puts another version of a plugin in place of the one that is installed: its source, version, package and manifest.
    /// Whether it is on, its approvals, grants and pins stay as they are, for whoever compares them with the new version.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn update_plugin(&self, plugin: &PluginRow) -> Result<(), StoreError> {
        let sql = "UPDATE plugins SET source = ?2, version = ?3, package_dir = ?4, package_digest = ?5, \
                   manifest_text = ?6 WHERE plugin_id = ?1";
        let changed = self.conn.prepare_cached(sql)?.execute((
            &plugin.id,
            &plugin.source,
            &plugin.version,
            &plugin.package_dir,
            &plugin.package_digest,
            &plugin.manifest_text,
        ))?;
        found(changed, &plugin.id)
    }

    /// Records whether the person wants the plugin running.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn set_enabled(&self, plugin_id: &str, enabled: bool) -> Result<(), StoreError> {
        let changed = self
            .conn
            .prepare_cached("UPDATE plugins SET enabled = ?2 WHERE plugin_id = ?1")?
            .execute((plugin_id, enabled))?;
        found(changed, plugin_id)
    }

    /// Records, redacted, why the plugin failed, or that nothing is wrong any more.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn set_last_error(&self, plugin_id: &str, message: Option<&str>) -> Result<(), StoreError> {
        let message = message.map(|text| self.matcher.redact_to(text, TEXT_MAX_CHARS));
        let changed = self
            .conn
            .prepare_cached("UPDATE plugins SET last_error = ?2 WHERE plugin_id = ?1")?
            .execute((plugin_id, message))?;
        found(changed, plugin_id)
    }

    /// Forgets a plugin with its approvals, grants, pins and switches. Its trace and audit events stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn remove_plugin(&self, plugin_id: &str) -> Result<(), StoreError> {
        let removed = self.conn.prepare_cached("DELETE FROM plugins WHERE plugin_id = ?1")?.execute([plugin_id])?;
        found(removed, plugin_id)
    }

    /// The error for a plugin that is not installed, before a row that refers to it is written.
    pub(crate) fn require_plugin(&self, plugin_id: &str) -> Result<(), StoreError> {
        found(usize::from(is_installed(self.conn, plugin_id)?), plugin_id)
    }
}

fn is_installed(conn: &Connection, plugin_id: &str) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached("SELECT 1 FROM plugins WHERE plugin_id = ?1")?.exists([plugin_id])?)
}

fn found(rows: usize, plugin_id: &str) -> Result<(), StoreError> {
    if rows == 0 {
        return Err(StoreError::NotFound { what: "plugin", id: plugin_id.to_owned() });
    }
    Ok(())
}

fn plugin_row(row: &Row<'_>) -> Result<PluginRow, rusqlite::Error> {
    Ok(PluginRow {
        id: row.get(0)?,
        source: row.get(1)?,
        version: row.get(2)?,
        package_dir: row.get(3)?,
        package_digest: row.get(4)?,
        manifest_text: row.get(5)?,
        enabled: row.get(6)?,
        installed_at_us: row.get(7)?,
        last_error: row.get(8)?,
    })
}
