"""The agent on an API server: what it writes, when, and how often."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from subnetes.api.core import Event
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns.errors import JournalError, NoAddress, NotReady
from subnetes.ipam.pool import State
from tests.cns.world import NC, NODE, Grantor, api, make_pods, make_subnet, running, sandbox, set_subnet
from tests.harness.clients import eventually

pytestmark = pytest.mark.slow


async def generation(grantor: Grantor) -> int:
    return (await grantor.nnc()).metadata.generation or 0


async def test_a_nodes_first_ips_cost_one_request(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        await make_subnet(client, scaler={"batch": 16, "buffer": 0.5})
        async with running(client, tmp_path) as agent:
            with pytest.raises(NotReady):
                agent.ipam.ready()
            grantor = Grantor(client)
            await grantor.create_nnc()
            nnc = await grantor.meet_until(15)
            await eventually(lambda: agent.ipam.pool.count(NC, State.AVAILABLE) == 15)
            agent.ipam.ready()
            assert nnc.metadata.generation == 2  # the create and one request
            (given,) = await agent.ipam.add(sandbox("a"))
            assert (given.prefix_length, given.gateway, given.subnet) == (16, "10.0.0.1", "blue")


async def test_a_hundred_pods_at_once_are_one_request(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        await make_subnet(client, scaler={"batch": 16, "buffer": 0.5})
        grantor = Grantor(client)
        await grantor.create_nnc()
        async with running(client, tmp_path, quiet=0.3, at_most=5.0) as agent:  # a slow machine is no burst
            await grantor.meet_until(15)
            before = await generation(grantor)
            names = [f"p{i}" for i in range(100)]
            await make_pods(client, *names)
            adds = [asyncio.create_task(agent.ipam.add(sandbox(name))) for name in names]
            await grantor.meet_until(111)
            given = await asyncio.gather(*adds)
            assert len({ip.address for (ip,) in given}) == 100
            assert await generation(grantor) == before + 1


async def test_an_exhausted_subnet_gets_its_idle_ips_back_in_two_writes(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        await make_subnet(client, scaler={"batch": 16, "buffer": 0.5})
        grantor = Grantor(client)
        await grantor.create_nnc()
        async with running(client, tmp_path) as agent:
            await grantor.meet_until(15)
            await make_pods(client, "a")
            await agent.ipam.add(sandbox("a"))
            before = await generation(grantor)
            await set_subnet(client, exhausted=True)
            nnc = await grantor.meet_until(1)
            await eventually(lambda: len(agent.ipam.pool) == 1)
            assert nnc.spec is not None
            assert nnc.spec.secondary_ips == {NC: 1}
            assert await generation(grantor) == before + 1
            agent.node.monitor.timing = type(agent.node.monitor.timing)(clear_after=0.0)
            agent.ipam.changed()
            await eventually(lambda: agent.node.monitor.asked.released == frozenset())
            assert await generation(grantor) == before + 2


async def test_a_pod_that_gets_no_ip_is_told_why(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        await make_subnet(client)
        grantor = Grantor(client)
        grantor.room = 0
        await grantor.create_nnc()
        async with running(client, tmp_path) as agent:
            await eventually(lambda: agent.ipam.is_open)
            with pytest.raises(NoAddress, match="blue"):
                await agent.ipam.add(sandbox("a"), wait=0.1)
        events = (await client.list(Event, "default")).items
        assert [(e.reason, e.involved_object.name) for e in events] == [("NoIPAvailable", "a")]


async def test_a_restarted_agent_answers_the_same_and_serves_without_an_api_server(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        await make_subnet(client)
        grantor = Grantor(client)
        await grantor.create_nnc()
        async with running(client, tmp_path) as agent:
            await grantor.meet_until(15)
            await eventually(lambda: len(agent.ipam.pool) == 15)
            (first,) = await agent.ipam.add(sandbox("a"))
        dead = client
    # The client's server is gone for good now.
    async with running(dead, tmp_path) as agent:
        (again,) = await agent.ipam.add(sandbox("a"))
        (other,) = await agent.ipam.add(sandbox("b"))
    assert again == first
    assert other.address != first.address


async def test_a_restarted_agent_that_finds_no_nnc_hands_out_nothing(tmp_path: Path) -> None:
    """The API server is there and says so: the Node was away longer than its grace, others have the IPs."""
    async with api(tmp_path) as client:
        await make_subnet(client)
        grantor = Grantor(client)
        await grantor.create_nnc()
        async with running(client, tmp_path) as agent:
            await grantor.meet_until(15)
            await eventually(lambda: len(agent.ipam.pool) == 15)
            first = await agent.ipam.add(sandbox("a"))
        await client.delete(NodeNetworkConfig, NODE, "kube-system")
        async with running(client, tmp_path) as agent:
            await eventually(lambda: agent.ipam.is_open)
            assert await agent.ipam.add(sandbox("a")) == first
            with pytest.raises(NotReady):
                await agent.ipam.add(sandbox("b"), wait=0.1)
            grantor.held = {}
            grantor.version = 1
            await grantor.create_nnc()
            await grantor.meet_until(15)
            (given,) = await agent.ipam.add(sandbox("b"))
            assert given.address in grantor.held.values()


async def test_two_agents_do_not_share_a_journal(tmp_path: Path) -> None:
    async with api(tmp_path) as client, running(client, tmp_path):
        with pytest.raises(JournalError, match="another agent"):
            async with running(client, tmp_path):
                pass
