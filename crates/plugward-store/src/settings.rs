//! Small values of the host itself, by key. Owns their rows; refuses secrets in clear: what has to be checked later is
//! kept as a hash.

use rusqlite::OptionalExtension;

use crate::{Store, StoreError, WriteTransaction};

impl Store {
    /// The value under this key, if one was set.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|conn| {
            let mut query = conn.prepare_cached("SELECT value FROM settings WHERE key = ?1")?;
            Ok(query.query_row([key], |row| row.get(0)).optional()?)
        })
    }

    /// See [`WriteTransaction::set_setting`].
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub fn set_setting(&self, key: &str, value: Option<&str>) -> Result<(), StoreError> {
        let (key, value) = (key.to_owned(), value.map(str::to_owned));
        self.write(move |tx| tx.set_setting(&key, value.as_deref()))
    }
}

impl WriteTransaction<'_> {
    /// Sets the value under a key; `None` removes it.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn set_setting(&self, key: &str, value: Option<&str>) -> Result<(), StoreError> {
        match value {
            Some(value) => self
                .conn
                .prepare_cached(
                    "INSERT INTO settings (key, value) VALUES (?1, ?2) \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                )?
                .execute((key, value))?,
            None => self.conn.prepare_cached("DELETE FROM settings WHERE key = ?1")?.execute([key])?,
        };
        Ok(())
    }
}
