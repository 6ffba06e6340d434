"""DELs that were queued on disk are done once, and only DELs."""

import os
from pathlib import Path

import pytest

from subnetes.cns.errors import JournalError
from subnetes.cns.queue import folder_of, replay
from tests.cni.requests import config, environment, request


class Pool:
    """Remembers what was released; full of `broken`."""

    def __init__(self, broken: str = "") -> None:
        self.released: list[tuple[str, str]] = []
        self._broken = broken

    def delete(self, container_id: str, ifname: str) -> list[str]:
        if container_id == self._broken:
            raise JournalError("no space left on the device")
        self.released.append((container_id, ifname))
        return []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = folder_of(tmp_path / "cns.sock")
    made.mkdir()
    return made


def queued(
    folder: Path, name: str, command: str = "DEL", text: bytes = b"{}", container_id: str = ""
) -> None:
    (folder / name).write_bytes(request(environment(command, container_id or f"c{name}"), text))


def test_they_are_done_oldest_first_and_taken_away(folder: Path) -> None:
    for name in ("3", "1", "2"):
        queued(folder, name)
    pool = Pool()
    assert replay(pool, folder) == 3
    assert pool.released == [("c1", "eth0"), ("c2", "eth0"), ("c3", "eth0")]
    assert not list(folder.iterdir())


def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert replay(Pool(), tmp_path / "none") == 0


def test_a_config_that_is_no_longer_good_is_no_reason_to_keep_an_ip(folder: Path) -> None:
    queued(folder, "1", text=str(config(name=None)).encode())
    pool = Pool()
    replay(pool, folder)
    assert pool.released == [("c1", "eth0")]


def test_what_is_no_del_is_dropped_and_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    queued(folder, "1", command="ADD")
    queued(folder, "2", container_id="../../etc")
    (folder / "3").write_bytes(b"garbage")
    queued(folder, "4")
    pool = Pool()
    assert replay(pool, folder) == 1
    assert pool.released == [("c4", "eth0")]
    assert not list(folder.iterdir())
    assert caplog.text.count("is no DEL and is dropped") == 3


def test_what_the_pool_cannot_do_now_stays(folder: Path) -> None:
    for name in ("1", "2"):
        queued(folder, name)
    with pytest.raises(JournalError):
        replay(Pool(broken="c2"), folder)
    assert [each.name for each in folder.iterdir()] == ["2"]
    later = Pool()
    assert replay(later, folder) == 1
    assert later.released == [("c2", "eth0")]


def test_half_written_files_are_left_to_their_plugin_for_a_while(folder: Path) -> None:
    queued(folder, ".new")
    queued(folder, ".old")
    os.utime(folder / ".old", (0, 0))
    assert replay(Pool(), folder) == 0
    assert [each.name for each in folder.iterdir()] == [".new"]
