-- What happened. Nothing here refers to `plugins`: the record outlives the plugin it is about.

CREATE TABLE spans (
    seq             INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    trace_id        TEXT    NOT NULL,
    span_id         TEXT    NOT NULL,
    parent_span_id  TEXT,
    name            TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    plugin_id       TEXT,
    tool            TEXT,
    caller          TEXT,
    started_at_us   INTEGER NOT NULL,
    duration_us     INTEGER NOT NULL,
    outcome         TEXT    NOT NULL,
    attributes_json TEXT    NOT NULL,
    events_json     TEXT    NOT NULL
) STRICT;

-- A span is recorded once, however often it is handed in.
CREATE UNIQUE INDEX spans_identity ON spans (trace_id, span_id);
CREATE INDEX spans_of_plugin ON spans (plugin_id, seq);

CREATE TABLE events (
    seq         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at_us       INTEGER NOT NULL,
    plugin_id   TEXT,
    kind        TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    detail_json TEXT    NOT NULL
) STRICT;

CREATE INDEX events_of_plugin ON events (plugin_id, seq);

-- One row that a flush rewrites: committing it forces everything committed before it to the disk.
CREATE TABLE sync_mark (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    flushes INTEGER NOT NULL
) STRICT;

INSERT INTO sync_mark (id, flushes) VALUES (1, 0);
