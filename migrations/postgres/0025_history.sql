-- What each change to a resource replaced, and who made it. `before` is the resource as it was, without its
-- status; NULL where there was none and for kinds whose contents are secret. `at` is in milliseconds since 1970.
CREATE TABLE history (
    revision BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    mesh TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('create', 'update', 'delete')),
    author TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    before BYTEA,
    bytes BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    PRIMARY KEY (revision, kind, mesh, name)
);

CREATE INDEX history_of_resource ON history (kind, mesh, name, revision);
-- What decides how long an entry is kept, apart from what it holds.
CREATE INDEX history_size ON history (revision, bytes, at);

-- Nothing is known up to and with this revision.
CREATE TABLE history_floor (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
);

INSERT INTO history_floor (id, revision) SELECT 1, COALESCE(MAX(revision), 0) FROM meta;
