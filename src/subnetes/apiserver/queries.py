"""The SQL of the store: its tables, and how objects are found by key, by revision and by a filed value.

`store.py` runs these. Each is written so that SQLite can take one way only (CROSS JOIN keeps the order of
tables, `+` keeps an index out), for nothing here ever runs ANALYZE.
"""

from typing import NamedTuple

SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    rv INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL,
    deleted INTEGER NOT NULL, value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS log_by_key ON log (resource, key, rv);
CREATE TABLE IF NOT EXISTS current (
    resource TEXT NOT NULL, key TEXT NOT NULL, rv INTEGER NOT NULL, PRIMARY KEY (resource, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS filed (
    resource TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, rv INTEGER NOT NULL,
    PRIMARY KEY (resource, field, value, rv)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS filed_by_rv ON filed (rv);
CREATE TABLE IF NOT EXISTS compaction (id INTEGER PRIMARY KEY CHECK (id = 0), rv INTEGER NOT NULL);
INSERT OR IGNORE INTO compaction VALUES (0, 0);
"""
LAST = "\U0010ffff"

Parameters = tuple[str | int, ...]


class Span(NamedTuple):
    resource: str
    first: str = ""
    end: str = LAST

    @property
    def is_one_key(self) -> bool:
        return self.end == f"{self.first}\0"


class Filed(NamedTuple):
    resource: str
    field: str
    value: str


UNDER = "filed.resource = ? AND filed.field = ? AND filed.value = ?"


def present(span: Span, filed: Filed | None) -> tuple[str, Parameters]:
    if filed is None:
        query = """SELECT log.rv, log.key, log.value FROM current CROSS JOIN log USING (rv)
                   WHERE current.resource = ? AND current.key >= ? AND current.key < ?
                   ORDER BY current.key"""
        return query, span
    query = f"""SELECT log.rv, log.key, log.value FROM filed CROSS JOIN log USING (rv) CROSS JOIN current
                ON current.resource = log.resource AND current.key = log.key AND current.rv = log.rv
                WHERE {UNDER} AND log.key >= ? AND log.key < ? ORDER BY log.key"""
    return query, (*filed, span.first, span.end)


def past(span: Span, filed: Filed | None, revision: int) -> tuple[str, Parameters]:
    chosen = "resource = ? AND key >= ? AND key < ?"
    parameters: Parameters = (*span, revision)
    if filed is not None:
        keys = f"SELECT log.key FROM filed CROSS JOIN log USING (rv) WHERE {UNDER}"
        chosen = f"resource = ? AND +key >= ? AND +key < ? AND key IN ({keys})"
        parameters = (*span, *filed, revision)
    # SQLite takes the bare columns beside max() from the row that has the maximum.
    query = f"""SELECT rv, key, value FROM (SELECT max(rv) AS rv, key, value, deleted FROM log
                WHERE {chosen} AND rv <= ? GROUP BY key) WHERE NOT deleted ORDER BY key"""
    return query, parameters


def since(span: Span, filed: Filed | None, rv: int) -> tuple[str, Parameters]:
    """The changes after a revision: by revision, unless something narrower was asked for."""
    columns = """log.rv, log.resource, log.key, log.value, log.deleted,
                 (SELECT value FROM (SELECT value, deleted FROM log AS old
                    WHERE old.resource = log.resource AND old.key = log.key AND old.rv < log.rv
                    ORDER BY old.rv DESC LIMIT 1) WHERE NOT deleted)"""
    if filed is not None:
        query = f"""SELECT {columns} FROM filed CROSS JOIN log USING (rv)
                    WHERE {UNDER} AND filed.rv > ? AND log.key >= ? AND log.key < ?"""
        return query, (*filed, rv, span.first, span.end)
    if span.is_one_key:
        return f"SELECT {columns} FROM log WHERE resource = ? AND key = ? AND rv > ?", (*span[:2], rv)
    return f"SELECT {columns} FROM log WHERE +resource = ? AND key >= ? AND key < ? AND rv > ?", (*span, rv)


def end(prefix: str) -> str:
    """The first key after all of `namespace/` (`0` follows `/`), or after the one key that is meant."""
    if not prefix:
        return LAST
    return f"{prefix[:-1]}0" if prefix.endswith("/") else f"{prefix}\0"
