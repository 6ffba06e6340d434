"""The journal: whatever happens to the file, what was answered for is there, and never anything else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnetes.cns.containers import Container
from subnetes.cns.errors import JournalError
from subnetes.cns.journal import Boot, Containers, Journal, Record, line, parse, read
from subnetes.ipam.pool import Assigned, Freed, Granted, Holder, LetGo, Move, Pool, State, replay

NC = Container(id="nc", subnet="blue", cidr="10.0.0.0/24", prefix_length=24, gateway="10.0.0.1")
MOVES: list[Move] = [
    Granted(nc="nc", ips=tuple((f"ip{i}", f"10.0.0.{i + 10}") for i in range(4)), at=1.0, programmed=True),
    Assigned(ids=("ip0",), holder=Holder("c1", "eth0", pod_name="a\n\\ü"), at=2.0),
    LetGo(ids=("ip3",), at=3.0),
    Freed(container_id="c1", ifname="eth0", at=4.0),
    Assigned(ids=("ip1",), holder=Holder("c2", "eth0", netns="/run/netns/x", netns_inode=7), at=5.0),
]
RECORDS: list[Record] = [Boot("boot-1"), Containers((NC,)), *MOVES]
LINES = [line(record) for record in RECORDS]
WHOLE = b"".join(LINES)


def prefixes() -> list[Pool]:
    return [replay(MOVES[:n]) for n in range(len(MOVES) + 1)]


def journal(path: Path, boot: str = "boot-1") -> Journal:
    return Journal(path / "journal", boot)


def started(path: Path) -> Journal:
    """One with all the moves in it, open."""
    made = journal(path)
    made.compact(Pool(), (NC,))
    for move in MOVES:
        made.append(move)
    return made


def test_cut_at_every_byte_it_is_what_was_written_whole_before_the_cut() -> None:
    for cut in range(len(WHOLE) + 1):
        found = parse(WHOLE[:cut])
        complete = WHOLE[:cut].count(b"\n")
        assert found.good_bytes == len(b"".join(LINES[:complete]))
        assert found.pool == replay(MOVES[: max(0, complete - 2)])
        assert found.containers == ((NC,) if complete >= 2 else ())


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_ends_the_history_there(at: int, change: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] ^= change
    found = parse(bytes(damaged))
    assert found.pool in prefixes()
    assert found.good_bytes <= at or bytes(damaged[: found.good_bytes]) == WHOLE[: found.good_bytes]


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_an_answer(data: bytes) -> None:
    assert parse(data).good_bytes <= len(data)
    assert parse(WHOLE + data).pool == prefixes()[-1]


def test_what_was_appended_is_loaded_and_appended_to(tmp_path: Path) -> None:
    started(tmp_path).close()
    again = journal(tmp_path)
    loaded, same_boot = again.load()
    assert same_boot
    assert loaded.pool == prefixes()[-1]
    again.append(Freed(container_id="c2", ifname="eth0", at=6.0))
    assert not read(again.path).pool.keys
    again.close()


def test_a_torn_end_is_gone_before_anything_is_appended(tmp_path: Path) -> None:
    first = started(tmp_path)
    first.close()
    first.path.write_bytes(first.path.read_bytes()[:-3])
    again = journal(tmp_path)
    loaded, _ = again.load()
    assert loaded.pool == prefixes()[-2]
    again.append(MOVES[-1])
    assert read(again.path).pool == prefixes()[-1]
    again.close()


def test_after_a_reboot_nothing_is_assigned_and_what_was_let_go_stays_so(tmp_path: Path) -> None:
    started(tmp_path).close()
    for _ in range(2):  # also for an agent that is killed before it wrote anything
        again = journal(tmp_path, "boot-2")
        loaded, same_boot = again.load(at=9.0)
        assert not same_boot
        assert loaded.exists
        assert not loaded.pool.keys
        assert loaded.pool.ip("ip3").state is State.PENDING_RELEASE
        assert again.is_closed
    again.compact(loaded.pool, loaded.containers)
    again.close()
    assert journal(tmp_path, "boot-2").load()[1]


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    loaded, same_boot = journal(tmp_path).load()
    assert not same_boot
    assert not loaded.exists
    assert len(loaded.pool) == 0


@pytest.mark.parametrize("written", [0, 5])
def test_a_full_disk_is_an_error_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    made = started(tmp_path)
    before = made.path.read_bytes()
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError, match="cannot write the journal"):
        made.append(Freed(container_id="c2", ifname="eth0", at=6.0))
    monkeypatch.undo()
    assert made.path.read_bytes() == before
    made.append(Freed(container_id="c2", ifname="eth0", at=6.0))
    assert not read(made.path).pool.keys
    made.close()


def test_a_compaction_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = started(tmp_path)
    monkeypatch.setattr(os, "write", lambda _fd, _data: 3)
    with pytest.raises(JournalError, match="full"):
        made.compact(Pool(), ())
    monkeypatch.undo()
    assert read(made.path).pool == prefixes()[-1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["journal"]
    made.close()


def test_a_compaction_says_the_same_in_less(tmp_path: Path) -> None:
    made = started(tmp_path)
    holder = Holder("c9", "eth0")
    for _ in range(50):
        made.append(Assigned(ids=("ip2",), holder=holder, at=7.0))
        made.append(Freed(container_id="c9", ifname="eth0", at=8.0))
    before, long = read(made.path), made.path.stat().st_size
    made.compact(before.pool, before.containers)
    assert made.path.stat().st_size < long / 5
    assert read(made.path).pool == before.pool
    assert made.path.stat().st_mode & 0o777 == 0o600
    made.close()


def test_a_bad_line_before_others_is_damage_and_a_torn_end_is_not() -> None:
    assert not parse(WHOLE).damaged
    assert not parse(WHOLE[:-3]).damaged
    assert not parse(b"").damaged
    assert parse(WHOLE.replace(LINES[3], b"x" + LINES[3][1:])).damaged
    assert parse(WHOLE + b"garbage\n").damaged
    assert parse(WHOLE + LINES[-1]).damaged  # what the pool cannot do was never written


def test_a_damaged_journal_is_kept_until_the_nnc_is_read_and_does_not_speak_for_every_pod(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = started(tmp_path)
    made.close()
    made.path.write_bytes(WHOLE.replace(LINES[-1], b"\0" * len(LINES[-1])) + b"\n")
    again = journal(tmp_path)
    loaded, trusted = again.load()
    assert (trusted, loaded.damaged, again.is_closed) == (False, True, True)
    assert loaded.pool == prefixes()[-2]
    assert "damaged" in caplog.text


def test_moves_that_belong_together_are_there_all_or_not_at_all() -> None:
    together = line(*MOVES[1:])
    for cut in range(len(together)):
        assert parse(b"".join(LINES[:3]) + together[:cut]).pool == prefixes()[1]
    assert parse(b"".join(LINES[:3]) + together).pool == prefixes()[-1]


def test_a_full_disk_does_not_keep_an_agent_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path).close()

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    again = journal(tmp_path)
    loaded, trusted = again.load()
    assert trusted
    assert loaded.pool == prefixes()[-1]
    again.close()


def test_a_journal_whose_file_was_removed_is_closed(tmp_path: Path) -> None:
    made = started(tmp_path)
    made.path.unlink()
    was_closed = made.is_closed
    assert was_closed
    made.compact(prefixes()[-1], (NC,))
    assert read(made.path).pool == prefixes()[-1]
    assert not made.is_closed
    made.close()
