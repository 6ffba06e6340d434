"""What the agent must not forget, on disk: one line a move, with its checksum, appended before it counts.

`Ipam` writes it, `subnetes ipam check` reads it. It survives kill -9 at any instant, for the kernel has what
was written; it is not synced to the disk, for after a power cut no sandbox lives: the first line names the
boot, and what was assigned in another boot is void. A torn last line was never answered for, and is dropped;
a bad line before others is damage, after which the journal does not count as one that knows every sandbox.

    <crc32 of the JSON, 8 hexadecimal digits> <JSON>\\n

The JSON is a `Boot`, then `Containers` and the moves of the pool, by their tag; a list of them in one line
happened at once. Grown long, the file is
replaced by the shortest history of the same pool, by rename.
"""

import logging
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from subnetes.cns.containers import Container
from subnetes.cns.errors import JournalError
from subnetes.ipam.pool import Freed, Move, Pool, PoolError, apply

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
GROWN = 1 << 20  # bytes: some thousand pods' comings and goings


class Boot(msgspec.Struct, frozen=True, tag_field="move", tag=True):
    """The first line: whose boot the assignments below are of."""

    id: str


class Containers(msgspec.Struct, frozen=True, tag_field="move", tag=True):
    """The node's NCs from here on."""

    containers: tuple[Container, ...]


Record = Boot | Containers | Move
_decoder: msgspec.json.Decoder[Record | tuple[Record, ...]] = msgspec.json.Decoder(
    Record | tuple[Record, ...]
)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class Loaded:
    """What a journal says. `boot` is empty where there was none; `damaged`: more stood in it once."""

    boot: str
    pool: Pool
    containers: tuple[Container, ...]
    good_bytes: int
    damaged: bool = False

    @property
    def exists(self) -> bool:
        return bool(self.boot)


def this_boot(path: Path = BOOT_ID) -> str:
    return path.read_text().strip()


def line(*records: Record) -> bytes:
    """Several in one line count all or not at all, wherever the agent is killed."""
    body = _encoder.encode(records if len(records) > 1 else records[0])
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse(data: bytes) -> Loaded:
    """The longest valid beginning. Pure: any bytes are an answer, never an error."""
    so_far = Loaded("", Pool(), (), 0)
    for text in data.splitlines(keepends=True):
        after = _followed(so_far, text)
        if after is None:
            is_torn = so_far.good_bytes + len(text) == len(data) and not text.endswith(b"\n")
            return replace(so_far, damaged=not is_torn)
        so_far = after
    return so_far


def _followed(so_far: Loaded, text: bytes) -> Loaded | None:
    """With one line more; None if that cannot be one of this journal."""
    boot, pool, containers = so_far.boot, so_far.pool, so_far.containers
    records = _records(text)
    for record in records:
        if isinstance(record, Boot) == bool(boot):
            return None
        if isinstance(record, Boot):
            boot = record.id
        elif isinstance(record, Containers):
            containers = record.containers
        else:
            try:
                pool = apply(pool, record)
            except PoolError:
                return None
    return Loaded(boot, pool, containers, so_far.good_bytes + len(text)) if records else None


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


def _records(text: bytes) -> tuple[Record, ...]:
    """What a line says; nothing, if it is not whole."""
    body = text[9:-1]
    if not text.endswith(b"\n") or text[:9] != b"%08x " % zlib.crc32(body):
        return ()
    try:
        said = _decoder.decode(body)
    except msgspec.MsgspecError:
        return ()
    return said if isinstance(said, tuple) else (said,)


class Journal:
    """One file, one writer."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self._fd = -1
        self._size = 0
        self._after_compaction = 0

    def load(self, at: float = 0.0) -> tuple[Loaded, bool]:
        """What stands in it, and whether it is of this boot and whole.

        One that is, is ready to append to, its torn end cut off: on a full disk too. Any other file stays as
        it is until the first `compact`, so that an agent that is killed before it has read the NNC knows that
        it has to.
        """
        found = read(self.path)
        if found.damaged:
            log.error("%s is damaged after %d bytes: what came later is lost", self.path, found.good_bytes)
        if found.boot == self.boot_id:
            if not found.damaged:
                self._continue(found.good_bytes)
            return found, not found.damaged
        return replace(found, pool=without_assignments(found.pool, at)), False

    def append(self, *records: Record) -> None:
        """All of them or, on an error, none."""
        data = line(*records)
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
        """Not begun in this boot, its file was removed, or a write failed and could not be undone.

        `compact` opens it.
        """
        return self._fd < 0 or os.fstat(self._fd).st_nlink == 0

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

    def _continue(self, size: int) -> None:
        """Append after so many bytes of what is there."""
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.ftruncate(self._fd, size)
        except OSError as problem:
            self.close()
            raise JournalError(f"cannot open the journal {self.path}: {problem.strerror}") from problem
        self._size, self._after_compaction = size, 0

    def _undo(self) -> None:
        """Cut off what a failed write may have left, or nothing after it could be read again."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self.close()
