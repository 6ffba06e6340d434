"""A new leader with an empty database: everything is adopted, nothing is granted twice."""

import pytest

from subnetes.api import names
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.process import in_memory
from subnetes.controllers.status import containers_of
from subnetes.controllers.term import DncTrouble, NotLeading
from subnetes.dnc.types import Fence
from subnetes.kube.errors import Conflict
from subnetes.kube.patches import MergePatch
from tests.controllers.world import NAMESPACE, Killed, World, condition, foreign, ids, planted


async def test_an_heir_adopts_everything_and_grants_only_what_is_free(world: World) -> None:
    first = await world.replica()
    await world.subnet()
    for name in "abc":
        await world.node(name)
    await first.settle()
    for name in "abc":
        await world.ask(name, 20)
    await first.settle()
    before = {name: (await world.nc(name)) for name in "abc"}
    heir = await world.replica()
    await heir.settle()
    for name, nc in before.items():
        assert await world.nc(name) == nc
    await world.ask("a", 60)
    await heir.settle()
    assert set(ids(before["a"])) < set(ids(await world.nc("a")))
    shown = await world.addresses()
    assert (len(shown), len(set(shown))) == (103, 103)
    assert {ip.address for nc in await heir.allocator.ncs("local") for ip in nc.secondary} < set(shown)


async def test_a_former_leaders_late_write_conflicts(world: World) -> None:
    old = await world.replica()
    await world.subnet()
    for name in "ab":
        await world.node(name)
    await old.settle()
    for name in "ab":
        await world.ask(name, 5)
    await old.refresh()  # what it knows when it is stopped
    heir = await world.replica()
    await heir.refresh()
    await heir.nnc("b")
    with pytest.raises(Conflict):
        await old.nnc("a")  # it wakes, still sure that it leads: the same address as b's, from its own record
    with pytest.raises(Conflict):
        await old.nnc("b")
    await heir.settle()
    shown = await world.addresses()
    assert (len(shown), len(set(shown))) == (12, 12)


async def test_a_former_leader_that_knows_it_does_not_even_try(world: World) -> None:
    old = await world.replica()
    await world.subnet()
    await world.node("a")
    await old.settle()
    await world.ask("a", 5)
    await old.refresh()
    old.leads = False
    before = old.api.writes.total()
    for attempt in (old.nnc("a"), old.subnet("pods")):
        with pytest.raises(NotLeading):
            await attempt
    (nc,) = await old.allocator.ncs("local", "a")
    assert (old.api.writes.total(), nc.secondary) == (before, ())


async def test_a_late_nnc_of_a_former_leader_is_taken_over(world: World) -> None:
    old, heir = await world.replica(), await world.replica()
    await world.subnet()
    await heir.settle()
    await world.node("a")
    await old.settle()  # it made the NNC, and even granted a primary
    nc = await world.nc("a")
    await heir.settle()
    nnc = await world.get("a")
    assert (nnc.metadata.annotations or {})[names.GRANTER] == heir.reconcilers.term.identity
    assert (await world.nc("a")).id == nc.id
    assert [each.id for each in await heir.allocator.ncs("local", "a")] == [nc.id]


async def test_what_another_control_plane_wrote_is_adopted_and_kept(world: World) -> None:
    await world.subnet()
    await planted(world, "a", foreign("nc-a", "10.1.0.4/24", ("ip-1", "10.1.0.5"), ("ip-2", "10.1.0.6")))
    heir = await world.replica()
    await heir.settle()
    await world.ask("a", 4)
    await heir.settle()
    nnc, nc = await world.get("a"), await world.nc("a")
    kept = {ip.id: ip.address for ip in nc.secondary_ips or () if ip.id.startswith("ip-")}
    assert kept == {"ip-1": "10.1.0.5", "ip-2": "10.1.0.6"}
    assert nc.secondary_ip_count == 4
    assert (nc.primary_ip, nc.vnet_id, nc.resource_group_id) == ("10.1.0.4/24", "vnet-of-old", "group-1")
    assert nc.subscription_id == "sub-1"
    assert (nc.version or 0) > 7
    assert nnc.metadata.finalizers == [names.RELEASE_FINALIZER]
    (owner,) = nnc.metadata.owner_references or []
    assert (owner.kind, owner.name) == ("Node", "a")


async def test_subnets_that_nobody_declared_are_left_alone(world: World) -> None:
    await planted(world, "a", foreign("nc-a", "10.1.0.4", ("ip-1", "10.1.0.5")))
    await world.subnet("ours", space="10.2.0.0/24")
    heir = await world.replica()
    await heir.settle()
    nnc = await world.get("a")
    assert nnc.status is not None
    shown = {nc.subnet_name: ids(nc) for nc in nnc.status.network_containers or ()}
    assert shown == {"ours": [], "pods": ["ip-1"]}
    assert names.DRAINING not in (nnc.metadata.annotations or {})


async def test_a_subnet_that_is_not_accepted_yet_or_never_drains_nobody(world: World) -> None:
    await planted(world, "a", foreign("nc-a", "10.1.0.4"))
    await planted(world, "b", foreign("nc-b", "10.1.0.5", ("ip-1", "10.1.0.6")))
    heir = await world.replica()
    await heir.settle()
    await world.subnet(gateway=["10.9.0.1"])
    for step in (heir.refresh, heir.settle):  # before DNC is asked, and after it said no
        await step()
        for name in "ab":
            await heir.nnc(name)
        assert ((await world.nc("a")).id, ids(await world.nc("b"))) == ("nc-a", ["ip-1"])
        assert names.DRAINING not in ((await world.get("b")).metadata.annotations or {})
    assert condition(await world.get_subnet(), "Ready") == ("False", "Invalid")
    status = (await world.get_subnet()).status
    assert status is not None
    assert status.capacity is None, "nobody draws from it"
    await world.change_subnet("pods", {"gateway": None})
    await heir.settle()
    await world.ask("b", 3)
    await heir.settle()
    assert ((await world.nc("a")).id, len(ids(await world.nc("b")))) == ("nc-a", 3)


async def test_a_planted_conflict_is_reported_and_never_granted(world: World) -> None:
    await world.subnet(space="10.1.0.0/24")
    await planted(world, "a", foreign("nc-a", "10.1.0.4", ("ip-1", "10.1.0.5")))
    await planted(world, "b", foreign("nc-b", "10.1.0.6", ("ip-2", "10.1.0.5"), ("ip-3", "10.1.0.7")))
    heir = await world.replica()
    await heir.settle()
    assert heir.told.count("AddressConflict", "b") + heir.told.count("AddressConflict", "a") == 1
    assert condition(await world.get_subnet(), "Conflicting") == ("True", "AddressConflict")
    assert (ids(await world.nc("a")), ids(await world.nc("b"))) == (["ip-1"], ["ip-2", "ip-3"])
    await world.node("c")
    await heir.settle()
    await world.ask("c", 245)
    await heir.settle()
    assert "10.1.0.5" not in [ip.address for ip in (await world.nc("c")).secondary_ips or ()]
    loser = "b" if heir.told.count("AddressConflict", "b") else "a"
    conflicting = "ip-2" if loser == "b" else "ip-1"
    await world.ask(loser, 0, [conflicting])
    await heir.settle()
    assert conflicting not in ids(await world.nc(loser))
    assert condition(await world.get_subnet(), "Conflicting") == ("", ""), "mended"
    await world.ask("c", 246)
    await heir.settle()
    assert "10.1.0.5" not in [ip.address for ip in (await world.nc("c")).secondary_ips or ()]


async def test_what_dnc_cannot_take_is_left_as_it_is(world: World) -> None:
    await world.subnet()
    await planted(world, "a", foreign("nc-same", "10.1.0.4", ("ip-1", "10.1.0.5")))
    await planted(world, "b", foreign("nc-same", "10.1.0.6", ("ip-2", "10.1.0.7")))
    heir = await world.replica()
    await heir.settle()
    assert heir.told.count("AddressConflict", "b") == 1
    status = (await world.get("b")).status
    assert status is not None
    assert ["ip-2"] in [ids(nc) for nc in status.network_containers or ()]


async def test_an_nc_that_does_not_say_its_address_space_is_found_by_its_subnet(world: World) -> None:
    await world.subnet()
    nc = foreign("nc-a", "10.1.0.4", ("ip-1", "10.1.0.5"))
    nc.subnet_address_space = nc.default_gateway = ""
    await planted(world, "a", nc)
    heir = await world.replica()
    await heir.settle()
    assert heir.told.events == []
    assert ids(await world.nc("a")) == ["ip-1"]
    assert (await world.nc("a")).subnet_address_space == "10.1.0.0/24"


async def test_a_dnc_with_a_record_of_its_own_is_completed_and_not_doubled(world: World) -> None:
    first = await world.replica()
    await world.subnet()
    for name in "ab":
        await world.node(name)
    await first.settle()
    await world.ask("a", 5)
    await first.refresh()
    first.api.dies_after = 0
    with pytest.raises(Killed):
        await first.nnc("a")  # granted in DNC, shown nowhere
    (nc,) = await first.allocator.ncs("local", "a")
    assert len(nc.secondary) == 5
    heir = await world.replica(allocator=first.allocator)
    await heir.settle()
    assert ids(await world.nc("a")) == [ip.id for ip in nc.secondary]
    await world.ask("b", 20)
    await heir.settle()
    shown = await world.addresses()
    assert (len(shown), len(set(shown))) == (27, 27)
    await world.ask("a", 8)
    await heir.settle()
    first.api.dies_after = None
    with pytest.raises(DncTrouble, match="read"):
        await first.nnc("a")  # its 5 are an older reading than the heir's 8
    assert (await world.nc("a")).secondary_ip_count == 8


async def test_two_nncs_that_show_one_nc_id_keep_what_they_show(world: World) -> None:
    await world.subnet(space="10.1.0.0/24")
    await planted(world, "a", foreign("nc-1", "10.1.0.4", ("i", "10.1.0.5")))
    await planted(world, "b", foreign("nc-1", "10.1.0.6", ("j", "10.1.0.7")))
    await world.node("c")
    replica = await world.replica()
    await replica.settle()
    assert [(each.id, ids(each)) for each in containers_of(await world.get("a"))] == [("nc-1", ["i"])]
    own, stranger = containers_of(await world.get("b"))
    assert (own.secondary_ips, stranger.id, ids(stranger)) == ([], "nc-1", ["j"])
    await world.ask("c", 250)
    await replica.settle()
    shown = await world.addresses()
    assert len(shown) == len(set(shown)) == 253
    await world.delete_node("b")
    await replica.settle()
    await world.ask_raw("b", {}, ["j"])
    await replica.settle()
    assert [ip.id for nc in await replica.allocator.ncs("local", "b") for ip in nc.leaving] == ["j"]
    world.clock.ahead = 1000.0
    await replica.settle()
    await replica.settle()
    assert {nc.node for nc in await replica.allocator.ncs("local")} == {"a", "c"}


async def test_a_record_that_is_older_than_the_api_server_does_not_fence_its_nodes_out(world: World) -> None:
    allocator = await in_memory()
    old = await world.replica(allocator=allocator)
    await world.subnet()
    await world.node("a")
    await old.settle()
    await world.ask("a", 3)
    await old.settle()
    before = await world.nc("a")
    far_ahead = Fence("uid-of-a-cluster-before", 10**12)
    await allocator.set_secondary("local", before.id, far_ahead, 3, ())
    await world.client.patch(
        NodeNetworkConfig, "a", MergePatch({"metadata": {"finalizers": None}}), NAMESPACE
    )
    await world.client.delete(NodeNetworkConfig, "a", NAMESPACE)
    heir = await world.replica(allocator=allocator)
    await heir.settle()
    await world.ask("a", 5)
    await heir.settle()
    nc = await world.nc("a")
    assert (nc.id, len(ids(nc))) == (before.id, 5)
    assert set(ids(before)) < set(ids(nc))
    await allocator.close()
