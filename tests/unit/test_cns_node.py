"""One node's agent by hand: what it waits for before it opens its pool, and what it does without an NNC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subnetes.api.core import Pod
from subnetes.api.model import from_builtins
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cns.errors import JournalError, NotReady
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal
from subnetes.cns.node import Node
from subnetes.ipam.pool import Holder


def made(folder: Path) -> Node:
    return Node(Ipam(Journal(folder / "journal", "boot"), wait=0))


def nnc(count: int = 3) -> NodeNetworkConfig:
    ips = [SecondaryIP(id=f"ip-{i}", address=f"10.0.0.{10 + i}") for i in range(count)]
    nc = NetworkContainer(id="nc", version=1, subnet_address_space="10.0.0.0/24", secondary_ips=ips)
    return NodeNetworkConfig(status=NodeNetworkConfigStatus(network_containers=[nc]))


def pod(name: str, address: str = "") -> Pod:
    status: dict[str, Any] = {"podIPs": [{"ip": address}]} if address else {}
    return from_builtins(Pod, {"metadata": {"name": name, "uid": name}, "spec": {}, "status": status})


async def test_without_a_journal_a_pod_that_has_not_said_its_address_is_waited_for(
    tmp_path: Path,
) -> None:
    """The kubelet says it seconds after the ADD: handed out meanwhile, it would be two pods'."""
    node = made(tmp_path)
    node.observe_nnc(nnc(), 0.0)
    node.observe_pods([pod("a"), pod("b", "10.0.0.11")], 0.0)
    assert not node.ipam.is_open
    node.observe_pods([pod("a", "10.0.0.10"), pod("b", "10.0.0.11")], 1.0)
    (given,) = await node.ipam.add(Holder("c", "eth0", pod_uid="c"))
    assert given.address == "10.0.0.12"


def test_one_that_says_nothing_is_not_waited_for_longer_than_a_kubelet_takes(tmp_path: Path) -> None:
    node = made(tmp_path)
    node.observe_nnc(nnc(), 0.0)
    node.observe_pods([pod("a")], 0.0)
    now = 0.0
    while not node.ipam.is_open:
        now = node.plan(now).wake_at
        assert now < 10
    assert now >= 5


def test_a_node_that_never_held_an_ip_waits_for_nobody(tmp_path: Path) -> None:
    node = made(tmp_path)
    node.observe_nnc(nnc(0), 0.0)
    node.observe_pods([pod("a")], 0.0)
    assert node.ipam.is_open


async def test_without_an_nnc_nothing_is_handed_out_or_asked_for(tmp_path: Path) -> None:
    node = made(tmp_path)
    node.observe_pods([], 0.0)
    node.observe_nnc(nnc(), 0.0)
    node.observe_nnc(None, 1.0)
    node.observe_pods([pod("a")], 2.0)
    with pytest.raises(NotReady):
        await node.ipam.add(Holder("c", "eth0"))
    assert node.plan(100.0).patch is None
    empty = NodeNetworkConfig()
    node.observe_nnc(empty, 101.0)
    assert node.plan(200.0).patch is None
    node.observe_nnc(nnc(), 201.0)
    assert (await node.ipam.add(Holder("c", "eth0")))[0].address == "10.0.0.10"


def test_a_disk_that_is_full_when_the_nnc_goes_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = made(tmp_path)
    node.observe_pods([], 0.0)
    node.observe_nnc(nnc(), 0.0)

    def full(*_: object) -> None:
        raise JournalError("no space left on the device")

    monkeypatch.setattr(Journal, "append", full)
    node.observe_nnc(None, 1.0)
    assert node.plan(1.0).wake_at == 2.0
    monkeypatch.undo()
    node.plan(2.0)
    with pytest.raises(NotReady):
        node.ipam.ready()
