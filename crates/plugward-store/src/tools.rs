//! What is kept of a plugin's tools: the approved contract and the switches of the person. Owns their rows; refuses to
//! read a definition.

use crate::{PinRow, Store, StoreError, WriteTransaction};

impl Store {
    /// The tools of the plugin as they were approved, in the order the plugin listed them.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn pins(&self, plugin_id: &str) -> Result<Vec<PinRow>, StoreError> {
        self.read(|conn| {
            let mut query = conn.prepare_cached(
                "SELECT plugin_id, tool, digest, definition_json FROM tool_pins WHERE plugin_id = ?1 ORDER BY position",
            )?;
            let rows = query.query_map([plugin_id], |row| {
                Ok(PinRow {
                    plugin_id: row.get(0)?,
                    tool: row.get(1)?,
                    digest: row.get(2)?,
                    definition_json: row.get(3)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// See [`WriteTransaction::set_pins`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::AlreadyExists`], and those of [`Store::write`].
    pub fn set_pins(&self, plugin_id: &str, pins: &[PinRow]) -> Result<(), StoreError> {
        let (plugin_id, pins) = (plugin_id.to_owned(), pins.to_vec());
        self.write(move |tx| tx.set_pins(&plugin_id, &pins))
    }

    /// The tools of the plugin that the person switched off, in alphabetical order.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn disabled_tools(&self, plugin_id: &str) -> Result<Vec<String>, StoreError> {
        self.read(|conn| {
            let mut query =
                conn.prepare_cached("SELECT tool FROM disabled_tools WHERE plugin_id = ?1 ORDER BY tool")?;
            let rows = query.query_map([plugin_id], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// See [`WriteTransaction::set_tool_enabled`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and those of [`Store::write`].
    pub fn set_tool_enabled(&self, plugin_id: &str, tool: &str, enabled: bool) -> Result<(), StoreError> {
        let (plugin_id, tool) = (plugin_id.to_owned(), tool.to_owned());
        self.write(move |tx| tx.set_tool_enabled(&plugin_id, &tool, enabled))
    }
}

impl WriteTransaction<'_> {
    /// Replaces the approved contract of the plugin, whole.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the plugin is not installed, [`StoreError::AlreadyExists`] if a tool is named twice.
    pub fn set_pins(&self, plugin_id: &str, pins: &[PinRow]) -> Result<(), StoreError> {
        self.require_plugin(plugin_id)?;
        self.conn.prepare_cached("DELETE FROM tool_pins WHERE plugin_id = ?1")?.execute([plugin_id])?;
        let mut insert = self.conn.prepare_cached(
            "INSERT INTO tool_pins (plugin_id, tool, position, digest, definition_json) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )?;
        for (position, pin) in (0i64..).zip(pins) {
            let added = insert.execute((plugin_id, &pin.tool, position, &pin.digest, &pin.definition_json))?;
            if added == 0 {
                return Err(StoreError::AlreadyExists { what: "tool", id: pin.tool.clone() });
            }
        }
        Ok(())
    }

    /// Switches one tool of the plugin on or off. The tool need not be known: a switch outlives a tool that goes and
    /// comes back.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the plugin is not installed.
    pub fn set_tool_enabled(&self, plugin_id: &str, tool: &str, enabled: bool) -> Result<(), StoreError> {
        self.require_plugin(plugin_id)?;
        let sql = if enabled {
            "DELETE FROM disabled_tools WHERE plugin_id = ?1 AND tool = ?2"
        } else {
            "INSERT OR IGNORE INTO disabled_tools (plugin_id, tool) VALUES (?1, ?2)"
        };
        self.conn.prepare_cached(sql)?.execute((plugin_id, tool))?;
        Ok(())
    }
}
