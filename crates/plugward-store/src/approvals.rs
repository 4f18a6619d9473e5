//! Approvals and grants: what a person agreed to. Owns their rows and that an approval is never edited; refuses to
//! judge whether one still holds.

use rusqlite::{OptionalExtension, Row};

use crate::{ApprovalRow, Store, StoreError, WriteTransaction};

const COLUMNS: &str = "plugin_id, digest, launch_digest, subject_json, how, who, at_us, revoked_at_us";

impl Store {
    /// The newest approval of the plugin that was not revoked.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn current_approval(&self, plugin_id: &str) -> Result<Option<ApprovalRow>, StoreError> {
        self.read(|conn| {
            let sql = format!(
                "SELECT {COLUMNS} FROM approvals WHERE plugin_id = ?1 AND revoked_at_us IS NULL \
                 ORDER BY approval_id DESC LIMIT 1"
            );
            Ok(conn.prepare_cached(&sql)?.query_row([plugin_id], approval_row).optional()?)
        })
    }

    /// All approvals of the plugin, newest first, revoked ones too.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn approvals(&self, plugin_id: &str) -> Result<Vec<ApprovalRow>, StoreError> {
        self.read(|conn| {
            let sql = format!("SELECT {COLUMNS} FROM approvals WHERE plugin_id = ?1 ORDER BY approval_id DESC");
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map([plugin_id], approval_row)?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// See [`WriteTransaction::record_approval`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn record_approval(&self, approval: &ApprovalRow) -> Result<(), StoreError> {
        let approval = approval.clone();
        self.write(move |tx| tx.record_approval(&approval))
    }

    /// See [`WriteTransaction::revoke_approvals`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn revoke_approvals(&self, plugin_id: &str, at_us: i64) -> Result<usize, StoreError> {
        let plugin_id = plugin_id.to_owned();
        self.write(move |tx| tx.revoke_approvals(&plugin_id, at_us))
    }

    /// The permissions granted to the plugin, in alphabetical order.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn grants(&self, plugin_id: &str) -> Result<Vec<String>, StoreError> {
        self.read(|conn| {
            let mut query =
                conn.prepare_cached("SELECT permission FROM grants WHERE plugin_id = ?1 ORDER BY permission")?;
            let rows = query.query_map([plugin_id], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// See [`WriteTransaction::set_grants`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn set_grants<S: AsRef<str>>(&self, plugin_id: &str, permissions: &[S]) -> Result<(), StoreError> {
        let plugin_id = plugin_id.to_owned();
        let permissions: Vec<String> = permissions.iter().map(|p| p.as_ref().to_owned()).collect();
        self.write(move |tx| tx.set_grants(&plugin_id, &permissions))
    }
}

impl WriteTransaction<'_> {
    /// Adds an approval, which from then on is the current one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the plugin is not installed.
    pub fn record_approval(&self, approval: &ApprovalRow) -> Result<(), StoreError> {
        self.require_plugin(&approval.plugin_id)?;
        let sql = format!("INSERT INTO approvals ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
        self.conn.prepare_cached(&sql)?.execute((
            &approval.plugin_id,
            &approval.digest,
            &approval.launch_digest,
            &approval.subject_json,
            &approval.how,
            &approval.who,
            approval.at_us,
            approval.revoked_at_us,
        ))?;
        Ok(())
    }

    /// Takes back all approvals of the plugin that still stand and returns how many those were.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the plugin is not installed.
    pub fn revoke_approvals(&self, plugin_id: &str, at_us: i64) -> Result<usize, StoreError> {
        self.require_plugin(plugin_id)?;
        let revoked = self
            .conn
            .prepare_cached("UPDATE approvals SET revoked_at_us = ?2 WHERE plugin_id = ?1 AND revoked_at_us IS NULL")?
            .execute((plugin_id, at_us))?;
        Ok(revoked)
    }

    /// Replaces the permissions granted to the plugin.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the plugin is not installed.
    pub fn set_grants<S: AsRef<str>>(&self, plugin_id: &str, permissions: &[S]) -> Result<(), StoreError> {
        self.require_plugin(plugin_id)?;
        self.conn.prepare_cached("DELETE FROM grants WHERE plugin_id = ?1")?.execute([plugin_id])?;
        let mut insert =
            self.conn.prepare_cached("INSERT OR IGNORE INTO grants (plugin_id, permission) VALUES (?1, ?2)")?;
        for permission in permissions {
            insert.execute((plugin_id, permission.as_ref()))?;
        }
        Ok(())
    }
}

fn approval_row(row: &Row<'_>) -> Result<ApprovalRow, rusqlite::Error> {
    Ok(ApprovalRow {
        plugin_id: row.get(0)?,
        digest: row.get(1)?,
        launch_digest: row.get(2)?,
        subject_json: row.get(3)?,
        how: row.get(4)?,
        who: row.get(5)?,
        at_us: row.get(6)?,
        revoked_at_us: row.get(7)?,
    })
}
