"""`subnetes webhook` as a process: large reviews beside small ones, hang-ups, rolling restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from subnetes.api.conversion import HUB, convert
from tests.harness.clients import eventually
from tests.webhook.world import (
    Webhook,
    authority,
    old_nnc,
    post,
    response_of,
    review,
    session,
    until_metric,
    webhook,
    with_files,
)

pytestmark = pytest.mark.slow

LARGE = [old_nnc(f"node-{number}", addresses=250) for number in range(300)]  # about 7 MB


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Webhook]:
    made = authority(tmp_path)
    with webhook(tmp_path, *with_files(made.issue("webhook")), "--drain=0") as running:
        yield running


def children(pid: int) -> list[int]:
    """The processes for large reviews; one that has yet to become such a process is not counted."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for each in found if b"subnetes.webhook.bulk" in _command(each)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def spooled(pid: int) -> list[str]:
    """What the process has open of large reviews."""
    links = map(_target, Path(f"/proc/{pid}/fd").iterdir())
    return [each for each in links if each.startswith(tempfile.gettempdir()) and "deleted" in each]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


async def stopped_children(pid: int, count: int) -> list[int]:
    """So many processes for large reviews, held in the middle of their work."""
    await eventually(lambda: len(children(pid)) >= count)
    held = children(pid)
    for each in held:
        os.kill(each, signal.SIGSTOP)
    return held


async def test_small_reviews_are_answered_while_large_ones_are_in_work(
    served: Webhook, tmp_path: Path
) -> None:
    body = review(LARGE)
    async with session(tmp_path / "ca" / "ca.crt") as client:
        large = [asyncio.create_task(post(client, served.url, body)) for _ in range(4)]
        held = await stopped_children(served.pid, 2)
        await until_metric(client, served.page, "webhook_bulk_reviews_total", 4)
        for number in range(100):
            status, answer = await post(client, served.url, review([old_nnc()], uid=f"small-{number}"))
            assert (status, response_of(answer)["uid"]) == (200, f"small-{number}")
        assert not any(each.done() for each in large)
        assert children(served.pid) == held, "two at a time, the others wait"
        for each in held:
            os.kill(each, signal.SIGCONT)
        wanted = [convert(each, HUB) for each in LARGE]
        for status, answer in await asyncio.gather(*large):
            assert status == 200
            assert response_of(answer)["convertedObjects"] == wanted
    assert children(served.pid) == []
    assert spooled(served.pid) == []


async def test_a_client_that_hangs_up_leaves_nothing_behind(served: Webhook, tmp_path: Path) -> None:
    async with session(tmp_path / "ca" / "ca.crt") as client:
        asking = asyncio.create_task(post(client, served.url, review(LARGE)))
        await stopped_children(served.pid, 1)
        assert spooled(served.pid)
        asking.cancel()
        await asyncio.wait([asking])
        await eventually(lambda: not children(served.pid) and not spooled(served.pid))
        assert (await post(client, served.url, review([old_nnc()])))[0] == 200


async def test_a_webhook_that_is_killed_leaves_nothing_behind(served: Webhook, tmp_path: Path) -> None:
    async with session(tmp_path / "ca" / "ca.crt") as client:
        asking = asyncio.create_task(post(client, served.url, review(LARGE)))
        (held,) = await stopped_children(served.pid, 1)
        served.child.kill()
        with pytest.raises(aiohttp.ClientError):
            await asking
        os.kill(held, signal.SIGCONT)
        await eventually(lambda: not Path(f"/proc/{held}").exists() or _is_dead(held))
    assert not list(Path(tempfile.gettempdir()).glob("subnetes-review-*"))


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Load:
    """Clients that send reviews without pause to whoever is ready, over connections that they keep."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client
        self.replicas: list[Webhook] = []
        self.answered = 0
        self.over = False

    async def look(self) -> None:
        """As the kubelet does: those whose /readyz says no are sent nothing new."""
        while not self.over:
            for each in list(self.replicas):
                async with self._client.get(f"{each.page}/readyz") as answer:
                    if answer.status != 200:
                        self.replicas.remove(each)
            await asyncio.sleep(0.02)

    async def send(self) -> None:
        """Any failure ends the test."""
        body = review([old_nnc(addresses=50)])
        while not self.over:
            status, answer = await post(self._client, self.replicas[0].url, body)
            assert status == 200
            assert response_of(answer)["result"]["status"] == "Success"
            self.answered += 1

    async def some_more(self, count: int = 50) -> None:
        wanted = self.answered + count
        await eventually(lambda: self.answered >= wanted)


async def test_a_rolling_restart_fails_no_request(tmp_path: Path) -> None:
    made = authority(tmp_path)
    words = (*with_files(made.issue("webhook")), "--drain=1")
    with ExitStack() as stack:
        async with session(made.file) as client, asyncio.TaskGroup() as tasks:
            load = Load(client)
            running = stack.enter_context(webhook(tmp_path, *words, name="0"))
            load.replicas = [running]
            for work in (load.look(), *(load.send() for _ in range(8))):
                tasks.create_task(work)
            for number in range(1, 4):
                await load.some_more()
                following = await asyncio.to_thread(
                    stack.enter_context, webhook(tmp_path, *words, name=str(number))
                )
                load.replicas.append(following)
                running.child.process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(running.child.process.wait, 60)
                assert code == 0, running.child.tail()
                running = following
                await load.some_more()
            load.over = True


async def test_a_review_under_way_is_finished_when_asked_to_stop(served: Webhook, tmp_path: Path) -> None:
    async with session(tmp_path / "ca" / "ca.crt") as client:
        asking = asyncio.create_task(post(client, served.url, review(LARGE)))
        (held,) = await stopped_children(served.pid, 1)
        served.child.process.send_signal(signal.SIGTERM)
        await eventually(lambda: not _listens(served.url))
        os.kill(held, signal.SIGCONT)
        status, answer = await asking
        assert status == 200
        assert len(response_of(answer)["convertedObjects"]) == len(LARGE)
    assert await asyncio.to_thread(served.child.process.wait, 60) == 0


def _listens(url: str) -> bool:
    port = f":{int(url.rpartition(':')[2].partition('/')[0]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(port) and row[3] == "0A" for row in rows)
