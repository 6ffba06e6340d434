"""What the agent must not forget, on disk: one line a move, with its checksum, appended before it counts.

`Ipam` writes it, `subnetes ipam check` reads it. It survives kill -9 at any instant, for the kernel has what
was written; it is not synced to the disk, for after a power cut no sandbox lives: the first line names the
boot, and what was assigned in another boot is void. A torn last line was never answered for, and is dropped.

    <crc32 of the JSON, 8 hexadecimal digits> <JSON>\\n

The JSON is a `Boot`, then `Containers` and the moves of the pool, by their tag. Grown long, the file is
replaced by the shortest history of the same pool, by rename.
"""

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from subnetes.cns.containers import Container
from subnetes.cns.errors import JournalError
from subnetes.ipam.pool import Freed, Move, Pool, PoolError, apply

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
GROWN = 1 << 20  # bytes: some thousand pods' comings and goings


class Boot(msgspec.Struct, frozen=True, tag_field="move", tag=True):
    """The first line: whose boot the assignments below are of."""

    id: str


class Containers(msgspec.Struct, frozen=True, tag_field="move", tag=True):
    """The node's NCs from here on."""

    containers: tuple[Container, ...]


Record = Boot | Containers | Move
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class Loaded:
    """What a journal says. `boot` is empty where there was none."""

    boot: str
    pool: Pool
    containers: tuple[Container, ...]
    good_bytes: int

    @property
    def exists(self) -> bool:
        return bool(self.boot)


def this_boot(path: Path = BOOT_ID) -> str:
    return path.read_text().strip()


def line(record: Record) -> bytes:
    body = _encoder.encode(record)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse(data: bytes) -> Loaded:
    """The longest valid beginning. Pure: any bytes are an answer, never an error."""
    boot, pool, good = "", Pool(), 0
    containers: tuple[Container, ...] = ()
    for text in data.splitlines(keepends=True):
        record = _record(text)
        if record is None or isinstance(record, Boot) == bool(boot):
            break
        if isinstance(record, Boot):
            boot = record.id
        elif isinstance(record, Containers):
            containers = record.containers
        else:
            try:
                pool = apply(pool, record)
            except PoolError:
                break
        good += len(text)
    return Loaded(boot, pool, containers, good)


def read(path: Path) -> Loaded:
    """For those who only look: an agent may be writing it."""
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return Loaded("", Pool(), (), 0)
    except OSError as problem:
        raise JournalError(f"cannot read the journal {path}: {problem.strerror}") from problem


def without_assignments(pool: Pool, at: float) -> Pool:
    """The pool after a reboot: no sandbox of it lives. What was let go stays so."""
    for container_id, ifname in sorted(pool.keys):
        pool = apply(pool, Freed(container_id=container_id, ifname=ifname, at=at))
    return pool


def _record(text: bytes) -> Record | None:
    body = text[9:-1]
    if not text.endswith(b"\n") or text[:9] != b"%08x " % zlib.crc32(body):
        return None
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None


class Journal:
    """One file, one writer."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self._fd = -1
        self._size = 0
        self._after_compaction = 0

    def load(self, at: float = 0.0) -> tuple[Loaded, bool]:
        """What stands in it, and whether it is of this boot.

        One of this boot is ready to append to, its torn end cut off. Any other file stays as it is until the
        first `compact`, so that an agent that is killed before it has read the NNC knows that it has to.
        """
        found = read(self.path)
        if found.boot == self.boot_id:
            self.compact(found.pool, found.containers)
            return found, True
        return replace(found, pool=without_assignments(found.pool, at)), False

    def append(self, *records: Record) -> None:
        """All of them in one write; on an error none counts."""
        data = b"".join(map(line, records))
        try:
            if self._fd < 0:
                raise OSError(0, "it is not open")
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(0, f"only {written} of {len(data)} bytes could be written")
        except OSError as problem:
            self._undo()
            raise JournalError(f"cannot write the journal {self.path}: {problem.strerror}") from problem
        self._size += len(data)

    @property
    def is_closed(self) -> bool:
        """Not begun in this boot, or a write failed and could not be undone: `compact` opens it."""
        return self._fd < 0

    @property
    def is_long(self) -> bool:
        return self._size > GROWN + 2 * self._after_compaction

    def compact(self, pool: Pool, containers: Sequence[Container]) -> None:
        """Replace the file by the shortest one that says the same."""
        records: Iterable[Record] = [Boot(self.boot_id), Containers(tuple(containers)), *pool.moves()]
        data = b"".join(map(line, records))
        new = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, data) != len(data):
                    raise OSError(0, "the disk is full")
                new.rename(self.path)
            except BaseException:
                os.close(fd)
                new.unlink(missing_ok=True)
                raise
        except OSError as problem:
            raise JournalError(f"cannot write the journal {self.path}: {problem.strerror}") from problem
        self.close()
        self._fd, self._size, self._after_compaction = fd, len(data), len(data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _undo(self) -> None:
        """Cut off what a failed write may have left, or nothing after it could be read again."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self.close()
