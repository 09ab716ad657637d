-- One history: its identity, its head, and how far back the change log reaches.
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    oldest INTEGER NOT NULL
);

-- The resources as they are. Times are nanoseconds since 1970; an empty origin_zone is global.
CREATE TABLE resources (
    kind TEXT NOT NULL,
    mesh TEXT NOT NULL,
    name TEXT NOT NULL,
    origin_zone TEXT NOT NULL,
    display_name TEXT NOT NULL,
    labels TEXT NOT NULL CHECK (json_valid(labels)),
    spec BLOB NOT NULL,
    status BLOB,
    owner_kind TEXT,
    owner_mesh TEXT,
    owner_name TEXT,
    created INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (kind, mesh, name)
);

CREATE INDEX resources_owner ON resources (owner_kind, owner_mesh, owner_name) WHERE owner_kind IS NOT NULL;

-- The order in which they became so. `op` is 'put' or 'delete'; contents are in `resources`.
CREATE TABLE changes (
    revision INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    mesh TEXT NOT NULL,
    name TEXT NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('put', 'delete')),
    PRIMARY KEY (revision, ordinal)
) WITHOUT ROWID;

-- Who acts for whom. A row stays when its lease ends, so that epochs only rise. `until` is in
-- seconds since 1970.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until REAL NOT NULL
) WITHOUT ROWID;

-- Small documents that change often and never enter the change log.
CREATE TABLE sessions (
    key TEXT PRIMARY KEY,
    document TEXT NOT NULL
) WITHOUT ROWID;
