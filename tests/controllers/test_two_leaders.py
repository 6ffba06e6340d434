"""Two replicas as processes of their own, the leader frozen past its lease and thawed: no IP has two owners.

An informer watches every status that is ever written, so that also a double grant that heals would be seen.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from subnetes.api.core import Lease
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.status import containers_of
from subnetes.kube.errors import NotFound
from subnetes.kube.informer import Informer
from subnetes.kube.selection import Selection
from tests.controllers.world import NAMESPACE, World
from tests.harness.clients import eventually
from tests.harness.processes import Child, start

NODES = [f"node-{number:02}" for number in range(20)]


class Witness:
    """Sees every NNC status and who owns which address in it."""

    def __init__(self, world: World) -> None:
        self.informer = Informer("witness", Selection(world.client, NodeNetworkConfig, NAMESPACE))
        self.informer.on_change(self._changed)
        self._owners: dict[str, str] = {}
        self._grants: dict[str, tuple[str, str]] = {}
        self.crimes: list[str] = []

    def _changed(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        for address, _ in _held(old):
            self._owners.pop(address, None)
        for address, grant in _held(new):
            assert new is not None
            owner = self._owners.setdefault(address, new.metadata.name)
            if owner != new.metadata.name:
                self.crimes.append(f"{address} is {owner}'s and {new.metadata.name}'s")
            known = self._grants.setdefault(grant, (address, new.metadata.name))
            if known != (address, new.metadata.name):
                self.crimes.append(f"grant {grant} was {known} and is {address} of {new.metadata.name}")

    def counts(self) -> dict[str, int]:
        return {each.metadata.name: len(list(_held(each))) - 1 for each in self.informer.store}

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.informer.run())
        try:
            yield
        finally:
            self.informer.stop()
            await running


def _held(nnc: NodeNetworkConfig | None) -> Iterator[tuple[str, str]]:
    """Address and id; a primary's id is its network container's."""
    for nc in containers_of(nnc) if nnc is not None else ():
        yield nc.primary_ip, nc.id
        for ip in nc.secondary_ips or ():
            yield ip.address, ip.id


def replica(world: World, name: str, folder: Path) -> Child:
    return start(
        [
            *(sys.executable, "-m", "subnetes.cli.main", "controller"),
            *("--kubeconfig", str(world.kubeconfig), "--identity", name),
            *("--lease-duration", "3", "--retry-period", "0.3", "--verbose"),
        ],
        folder / f"{name}.log",
    )


async def leader(world: World) -> str:
    try:
        lease = await world.client.get(Lease, "subnetes-controller", NAMESPACE)
    except NotFound:
        return ""
    return (lease.spec.holder_identity or "").partition("_")[0]


async def until_leads(world: World, name: str) -> None:
    async with asyncio.timeout(60):
        while await leader(world) != name:
            await asyncio.sleep(0.05)


async def ask_all(world: World, count: int) -> None:
    await asyncio.gather(*(world.ask(node, count) for node in NODES))


@pytest.mark.slow
async def test_a_leader_frozen_past_its_lease_grants_nothing_twice(world: World, tmp_path: Path) -> None:
    await world.subnet(space="10.1.0.0/20")
    for node in NODES:
        await world.node(node)
    children = {name: replica(world, name, tmp_path) for name in ("one", "two")}
    witness = Witness(world)
    try:
        async with witness.watching():
            await eventually(lambda: list(witness.counts().values()) == [0] * len(NODES))
            frozen = await leader(world)
            heir = ({"one", "two"} - {frozen}).pop()
            wanted = 0
            for _ in range(3):
                wanted += 16
                asking = asyncio.create_task(ask_all(world, wanted))
                await eventually(lambda wanted=wanted: wanted in witness.counts().values())  # type: ignore[misc]
                os.kill(children[frozen].process.pid, signal.SIGSTOP)  # in the middle of granting
                await asking
                await until_leads(world, heir)
                await ask_all(world, wanted + 1)
                await eventually(lambda wanted=wanted: wanted + 1 in witness.counts().values())  # type: ignore[misc]
                os.kill(children[frozen].process.pid, signal.SIGCONT)  # in the middle of the other's granting
                wanted += 1
                await eventually(lambda wanted=wanted: set(witness.counts().values()) == {wanted})  # type: ignore[misc]
                frozen, heir = heir, frozen
    finally:
        for child in children.values():
            child.kill()
    assert witness.crimes == []
    addresses = await world.addresses()
    assert len(addresses) == len(set(addresses)) == len(NODES) * (wanted + 1)
    assert "campaigning anew" in children["one"].tail(100_000) + children["two"].tail(100_000)
