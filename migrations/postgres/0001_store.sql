-- Keys sort by byte value, as the index and the feed do; the locale of the database must not matter.

-- One history: its identity, its head, and how far back the change log reaches. Its row is the lock
-- that puts the commits of all replicas in one order.
CREATE TABLE meta (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    store_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    oldest BIGINT NOT NULL
) WITH (fillfactor = 10);

-- The resources as they are. Times are nanoseconds since 1970; an empty origin_zone is global.
CREATE TABLE resources (
    kind TEXT COLLATE "C" NOT NULL,
    mesh TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    origin_zone TEXT NOT NULL,
    display_name TEXT NOT NULL,
    labels TEXT NOT NULL,
    spec BYTEA NOT NULL,
    status BYTEA,
    owner_kind TEXT COLLATE "C",
    owner_mesh TEXT COLLATE "C",
    owner_name TEXT COLLATE "C",
    created BIGINT NOT NULL,
    modified BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    PRIMARY KEY (kind, mesh, name)
);

CREATE INDEX resources_owner ON resources (owner_kind, owner_mesh, owner_name) WHERE owner_kind IS NOT NULL;

-- The order in which they became so. `op` is 'put' or 'delete'; contents are in `resources`.
CREATE TABLE changes (
    revision BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    mesh TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('put', 'delete')),
    PRIMARY KEY (revision, ordinal)
);

-- Who acts for whom. A row stays when its lease ends, so that epochs only rise.
CREATE TABLE leases (
    name TEXT COLLATE "C" PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);

-- Small documents that change often and never enter the change log. Room is left in each page, so
-- that an update stays in it.
CREATE TABLE sessions (
    key TEXT COLLATE "C" PRIMARY KEY,
    document TEXT NOT NULL
) WITH (fillfactor = 70);
