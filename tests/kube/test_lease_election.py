"""Two replicas and one lease, on both servers."""

import asyncio

import pytest

from subnetes.api.core import Lease
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.key import Key
from subnetes.kube.lease import Elector, LeadershipLost
from tests.harness.clients import client_of, eventually
from tests.kube.conftest import Server

pytestmark = pytest.mark.slow

QUICK = Terms(duration=3, renew_deadline=2.0, retry_period=0.3)


class Freezable:
    """A client that can be made to hang, as a line that is cut does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.open = asyncio.Event()
        self.open.set()

    async def get(self, kind: type[Lease], name: str, namespace: str | None = None) -> Lease:
        await self.open.wait()
        return await self._client.get(kind, name, namespace)

    async def create(self, obj: Lease) -> Lease:
        await self.open.wait()
        return await self._client.create(obj)

    async def update(self, obj: Lease) -> Lease:
        await self.open.wait()
        return await self._client.update(obj)


async def lead(elector: Elector) -> None:
    async with elector.leading():
        await asyncio.Event().wait()


async def test_the_lease_goes_to_one_and_when_given_back_to_the_other(server: Server, namespace: str) -> None:
    place = Key(namespace, "controllers")
    async with client_of(server) as one, client_of(server) as two:
        a, b = Elector(one, place, "a", QUICK), Elector(two, place, "b", QUICK)
        first = asyncio.create_task(lead(a))
        await eventually(a.leads)
        second = asyncio.create_task(lead(b))
        lease = await one.get(Lease, "controllers", namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("a", 0)
        renewed = lease.spec.renew_time
        while (await one.get(Lease, "controllers", namespace)).spec.renew_time == renewed:
            await asyncio.sleep(0.05)
        assert (a.leads(), b.leads()) == (True, False)
        first.cancel()
        await asyncio.wait([first])
        await eventually(b.leads)
        lease = await one.get(Lease, "controllers", namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)
        second.cancel()
        await asyncio.wait([second])


async def test_a_frozen_leader_ends_before_the_other_begins(server: Server, namespace: str) -> None:
    place = Key(namespace, "controllers")
    async with client_of(server) as one, client_of(server) as two:
        line = Freezable(one)
        a, b = Elector(line, place, "a", QUICK), Elector(two, place, "b", QUICK)
        first = asyncio.create_task(lead(a))
        await eventually(a.leads)
        second = asyncio.create_task(lead(b))
        line.open.clear()
        with pytest.raises(LeadershipLost):
            await first
        assert not b.leads(), "the lease outlives its leader's confidence"
        await eventually(b.leads)
        assert not a.leads()
        second.cancel()
        await asyncio.wait([second])


async def test_of_many_candidates_never_two_lead_at_once(server: Server, namespace: str) -> None:
    place, leaders, most, terms = Key(namespace, "controllers"), set[str](), 0, 0

    async def serve(elector: Elector, name: str) -> None:
        nonlocal most, terms
        async with elector.leading():
            leaders.add(name)
            most, terms = max(most, len(leaders)), terms + 1
            await asyncio.sleep(0.1)
            leaders.remove(name)

    async with client_of(server) as client:
        names = [f"candidate-{number}" for number in range(5)]
        await asyncio.gather(*(serve(Elector(client, place, name, QUICK), name) for name in names))
        lease = await client.get(Lease, "controllers", namespace)
    assert (most, terms) == (1, 5)
    assert lease.spec.lease_transitions == 4
    assert lease.spec.holder_identity is None
