-- What a person decided and what it applies to. All times are microseconds since the Unix epoch.

CREATE TABLE plugins (
    plugin_id       TEXT    NOT NULL PRIMARY KEY,
    source          TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    package_dir     TEXT    NOT NULL,
    package_digest  TEXT    NOT NULL,
    manifest_text   TEXT    NOT NULL,
    enabled         INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    installed_at_us INTEGER NOT NULL,
    last_error      TEXT
) STRICT;

-- History, not state: an approval is never edited, only revoked. The current one is the newest that is not revoked.
CREATE TABLE approvals (
    approval_id   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    plugin_id     TEXT    NOT NULL REFERENCES plugins (plugin_id) ON DELETE CASCADE,
    digest        TEXT    NOT NULL,
    launch_digest TEXT    NOT NULL,
    subject_json  TEXT    NOT NULL,
    how           TEXT    NOT NULL,
    who           TEXT    NOT NULL,
    at_us         INTEGER NOT NULL,
    revoked_at_us INTEGER
) STRICT;

CREATE INDEX approvals_of_plugin ON approvals (plugin_id, approval_id);

CREATE TABLE grants (
    plugin_id  TEXT NOT NULL REFERENCES plugins (plugin_id) ON DELETE CASCADE,
    permission TEXT NOT NULL,
    PRIMARY KEY (plugin_id, permission)
) STRICT, WITHOUT ROWID;

-- The tool contract as it was approved. `position` keeps the order in which the plugin listed its tools.
CREATE TABLE tool_pins (
    plugin_id       TEXT    NOT NULL REFERENCES plugins (plugin_id) ON DELETE CASCADE,
    tool            TEXT    NOT NULL,
    position        INTEGER NOT NULL,
    digest          TEXT    NOT NULL,
    definition_json TEXT    NOT NULL,
    PRIMARY KEY (plugin_id, tool)
) STRICT;

-- A row means that the person switched this tool off; no row means on.
CREATE TABLE disabled_tools (
    plugin_id TEXT NOT NULL REFERENCES plugins (plugin_id) ON DELETE CASCADE,
    tool      TEXT NOT NULL,
    PRIMARY KEY (plugin_id, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- No reference to `plugins`: the count goes on when a plugin is removed and installed again, so that a late event of
-- the removed one can never carry a number of the new one.
CREATE TABLE generations (
    plugin_id  TEXT    NOT NULL PRIMARY KEY,
    generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
