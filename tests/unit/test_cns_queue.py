"""DELs that were queued on disk are done once, and only DELs."""

import json
import os
from collections.abc import Iterable
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

    def delete(
        self, container_id: str, ifname: str, pod_uid: str = "", addresses: Iterable[str] = ()
    ) -> list[str]:
        self.told = (pod_uid, list(addresses))
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


def test_one_that_cannot_be_read_does_not_hold_up_the_others(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "1").mkdir()
    (folder / ".2").mkdir()
    os.utime(folder / ".2", (0, 0))
    queued(folder, "3")
    pool = Pool()
    assert replay(pool, folder) == 1
    assert pool.released == [("c3", "eth0")]
    assert "cannot be read" in caplog.text


def test_what_the_runtime_remembers_of_the_pod_is_told_too(folder: Path) -> None:
    text = config(prevResult={"ips": [{"address": "10.0.0.7/24"}]})
    queued(folder, "1", text=json.dumps(text).encode())
    pool = Pool()
    replay(pool, folder)
    assert pool.told == (environment("DEL")["CNI_ARGS"].rpartition("K8S_POD_UID=")[2], ["10.0.0.7"])
