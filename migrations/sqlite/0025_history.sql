-- What each change to a resource replaced, and who made it. `before` is the resource as it was, without its
-- status; NULL where there was none and for kinds whose contents are secret. `at` is in milliseconds since 1970.
CREATE TABLE history (
    revision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    mesh TEXT NOT NULL,
    name TEXT NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('create', 'update', 'delete')),
    author TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    before BLOB,
    bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (revision, kind, mesh, name)
);

CREATE INDEX history_of_resource ON history (kind, mesh, name, revision);
-- What decides how long an entry is kept, apart from what it holds.
CREATE INDEX history_size ON history (revision, bytes, at);

-- Nothing is known up to and with this revision.
CREATE TABLE history_floor (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
);

INSERT INTO history_floor (id, revision) SELECT 1, COALESCE(MAX(revision), 0) FROM meta;
