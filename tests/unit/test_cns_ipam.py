"""ADD, DEL, CHECK and GC over the pool: who gets what, in which order, and what the journal says of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cns.errors import JournalError, Mismatch, NoAddress, NotReady, UnknownAttachment
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal, read
from subnetes.cns.reconciliation import IN_USE, LOST
from subnetes.ipam.pool import Holder, State


class Namespaces:
    """By path; what is not in it is gone."""

    def __init__(self, **inodes: int) -> None:
        self.inodes = inodes

    def inode(self, path: str) -> int | None:
        return self.inodes.get(path)


def nc(
    name: str = "nc", count: int = 3, version: int = 1, v6: bool = False, subnet: str = "blue"
) -> NetworkContainer:
    form = "fd00::{}" if v6 else "10.0.0.{}"
    return NetworkContainer(
        id=name,
        version=version,
        subnet_name=subnet,
        subnet_address_space="fd00::/64" if v6 else "10.0.0.0/24",
        default_gateway=form.format(1),
        secondary_ips=[SecondaryIP(id=f"{name}-{i}", address=form.format(10 + i)) for i in range(count)],
    )


def nnc(*containers: NetworkContainer, released: tuple[str, ...] = ()) -> NodeNetworkConfig:
    return NodeNetworkConfig(
        spec=NodeNetworkConfigSpec(released_ips=list(released)),
        status=NodeNetworkConfigStatus(network_containers=list(containers)),
    )


def pod(container: str, uid: str = "", netns: str = "", network: str = "pods") -> Holder:
    return Holder(container, "eth0", network=network, pod_uid=uid, netns=netns)


def made(folder: Path, boot: str = "boot", namespaces: Namespaces | None = None) -> Ipam:
    return Ipam(Journal(folder / "journal", boot), wait=0.05, namespaces=namespaces or Namespaces())


@pytest.fixture
def ipam(tmp_path: Path) -> Ipam:
    opened = made(tmp_path)
    opened.reconcile(nnc(nc()))
    return opened


def written(folder: Path) -> object:
    return read(folder / "journal").pool


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_repeated_add_is_answered_the_same(ipam: Ipam, tmp_path: Path) -> None:
    (first,) = await ipam.add(pod("c1"))
    (again,) = await ipam.add(pod("c1"))
    (other,) = await ipam.add(pod("c2"))
    assert first == again
    assert (first.address, first.prefix_length, first.gateway) == ("10.0.0.10", 24, "10.0.0.1")
    assert other.address != first.address
    assert written(tmp_path) == ipam.pool


async def test_a_late_del_of_an_old_sandbox_frees_nothing_of_the_new_one(ipam: Ipam) -> None:
    await ipam.add(pod("old", uid="u"))
    (new,) = await ipam.add(pod("new", uid="u"))
    assert ipam.delete("old", "eth0") == ["10.0.0.10"]
    assert ipam.delete("old", "eth0") == []
    assert ipam.delete("new", "eth1") == []
    ipam.check("new", "eth0", [new.address])


async def test_a_freed_ip_rests_before_it_is_used_again(ipam: Ipam) -> None:
    await ipam.add(pod("c1"))
    ipam.delete("c1", "eth0")
    (given,) = await ipam.add(pod("c2"))
    assert given.address == "10.0.0.11"


async def test_with_no_ip_free_an_add_waits_for_the_grant_first_come_first_served(ipam: Ipam) -> None:
    for i in range(3):
        await ipam.add(pod(f"c{i}"))
    waiting = [asyncio.create_task(ipam.add(pod(f"w{i}"), wait=5)) for i in range(3)]
    await settle()
    assert [each.holder.container_id for each in ipam.waiting] == ["w0", "w1", "w2"]
    ipam.reconcile(nnc(nc(count=5, version=2)))
    (first,), (second,) = await waiting[0], await waiting[1]
    assert (first.address, second.address) == ("10.0.0.13", "10.0.0.14")
    ipam.delete("c0", "eth0")
    assert (await waiting[2])[0].address == "10.0.0.10"
    assert ipam.waiting == ()


async def test_an_add_does_not_overtake_those_in_line(tmp_path: Path) -> None:
    """Dual stack: the one in line lacks only its IPv6 address, and takes nothing until it can have both."""
    ipam = made(tmp_path)
    ipam.reconcile(nnc(nc("four", 2), nc("six", 0, v6=True), nc("other", 0, subnet="green")))
    first = asyncio.create_task(ipam.add(pod("w0"), wait=5))
    second = asyncio.create_task(ipam.add(pod("w1"), wait=5))
    await settle()
    assert ipam.pool.count("four", State.AVAILABLE) == 2  # all or nothing
    ipam.reconcile(nnc(nc("four", 2), nc("six", 1, version=2, v6=True), nc("other", 0, subnet="green")))
    four, six = await first
    assert (four.family, six.family) == (4, 6)
    assert not second.done()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert ipam.waiting == ()


async def test_add_now_is_add_without_the_wait(ipam: Ipam, tmp_path: Path) -> None:
    now = ipam.add_now(pod("c1"))
    assert now == await ipam.add(pod("c1"))
    assert written(tmp_path) == ipam.pool
    assert ipam.add_now(pod("c2"), "green") is None
    assert ipam.pool.keys == {("c1", "eth0")}


async def test_add_now_overtakes_nobody_in_line(tmp_path: Path) -> None:
    ipam = made(tmp_path)
    assert ipam.add_now(pod("c0")) is None  # the NNC has not been read
    ipam.reconcile(nnc(nc(count=0)))
    first = asyncio.create_task(ipam.add(pod("first"), wait=5))
    await settle()
    ipam.reconcile(nnc(nc(count=2, version=2)))
    assert ipam.add_now(pod("second")) is None  # the first has its IP, but not its answer
    await first
    assert ipam.add_now(pod("second")) is not None


async def test_no_ip_in_time_says_which_subnet_and_what_to_do(ipam: Ipam) -> None:
    told: list[str] = []
    ipam.starved = lambda holder, why: told.append(f"{holder.container_id}: {why}")
    full = nc(count=0, version=2)
    full.status = "NCUpdateSubnetFullError"
    ipam.reconcile(nnc(full))
    with pytest.raises(NoAddress, match=r"subnet blue \(10.0.0.0/24\).*is full.*enlarge"):
        await ipam.add(pod("c1"))
    assert len(told) == 1
    assert told[0].startswith("c1: no IP of subnet blue")
    with pytest.raises(NoAddress, match="red"):
        await ipam.add(pod("c1"), subnet="red", wait=0)


async def test_a_del_ends_the_add_that_still_waits(ipam: Ipam) -> None:
    ipam.reconcile(nnc(nc(count=0, version=2)))
    waiting = asyncio.create_task(ipam.add(pod("c1"), wait=5))
    await settle()
    ipam.delete("c1", "eth0")
    with pytest.raises(NoAddress, match="deleted"):
        await waiting
    ipam.reconcile(nnc(nc(count=1, version=3)))
    assert not ipam.pool.keys


async def test_a_runtime_that_asks_twice_gets_one_ip(ipam: Ipam) -> None:
    ipam.reconcile(nnc(nc(count=0, version=2)))
    both = [asyncio.create_task(ipam.add(pod("c1"), wait=5)) for _ in range(2)]
    await settle()
    ipam.reconcile(nnc(nc(count=3, version=3)))
    first, second = await asyncio.gather(*both)
    assert first == second
    assert ipam.pool.count("nc", State.ASSIGNED) == 1


async def test_not_ready_before_the_nnc_is_read_or_without_an_nc(tmp_path: Path) -> None:
    ipam = made(tmp_path)
    with pytest.raises(NotReady, match="not read"):
        ipam.ready()
    with pytest.raises(NotReady):
        await ipam.add(pod("c1"))
    ipam.reconcile(nnc())
    with pytest.raises(NotReady):
        ipam.ready()
    ipam.reconcile(nnc(nc(count=0)))
    ipam.ready()  # an empty pool is no reason


async def test_check(ipam: Ipam) -> None:
    (given,) = await ipam.add(pod("c1"))
    ipam.check("c1", "eth0", [f"{given.address}/24", "192.0.2.1/24"])
    with pytest.raises(Mismatch, match=given.address):
        ipam.check("c1", "eth0", ["10.0.0.99/24"])
    with pytest.raises(UnknownAttachment, match="c9"):
        ipam.check("c9", "eth0", [])


async def test_gc_frees_what_is_not_valid_on_that_network_alone(ipam: Ipam) -> None:
    await ipam.add(pod("c1"))
    await ipam.add(pod("c2"))
    await ipam.add(pod("c3", network="other"))
    assert ipam.gc("pods", {("c1", "eth0")}) == 1
    assert ipam.pool.keys == {("c1", "eth0"), ("c3", "eth0")}


async def test_a_pods_former_sandbox_is_released_when_its_namespace_is_gone(tmp_path: Path) -> None:
    namespaces = Namespaces(old=1, new=2)
    ipam = made(tmp_path, namespaces=namespaces)
    ipam.reconcile(nnc(nc()))
    await ipam.add(pod("old", uid="u", netns="old"))
    await ipam.add(pod("other", uid="v", netns="other"))
    await ipam.add(pod("new", uid="u", netns="new"))
    assert ipam.pool.by_key(("old", "eth0"))  # it lives
    ipam.delete("new", "eth0")
    del namespaces.inodes["old"]
    await ipam.add(pod("newer", uid="u", netns="new"))
    assert ipam.pool.keys == {("newer", "eth0"), ("other", "eth0")}
    assert ipam.counts.stale == 1


async def test_a_restart_answers_the_same_and_without_an_api_server_too(ipam: Ipam, tmp_path: Path) -> None:
    (first,) = await ipam.add(pod("c1"))
    ipam.let_go(["nc-2"])
    ipam.close()
    again = made(tmp_path)
    with pytest.raises(NotReady):
        again.ready()
    again.open()
    assert await again.add(pod("c1")) == [first]
    assert (await again.add(pod("c2")))[0].address == "10.0.0.11"
    with pytest.raises(NoAddress):
        await again.add(pod("c3"))  # what was let go is not handed out


async def test_after_a_reboot_the_nnc_comes_first(ipam: Ipam, tmp_path: Path) -> None:
    await ipam.add(pod("c1"))
    ipam.let_go(["nc-2"])
    ipam.close()
    for _ in range(2):  # an agent that is killed before the NNC came must still wait for it
        again = made(tmp_path, boot="another")
        with pytest.raises(NotReady):
            again.open()
    again.reconcile(nnc(nc(version=1), released=("nc-1",)))  # the journal lost this one with the power
    assert {ip.id: ip.state for ip in again.pool} == {
        "nc-0": State.AVAILABLE,
        "nc-1": State.PENDING_RELEASE,
        "nc-2": State.PENDING_RELEASE,
    }
    assert written(tmp_path) == again.pool
    again.close()
    made(tmp_path, boot="another").open()


async def test_a_taken_ip_is_not_handed_out_again_after_its_pod(ipam: Ipam) -> None:
    await ipam.add(pod("c1"))
    taken = nc(version=2)
    taken.secondary_ips = (taken.secondary_ips or [])[1:]
    ipam.reconcile(nnc(taken))
    ipam.reconcile(nnc(taken))
    assert ipam.counts.drift[IN_USE] == 1  # once, though it is seen at each look
    ipam.check("c1", "eth0", ["10.0.0.10"])
    ipam.delete("c1", "eth0")
    assert "nc-0" not in ipam.pool
    assert not ipam.drift


async def test_without_a_journal_running_pods_keep_what_they_say_they_have(tmp_path: Path) -> None:
    ipam = made(tmp_path)
    lost = Holder(f"{LOST}u", "eth0", pod_uid="u")
    ipam.reconcile(nnc(nc()), {"10.0.0.10": lost})
    assert [ip.address for ip in ipam.pool.by_key(lost.key)] == ["10.0.0.10"]
    await ipam.add(pod("c1", uid="u"))  # its kubelet made it anew, so the former one is stopped
    assert ipam.pool.keys == {("c1", "eth0")}


async def test_what_cannot_be_journaled_does_not_happen(
    ipam: Ipam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ipam.add(pod("c1"))
    before = ipam.pool

    def broken(*_: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(Journal, "append", broken)
    with pytest.raises(JournalError):
        await ipam.add(pod("c2"))
    with pytest.raises(JournalError):
        ipam.delete("c1", "eth0")
    with pytest.raises(JournalError):
        ipam.let_go(["nc-1"])
    assert ipam.pool == before
    monkeypatch.undo()
    assert ipam.delete("c1", "eth0") == ["10.0.0.10"]
    assert written(tmp_path) == ipam.pool


async def test_a_long_journal_becomes_short(
    ipam: Ipam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subnetes.cns.journal.GROWN", 2000)
    for i in range(100):
        await ipam.add(pod(f"c{i}"))
        ipam.delete(f"c{i}", "eth0")
    assert (tmp_path / "journal").stat().st_size < 5000
    assert written(tmp_path) == ipam.pool


async def test_a_repeated_add_with_another_namespace_is_swept_by_that_one(tmp_path: Path) -> None:
    ipam = made(tmp_path, namespaces=Namespaces(first=1, second=2))
    ipam.reconcile(nnc(nc()))
    before = await ipam.add(pod("c1", netns="first"))
    (old,) = ipam.holders()
    assert await ipam.add(pod("c1", netns="second")) == before
    (new,) = ipam.holders()
    assert (new.netns, new.netns_inode) == ("second", 2)
    assert written(tmp_path) == ipam.pool
    assert ipam.sweep([old]) == 0  # found lost before it was attached anew
    assert ipam.sweep([new]) == 1


async def test_an_add_whose_del_came_before_its_answer_was_sent_fails(ipam: Ipam) -> None:
    ipam.reconcile(nnc(nc(count=0, version=2)))
    waiting = asyncio.create_task(ipam.add(pod("c1"), wait=5))
    await settle()
    ipam.reconcile(nnc(nc(count=1, version=3)))  # it has its IP now, but has not run yet
    assert ipam.delete("c1", "eth0") == ["10.0.0.10"]
    with pytest.raises(NoAddress, match="deleted"):
        await waiting


async def test_without_an_nnc_nothing_is_handed_out_and_pods_keep_what_they_have(
    ipam: Ipam, tmp_path: Path
) -> None:
    """Its Node was away longer than the grace: other nodes have the idle IPs."""
    first = await ipam.add(pod("c1"))
    ipam.withdrawn()
    for _ in range(2):
        assert await ipam.add(pod("c1")) == first
        with pytest.raises(NotReady):
            await ipam.add(pod("c2"), wait=0)
        with pytest.raises(NotReady):
            ipam.ready()
        ipam.close()
        ipam = made(tmp_path)  # also when it cannot be read after a restart
        ipam.open()
    ipam.reconcile(nnc(nc(version=2)))
    assert (await ipam.add(pod("c2")))[0].address == "10.0.0.11"


async def test_after_a_reboot_an_empty_nnc_opens_nothing(ipam: Ipam, tmp_path: Path) -> None:
    ipam.close()
    again = made(tmp_path, boot="another")
    again.reconcile(nnc())
    with pytest.raises(NotReady):
        await again.add(pod("c1"), wait=0)


async def test_an_agent_that_lost_its_journal_does_not_write_one_before_it_knows_the_pods(
    tmp_path: Path,
) -> None:
    ipam = made(tmp_path)
    ipam.reconcile(nnc())
    ipam.withdrawn()
    ipam.close()
    again = made(tmp_path)
    assert not again.had_journal
    again.reconcile(nnc(nc()), {"10.0.0.10": Holder(f"{LOST}u", "eth0", pod_uid="u")})
    assert (await again.add(pod("c1")))[0].address == "10.0.0.11"


async def test_a_damaged_journal_does_not_hide_a_running_pod(ipam: Ipam, tmp_path: Path) -> None:
    await ipam.add(pod("c1", uid="u"))
    await ipam.add(pod("c2"))
    ipam.close()
    lines = (tmp_path / "journal").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal").write_bytes(b"".join([*lines[:-2], b"damaged\n", lines[-1]]))
    again = made(tmp_path)
    with pytest.raises(NotReady):
        again.open()
    again.reconcile(nnc(nc()), {"10.0.0.10": Holder(f"{LOST}u", "eth0", pod_uid="u")})
    assert (await again.add(pod("c3")))[0].address != "10.0.0.10"


async def test_an_attachment_older_than_the_journal_ends_by_the_del_that_names_pod_and_address(
    tmp_path: Path,
) -> None:
    ipam = made(tmp_path)
    lost = Holder(f"{LOST}u", "eth0", pod_uid="u")
    ipam.reconcile(nnc(nc()), {"10.0.0.10": lost})
    ipam.delete("c1", "eth0")
    ipam.delete("c1", "eth0", "u")  # a former sandbox of the same pod: it says no address, or another
    ipam.delete("c1", "eth0", "u", ["10.0.0.99"])
    ipam.delete("c1", "eth0", "v", ["10.0.0.10"])
    assert ipam.pool.keys == {lost.key}
    assert ipam.delete("c1", "eth0", "u", ["10.0.0.10"]) == ["10.0.0.10"]
    assert not ipam.pool.keys


async def test_a_pods_former_sandbox_is_found_after_a_restart_too(tmp_path: Path) -> None:
    namespaces = Namespaces(old=1, new=2)
    ipam = made(tmp_path, namespaces=namespaces)
    ipam.reconcile(nnc(nc()))
    await ipam.add(pod("old", uid="u", netns="old"))
    ipam.close()
    del namespaces.inodes["old"]
    again = made(tmp_path, namespaces=namespaces)
    again.open()
    await again.add(pod("new", uid="u", netns="new"))
    assert again.pool.keys == {("new", "eth0")}


async def test_a_state_folder_that_was_removed_is_written_anew(ipam: Ipam, tmp_path: Path) -> None:
    await ipam.add(pod("c1"))
    (tmp_path / "journal").unlink()
    await ipam.add(pod("c2"))
    assert written(tmp_path) == ipam.pool
