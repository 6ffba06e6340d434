"""The plugin's socket: who may use it, what it survives, and in which order things are done."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subnetes.cns import endpoint
from subnetes.cns.errors import JournalError
from subnetes.cns.invocation import MOST_REQUEST
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal
from subnetes.cns.queue import folder_of
from tests.cni import pools
from tests.cni.requests import config, environment, parsed, request
from tests.harness.clients import eventually

ADD, DEL = environment("ADD"), environment("DEL")


@pytest.fixture
def ipam(tmp_path: Path) -> Iterator[Ipam]:
    made = pools.ipam(tmp_path, 2, wait=60)
    yield made
    made.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "cns.sock"


async def ask(path: Path, sent: bytes, end: bool = True) -> tuple[int, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(sent)
        if end:
            writer.write_eof()
        async with asyncio.timeout(20):
            return parsed(await reader.read())
    finally:
        writer.close()


async def test_a_pod_comes_and_goes(ipam: Ipam, path: Path) -> None:
    async with endpoint.serve(ipam, path):
        code, result = await ask(path, request(ADD, config()))
        assert (code, result["ips"][0]["address"]) == (0, "10.0.0.16/16")
        assert await ask(path, request(DEL, config())) == (0, None)
    assert not ipam.pool.keys


async def test_only_root_may_open_it_and_it_goes_with_the_agent(ipam: Ipam, path: Path) -> None:
    async with endpoint.serve(ipam, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()


async def test_a_folder_that_was_there_keeps_its_mode(ipam: Ipam, path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    async with endpoint.serve(ipam, path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


async def test_another_user_is_turned_away(ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_user", lambda _: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    async with endpoint.serve(ipam, path):
        code, error = await ask(path, request(ADD, config()))
        assert (code, error["code"]) == (1, 101)
        assert "1000" in error["msg"]
    assert not ipam.pool.keys


async def test_the_socket_of_a_killed_agent_is_replaced(ipam: Ipam, path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    async with endpoint.serve(ipam, path):
        assert (await ask(path, request(environment("STATUS"), config())))[0] == 0


async def test_a_second_agent_is_refused_and_the_first_serves_on(ipam: Ipam, path: Path) -> None:
    async with endpoint.serve(ipam, path):
        with pytest.raises(endpoint.Busy, match=f"another agent .pid {os.getpid()}. serves {path}"):
            async with endpoint.serve(ipam, path):
                pass
        assert (await ask(path, request(environment("STATUS"), config())))[0] == 0


async def test_a_path_that_the_kernel_cannot_take_is_said(ipam: Ipam, tmp_path: Path) -> None:
    with pytest.raises(endpoint.EndpointError, match="longer than 100 bytes"):
        async with endpoint.serve(ipam, tmp_path / ("x" * 100)):
            pass


@pytest.mark.parametrize(
    ("garbage", "end"),
    [
        (b"", True),
        (b"\0", True),
        (b"\0\0\0\x10CNI", True),
        (b"\0\0\0\0", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", False),
        (os.urandom(3) + b"\xff" * 2000, True),
        (request({"CNI_COMMAND": "ADD"}, b"{" * 5000), True),
        (request(ADD, b" " * MOST_REQUEST), True),
    ],
    ids=["nothing", "one byte", "cut short", "no variables", "http", "noise", "no json", "too long"],
)
async def test_garbage_is_answered_by_a_cni_error(ipam: Ipam, path: Path, garbage: bytes, end: bool) -> None:
    async with endpoint.serve(ipam, path):
        code, error = await ask(path, garbage, end)
        assert (code, error["code"] in {4, 6}) == (1, True)
        assert (await ask(path, request(environment("STATUS"), config())))[0] == 0
    assert not ipam.pool.keys


async def test_an_answer_longer_than_the_sockets_buffer_arrives_whole(ipam: Ipam, path: Path) -> None:
    long = "/" * 900_000
    async with endpoint.serve(ipam, path):
        code, said = await ask(path, request(ADD | {"CNI_CONTAINERID": long}, config()))
    assert code == 1
    assert long in said["msg"]


async def test_one_that_never_ends_its_request_is_cut_off(
    ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "SLOWEST_REQUEST", 0.0)
    monkeypatch.setattr(endpoint, "TEND_EVERY", 0.01)
    async with endpoint.serve(ipam, path):
        code, error = await ask(path, b"\0\0", end=False)
        assert (code, error["code"]) == (1, 5)


async def test_too_many_at_once_are_told_to_come_again(
    ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MOST_OPEN", 1)
    async with endpoint.serve(ipam, path):
        _, first = await asyncio.open_unix_connection(path)
        code, error = await ask(path, b"", end=False)
        assert (code, error["code"]) == (1, 11)
        first.close()


async def test_an_add_whose_plugin_was_killed_does_not_wait_on(
    ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "TEND_EVERY", 0.01)
    async with endpoint.serve(ipam, path):
        for name in ("c2", "c3"):
            await ask(path, request(environment("ADD", name), config()))
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(request(ADD, config()))
        writer.write_eof()
        await eventually(lambda: len(ipam.waiting) == 1)
        writer.close()
        await eventually(lambda: not ipam.waiting)


async def test_an_agent_that_stops_leaves_nobody_waiting(ipam: Ipam, path: Path) -> None:
    async with endpoint.serve(ipam, path):
        for name in ("c2", "c3"):
            await ask(path, request(environment("ADD", name), config()))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request(ADD, config()))
        writer.write_eof()
        await eventually(lambda: len(ipam.waiting) == 1)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    assert not ipam.waiting
    writer.close()


class TestQueuedDels:
    """FIELD row 6."""

    async def test_they_are_done_before_the_first_request(self, ipam: Ipam, path: Path) -> None:
        async with endpoint.serve(ipam, path):
            await ask(path, request(ADD, config()))
        _queue(path, DEL)
        async with endpoint.serve(ipam, path):
            assert not ipam.pool.keys

    async def test_one_never_overtakes_the_add_that_came_after_it(self, ipam: Ipam, path: Path) -> None:
        """The runtime gave the agent up, queued the DEL, and adds the same attachment again."""
        async with endpoint.serve(ipam, path):
            _, before = await ask(path, request(ADD, config()))
            _queue(path, DEL)
            _, after = await ask(path, request(ADD, config()))
            assert before["ips"] != after["ips"]
            assert ipam.pool.keys == {("c1", "eth0")}
            _queue(path, environment("DEL", "c7"))
            assert (await ask(path, request(ADD, config())))[1] == after

    async def test_while_one_cannot_be_done_no_add_is_answered(
        self, ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Done after it, the DEL would take the IP of the sandbox that was just told it has it."""
        async with endpoint.serve(ipam, path):
            await ask(path, request(ADD, config()))
            _queue(path, DEL)

            def full(*_: object) -> None:
                raise JournalError("no space left on the device")

            monkeypatch.setattr(Journal, "append", full)
            code, problem = await ask(path, request(ADD, config()))
            assert (code, problem["code"]) == (1, 5)
            assert "no space left" in problem["details"]
            monkeypatch.undo()
            assert (await ask(path, request(ADD, config())))[0] == 0
            assert ipam.pool.keys == {("c1", "eth0")}

    async def test_they_are_done_though_nobody_asks(
        self, ipam: Ipam, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(endpoint, "LOOK_EVERY", 0.01)
        async with endpoint.serve(ipam, path):
            await ask(path, request(ADD, config()))
            _queue(path, DEL)
            await eventually(lambda: not ipam.pool.keys)


def _queue(path: Path, variables: dict[str, str]) -> None:
    folder = folder_of(path)
    folder.mkdir(exist_ok=True)
    (folder / "1").write_bytes(request(variables, config()))
