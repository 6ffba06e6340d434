"""Every object and its recent history, in one SQLite file.

    Refused                  an operation that the stored state does not allow
    ├── Exists               create: the key is taken
    ├── Missing              update, delete: there is no such key
    ├── Stale                update, delete: the object changed since it was read
    └── Expired              scan, changes: that revision was compacted away

    Busy                     another process has the data folder

The store is a log: a write adds a row under the next revision, and the newest row of a key is its present.
So lists at an exact revision, the resumption of watches and the state before a change are plain queries.
`current` names the newest row of every live key, so that reading the present costs what it returns. Of a
resource that is asked for by one field above all (pods by their node), `filed` names the rows by that field's
value before and after each write, so that a question with a value costs what was ever under that value.

A value is an object's JSON as it is served, its resourceVersion included. Keys are `namespace/name` or `name`
and sort as etcd's do. Calls are synchronous and come from one thread: a write takes some tens of
microseconds, less than handing it to another thread would.

Nothing is fsynced per write: a committed row is in the kernel's page cache and survives `kill -9` of this
process; only a power cut could take the last moments, and it leaves the file consistent (WAL, NORMAL).
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from subnetes.apiserver import queries
from subnetes.apiserver.queries import SCHEMA, Filed, Span, end
from subnetes.apiserver.selectors import field_value


class Refused(Exception):
    """An answer to the caller rather than an error of the store."""


class Exists(Refused):
    pass


class Missing(Refused):
    pass


class Stale(Refused):
    pass


class Expired(Refused):
    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


_CACHE_KIB = 32 << 10  # SQLite's own 2 MB do not hold the inner pages of a large cluster's tables


class Busy(Exception):
    """What the folder is."""


@dataclass(frozen=True, slots=True)
class Row:
    rv: int
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the log and the value that it replaced."""

    rv: int
    resource: str
    key: str
    value: bytes
    deleted: bool
    before: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    revision: int
    remaining: int


class Store:
    def __init__(self, folder: Path | None, fields: Mapping[str, str] | None = None) -> None:
        """Opens, or makes, the store in this folder; None keeps everything in memory.

        `fields` names, by resource, the field whose value `under` means in `scan` and `changes`.
        """
        self._fields = dict(fields or {})
        self._lock = _lock(folder) if folder else None
        self._db = sqlite3.connect(_file(folder) if folder else ":memory:", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._db.executescript(SCHEMA)
        self.compacted: int = self._db.execute("SELECT rv FROM compaction").fetchone()[0]
        newest: int = self._db.execute("SELECT coalesce(max(rv), 0) FROM log").fetchone()[0]
        # A compacted tombstone leaves no row behind, and a revision must never be given twice.
        self.revision = max(newest, self.compacted)
        for resource in self._fields:
            self._file_the_rest(resource)

    def close(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()
        if self._lock:
            self._lock.close()

    def get(self, resource: str, key: str) -> Row | None:
        query = """SELECT log.rv, log.value FROM current JOIN log USING (rv)
                   WHERE current.resource = ? AND current.key = ?"""
        found = self._db.execute(query, (resource, key)).fetchone()
        return Row(found[0], key, found[1]) if found else None

    def scan(
        self,
        resource: str,
        prefix: str = "",
        *,
        under: str | None = None,
        at: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Page:
        """The live objects of a namespace (`namespace/`) or of one key, in order, now or at a revision.

        With `under`, of these only what was ever filed under that value: all that have it, perhaps some more.
        """
        revision = self.revision if at is None else at
        if revision < self.compacted:
            raise Expired(revision, self.compacted)
        span = Span(resource, max(prefix, after + "\0" if after else ""), end(prefix))
        filed = self._filed(resource, under)
        now = revision >= self.revision
        query, parameters = queries.present(span, filed) if now else queries.past(span, filed, revision)
        fetched = self._db.execute(f"{query} LIMIT ?", (*parameters, -1 if limit is None else limit))
        rows = [Row(*row) for row in fetched]
        total = len(rows)
        if total == limit:
            total = self._db.execute(f"SELECT count(*) FROM ({query})", parameters).fetchone()[0]
        return Page(rows, revision, total - len(rows))

    def resources(self) -> list[str]:
        """The resources that have live objects."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT resource FROM current")]

    def changes(
        self, since: int, resource: str, prefix: str = "", *, under: str | None = None
    ) -> list[Change]:
        """What happened after a revision, oldest first; with `under`, to what had or got that value."""
        if since < self.compacted:
            raise Expired(since, self.compacted)
        span = Span(resource, prefix, end(prefix))
        query, parameters = queries.since(span, self._filed(resource, under), since)
        found = self._db.execute(f"{query} ORDER BY log.rv", parameters)
        return [Change(rv, res, key, value, bool(gone), old) for rv, res, key, value, gone, old in found]

    def create(self, resource: str, key: str, obj: dict[str, Any]) -> Row:
        """Store a new object; its metadata.resourceVersion is set in place."""
        if self.get(resource, key) is not None:
            raise Exists(key)
        return self._write(resource, key, obj, None)

    def update(self, resource: str, key: str, obj: dict[str, Any], expected: int) -> Row:
        return self._write(resource, key, obj, self._expect(resource, key, expected))

    def delete(self, resource: str, key: str, obj: dict[str, Any], expected: int) -> Row:
        """Remove an object, `obj` being its last state: watchers see it with the revision of the deletion."""
        return self._write(resource, key, obj, self._expect(resource, key, expected), deleted=True)

    def compact(self, rv: int) -> None:
        """Forget how things were before a revision; the state at the revision itself stays readable."""
        rv = min(rv, self.revision)
        if rv <= self.compacted:
            return
        superseded = """DELETE FROM log WHERE rv IN (SELECT older.rv FROM log AS newer JOIN log AS older
                        ON older.resource = newer.resource AND older.key = newer.key AND older.rv < newer.rv
                        WHERE newer.rv > :since AND newer.rv <= :rv)"""
        span = {"since": self.compacted, "rv": rv}
        with self._transaction():
            forgotten = self._db.execute(f"{superseded} RETURNING rv", span).fetchall()
            tombstones = "DELETE FROM log WHERE deleted AND rv > :since AND rv <= :rv RETURNING rv"
            forgotten += self._db.execute(tombstones, span).fetchall()
            self._db.executemany("DELETE FROM filed WHERE rv = ?", forgotten)
            self._db.execute("UPDATE compaction SET rv = :rv", span)
        self.compacted = rv

    def _expect(self, resource: str, key: str, expected: int) -> Row:
        row = self.get(resource, key)
        if row is None:
            raise Missing(key)
        if row.rv != expected:
            raise Stale(key)
        return row

    def _write(
        self, resource: str, key: str, obj: dict[str, Any], old: Row | None, *, deleted: bool = False
    ) -> Row:
        rv = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(rv)
        value = orjson.dumps(obj)
        with self._transaction():
            self._db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (rv, resource, key, deleted, value))
            if deleted:
                self._db.execute("DELETE FROM current WHERE resource = ? AND key = ?", (resource, key))
            else:
                self._db.execute("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", (resource, key, rv))
            if resource in self._fields:
                self._file_under(resource, rv, obj, orjson.loads(old.value) if old else obj)
        self.revision = rv
        return Row(rv, key, value)

    def _file_under(self, resource: str, rv: int, *states: Mapping[str, Any]) -> None:
        path = self._fields[resource]
        rows = [(resource, path, value, rv) for value in {field_value(state, path) for state in states}]
        self._db.executemany("INSERT INTO filed VALUES (?, ?, ?, ?)", rows)

    def _file_the_rest(self, resource: str) -> None:
        """File what was written before this field was filed, or by a release that did not."""
        missing = """SELECT rv FROM log WHERE resource = :resource
                     EXCEPT SELECT rv FROM filed WHERE resource = :resource AND field = :field"""
        found = self._db.execute(missing, {"resource": resource, "field": self._fields[resource]}).fetchall()
        with self._transaction():
            for (rv,) in found:
                query, parameters = queries.since(Span(resource), None, rv - 1)
                *_, new, _, old = self._db.execute(f"{query} AND log.rv = ?", (*parameters, rv)).fetchone()
                self._file_under(resource, rv, orjson.loads(new), orjson.loads(old or new))

    def _filed(self, resource: str, under: str | None) -> Filed | None:
        return None if under is None else Filed(resource, self._fields[resource], under)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _file(folder: Path) -> Path:
    """Secrets are in it, and SQLite would let the umask decide who reads it and its journal."""
    path = folder / "objects.db"
    path.touch(0o600)
    path.chmod(0o600)
    return path


def _lock(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (folder / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise Busy(f"another process (pid {owner}) uses {folder}") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
