-- The record of DNC. One text for SQLite and PostgreSQL: BYTEA is a blob to SQLite, and both compare it byte by byte.

-- Subnets of one network must not overlap: who declares one holds its network's row.
CREATE TABLE networks (
    id TEXT PRIMARY KEY
);

-- The row that every change of a subnet's addresses holds, with all that makes utilization a single read.
CREATE TABLE subnets (
    id TEXT PRIMARY KEY,
    network TEXT NOT NULL REFERENCES networks (id),
    name TEXT NOT NULL,
    family SMALLINT NOT NULL,
    cidr TEXT NOT NULL,
    gateway TEXT,                      -- as declared; NULL: the first address of the space
    exclude TEXT NOT NULL,             -- a JSON array
    declared SMALLINT NOT NULL,        -- 0: known from adopted NCs only
    reserved BIGINT NOT NULL,          -- rows in ips
    barred BIGINT NOT NULL,            -- of these, addresses that must not be given again (gateway, excludes)
    next_address BYTEA NOT NULL,       -- where the next search begins: 16 bytes, most significant first
    next_turn BIGINT NOT NULL,         -- of the next one who waits
    UNIQUE (network, name, family)
);

-- Which of 4096 neighbouring addresses are held. A page has a row once it was searched, and the first page with
-- room after any full one always has, so the index below finds the next room without passing the full ones.
CREATE TABLE pages (
    subnet TEXT NOT NULL REFERENCES subnets (id) ON DELETE CASCADE,
    number BYTEA NOT NULL,             -- address / 4096: 16 bytes; growing a subnet renumbers nothing
    used BYTEA NOT NULL,               -- bit n: address number * 4096 + n; least significant byte first, no trailing zeros
    room SMALLINT NOT NULL,            -- how many may still be given
    PRIMARY KEY (subnet, number)
);
CREATE INDEX pages_with_room ON pages (subnet, number) WHERE room > 0;

CREATE TABLE ncs (
    id TEXT PRIMARY KEY,
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    subnet TEXT NOT NULL REFERENCES subnets (id),
    primary_address TEXT NOT NULL,
    version BIGINT NOT NULL,
    target BIGINT NOT NULL,
    fence_uid TEXT NOT NULL,
    fence_version BIGINT NOT NULL,
    shown_as TEXT NOT NULL             -- the id in its NNC, if that was another NC's already; else empty
);
CREATE INDEX ncs_by_node ON ncs (cluster, node);
CREATE INDEX ncs_by_subnet ON ncs (subnet, cluster, node);

-- Every address that is held, primaries included (with an empty id). Its key is the last guard against two owners.
CREATE TABLE ips (
    subnet TEXT NOT NULL REFERENCES subnets (id),
    address TEXT NOT NULL,
    nc TEXT NOT NULL REFERENCES ncs (id),
    id TEXT NOT NULL,
    leaving SMALLINT NOT NULL,         -- 1: released, and held until the NNC shows it no longer
    PRIMARY KEY (subnet, address),
    UNIQUE (nc, id)
);
CREATE INDEX ips_by_id ON ips (id);

-- What adopted NCs show and cannot own: another has it, or it is outside of the subnet.
CREATE TABLE conflicts (
    nc TEXT NOT NULL REFERENCES ncs (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    address TEXT NOT NULL,
    PRIMARY KEY (nc, id, address)
);
CREATE INDEX conflicts_by_id ON conflicts (id);
CREATE INDEX conflicts_by_address ON conflicts (address);

-- Who waits for IPs of a subnet. Served in the order: primaries first, then by turn.
CREATE TABLE waits (
    subnet TEXT NOT NULL REFERENCES subnets (id) ON DELETE CASCADE,
    rank SMALLINT NOT NULL,            -- 0: for a primary, 1: for secondary IPs
    turn BIGINT NOT NULL,
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    nc TEXT REFERENCES ncs (id) ON DELETE CASCADE,
    since DOUBLE PRECISION NOT NULL,
    asked DOUBLE PRECISION NOT NULL,   -- when last; IPs are kept back only for those who still ask
    wants BIGINT NOT NULL,
    PRIMARY KEY (subnet, rank, turn)
);
CREATE UNIQUE INDEX waits_by_nc ON waits (nc);
CREATE INDEX waits_by_node ON waits (subnet, rank, cluster, node);
