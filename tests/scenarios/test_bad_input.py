"""What is wrong is said where its author looks, and nothing is lost: pods keep their IPs, others are served.

Each story makes one mistake beside pods that run, reads the answer (of the API, in a condition, an event, or
CNI's error on standard output), and mends the mistake: the rest follows by itself.
"""

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node
from subnetes.api.names import MAX_IPS, NAMESPACE
from subnetes.cni import plugin_path
from subnetes.kube.errors import Invalid, NotFound
from subnetes.kube.patches import MergePatch
from tests.cni.execution import Output, Plugin
from tests.cni.requests import config, environment, request
from tests.scenarios.life import Life, changes, held, maximum, message, scaler, spec_of, told, write_request
from tests.scenarios.world import World

pytestmark = pytest.mark.slow

HOSTNAME = "kubernetes.io/hostname"
NOT_FAR = {"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": ["far"]}]}
ONLY_FAR = {"matchLabels": {HOSTNAME: "far"}}


@pytest.fixture
async def life(world: World) -> Life:
    await world.subnet("pods", "10.1.0.0/24", nodeSelector=NOT_FAR)
    await world.node("a")
    pods = await world.pods("a", 3)
    addresses = await world.running(pods)
    await world.until(lambda: len(world.granted("a")) == world.requested("a") == len(held(world)) == 15)
    return Life(world, pods, addresses)


# Subnets that cannot be: the condition and the event of the ClusterSubnet

OVERLAP = pytest.param(
    {"addressSpace": ["10.1.0.128/25"]},
    "Overlaps",
    "subnet far (IPv4): 10.1.0.128/25 overlaps 10.1.0.0/24 of subnet pods (IPv4) in the same network;"
    " choose another range or another network",
    id="overlapping",
)
GATEWAY = pytest.param(
    {"gateway": ["10.9.0.1"]},
    "Invalid",
    "subnet far (IPv4): the gateway '10.9.0.1' is no address of 10.2.0.0/24: name one inside, or none",
    id="gateway-outside",
)
EXCLUDE = pytest.param(
    {"exclude": ["10.2.0.0-10.2.0.127", "10.2.0.128/25"]},
    "Invalid",
    "subnet far (IPv4): no address of 10.2.0.0/24 is left to give: its gateway, its reserved addresses and"
    " its excludes cover all of it; exclude less or declare a larger subnet",
    id="all-excluded",
)


@pytest.mark.parametrize(("mistake", "reason", "why"), [OVERLAP, GATEWAY, EXCLUDE])
async def test_a_subnet_declared_wrong_serves_nobody_and_says_why_until_it_is_mended(
    world: World, life: Life, mistake: dict[str, Any], reason: str, why: str
) -> None:
    await world.subnet("far", **({"addressSpace": ["10.2.0.0/24"], "nodeSelector": ONLY_FAR} | mistake))
    await world.until(lambda: world.condition("far", "Ready") == ("False", reason))
    assert message(world, "far", "Ready") == why
    assert await told(world, reason, "ClusterSubnet", "far") == why
    await world.node("far")
    waiting = await world.pods("far", 2)
    await world.until(lambda: world.nnc("far") is not None)
    await life.goes_on()
    assert world.condition("pods", "Ready")[0] == "True"
    assert world.ncs("far") == []
    assert not any(map(world.address, waiting))

    await world.change_subnet("far", addressSpace=["10.2.0.0/24"], gateway=None, exclude=None)
    addresses = await world.running(waiting)
    assert all(each.startswith("10.2.0.") for each in addresses)
    await world.subnet_ready("far")
    life.kept()


async def test_a_subnet_that_would_grow_into_another_stays_as_it_is(world: World, life: Life) -> None:
    await world.subnet("far", "10.1.1.0/24", nodeSelector=ONLY_FAR)
    await world.subnet_ready("far")
    await world.change_subnet("pods", addressSpace=["10.1.0.0/23"])
    await refused_edit(
        world, life, "Overlaps", "10.1.0.0/23 overlaps 10.1.1.0/24 of subnet far", "choose another"
    )

    await world.change_subnet("pods", addressSpace=["10.1.0.0/24"])
    await world.subnet_ready("pods")
    await life.goes_on()


async def test_a_gateway_moved_out_of_its_subnet_is_refused_and_pods_keep_the_old_one(
    world: World, life: Life
) -> None:
    await world.change_subnet("pods", gateway=["10.9.0.1"])
    await refused_edit(
        world, life, "Invalid", "gateway '10.9.0.1' is no address of 10.1.0.0/24", "name one inside"
    )

    await world.change_subnet("pods", gateway=["10.1.0.254"])
    await world.subnet_ready("pods")
    await world.until(lambda: [nc.default_gateway for nc in world.ncs("a")] == ["10.1.0.254"])
    await life.goes_on()


async def test_an_exclude_of_everything_is_refused_and_takes_nothing(world: World, life: Life) -> None:
    await world.change_subnet("pods", exclude=["10.1.0.0/24"])
    await refused_edit(world, life, "Invalid", "no address of 10.1.0.0/24 is left to give", "exclude less")

    await world.change_subnet("pods", exclude=["10.1.0.128/25"])
    await world.until(lambda: world.subnet_status("pods").capacity == 126)
    await world.subnet_ready("pods")
    await life.goes_on()


async def refused_edit(world: World, life: Life, reason: str, *words: str) -> None:
    """The edit of a subnet in use is said to be wrong, and nodes are served as before it, new ones too."""
    await world.until(lambda: world.condition("pods", "Ready") == ("False", reason))
    why = message(world, "pods", "Ready")
    assert all(word in why for word in ("subnet pods", *words)), why
    assert await told(world, reason, "ClusterSubnet", "pods") == why
    assert world.subnet_status("pods").capacity == 253
    await life.goes_on(20)  # more than the pool has spare: grants go on
    await world.node("b")
    addresses = await world.running(await world.pods("b", 2))
    assert all(each.startswith("10.1.0.") for each in addresses)
    assert {nc.default_gateway for name in "ab" for nc in world.ncs(name)} == {"10.1.0.1"}


# Scalers that cannot be: refused by the API's schema, or by DNC-RC in a condition and an event


@pytest.mark.parametrize(("field", "value", "least"), [("batch", 0, 1), ("buffer", -1, 0)])
async def test_a_scaler_below_reason_is_refused_by_the_api(
    world: World, life: Life, field: str, value: int, least: int
) -> None:
    async def refused(write: Any) -> None:
        with pytest.raises(Invalid) as caught:
            await write
        assert [cause.field for cause in caught.value.causes] == [f"spec.scaler.{field}"]
        why = f"spec.scaler.{field} in body should be greater than or equal to {least}"
        assert f"Invalid value: {value}" in caught.value.message
        assert why in caught.value.message

    await refused(world.change_subnet("pods", scaler={field: value}))
    await refused(world.subnet("far", "10.2.0.0/24", scaler={field: value}))
    with pytest.raises(NotFound):
        await world.client.get(ClusterSubnet, "far", NAMESPACE)
    assert scaler(world) == (16, 0.5)
    await life.goes_on()

    await world.change_subnet("pods", scaler={field: least})
    await world.until(lambda: scaler(world) == {"batch": (1, 0.5), "buffer": (16, 0)}[field])
    await life.goes_on()


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("batch", 251, "spec.scaler.batch is 251, and may be at most 250, the IPs that a node may have"),
        ("buffer", 10.5, "spec.scaler.buffer is 10.5, and may be at most 10"),
    ],
    ids=["batch-251", "buffer-10.5"],
)
async def test_a_scaler_above_reason_leaves_the_values_in_use(
    world: World, life: Life, field: str, value: float, why: str
) -> None:
    world.writes.forget()
    await world.change_subnet("pods", scaler={field: value})
    await world.until(lambda: world.condition("pods", "ScalerAccepted") == ("False", "InvalidOverride"))
    said = f"{why}; the values before it stay in use"
    assert message(world, "pods", "ScalerAccepted") == said
    assert await told(world, "InvalidOverride", "ClusterSubnet", "pods") == said
    assert scaler(world) == (16, 0.5)
    assert world.condition("pods", "Ready")[0] == "True"
    await life.goes_on()
    assert changes(world) == [], "the pool is as it was"

    await world.change_subnet("pods", scaler={field: 2})
    await world.until(lambda: scaler(world) == {"batch": (2, 0.5), "buffer": (16, 2)}[field])
    await world.until(lambda: world.condition("pods", "ScalerAccepted") == ("True", "Accepted"))
    await life.goes_on()


# Requests that cannot be: an event of the NodeNetworkConfig


async def test_a_target_above_the_maximum_is_met_up_to_it(world: World, life: Life) -> None:
    """While the agent is away, for it would put its own number back at once."""
    await world.client.patch(Node, "a", MergePatch({"metadata": {"annotations": {MAX_IPS: "20"}}}))
    await world.until(lambda: maximum(world, "a") == 20)
    await world.crash_agent("a")
    (nc,) = world.ncs("a")
    await write_request(world, "a", secondaryIPs={nc.id: 400})
    why = await told(world, "AboveMaximum", "NodeNetworkConfig", "a")
    assert all(word in why for word in ("spec.secondaryIPs", "380", MAX_IPS, "not granted")), why
    await world.until(lambda: len(world.granted("a")) == 20)
    life.kept()
    await world.node("b")
    await world.running(await world.pods("b", 2))

    await world.restart_agent("a")
    await world.until(lambda: len(world.granted("a")) == world.requested("a") == 15)
    await life.goes_on()


async def test_an_unknown_nc_in_the_request_is_named_and_ignored(world: World, life: Life) -> None:
    stranger = str(uuid.uuid4())
    world.writes.forget()
    await write_request(world, "a", secondaryIPs={stranger: 5})
    why = await told(world, "UnknownNetworkContainer", "NodeNetworkConfig", "a")
    assert all(word in why for word in ("spec.secondaryIPs", stranger, "of this node", "ignored")), why
    await world.until(lambda: bool(changes(world)))
    assert changes(world) == ["spec"], "only the mistake itself"
    await life.goes_on(20)  # takes a request, which the agent writes without the stranger
    await world.until(lambda: stranger not in spec_of(world, "a")[0])
    assert len(world.ncs("a")) == 1


async def test_another_nodes_ip_cannot_be_released(world: World, life: Life) -> None:
    await world.node("b")
    theirs = await world.running(await world.pods("b", 2))
    (nc,) = world.ncs("b")
    stolen = next(ip.id for ip in nc.secondary_ips or [] if ip.address == theirs[0])
    await write_request(world, "a", releasedIPs=[stolen])
    why = await told(world, "ReleaseRefused", "NodeNetworkConfig", "a")
    assert all(word in why for word in ("spec.releasedIPs", stolen, "another node", "not freed")), why
    await life.goes_on(20)
    await world.until(lambda: stolen not in spec_of(world, "a")[1])  # the agent's next request is its own
    assert stolen in [ip.id for nc in world.ncs("b") for ip in nc.secondary_ips or []]
    assert theirs[0] not in life.addresses


async def test_an_ip_that_a_pod_has_cannot_be_released(world: World, life: Life) -> None:
    (nc,) = world.ncs("a")
    used = next(ip for ip in nc.secondary_ips or [] if ip.address in life.addresses)
    await world.crash_agent("a")  # a live one takes it out at once
    await write_request(world, "a", releasedIPs=[used.id])
    why = await told(world, "ReleaseRefused", "NodeNetworkConfig", "a")
    assert all(word in why for word in ("spec.releasedIPs", used.address, "pod", "in use, and not freed")), (
        why
    )
    assert used.address in world.granted("a")
    await world.restart_agent("a")
    await world.until(lambda: spec_of(world, "a")[1] == [])
    await life.goes_on(20)
    assert used.address in world.granted("a")


async def test_releasing_what_nobody_has_releases_nothing(world: World, life: Life) -> None:
    """No error: an id stays listed for a while after its IP has gone, so DNC-RC sees such ids every day."""
    before = world.granted("a")
    await write_request(world, "a", releasedIPs=[str(uuid.uuid4())])
    await life.goes_on(20)
    assert set(before) <= set(world.granted("a"))
    await world.until(lambda: spec_of(world, "a")[1] == [])
    assert await world.events("ReleaseRefused") == []


# Garbage at the agent's door: CNI's error as the answer


@pytest.fixture
async def intact(world: World, life: Life) -> AsyncIterator[None]:
    """After the story the agent has given and taken nothing, and serves."""
    before = held(world)
    yield
    assert held(world) == before
    await life.goes_on()


ADD = request(environment("ADD"), config())


NO_REQUEST = (
    "this is no request of the CNI plugin",
    "only subnetes-ipam speaks on the agent's socket: see which",
)
NO_CONFIG = ("the network config is not JSON", "Input data was truncated")


@pytest.mark.parametrize(
    ("garbage", "error"),
    [
        pytest.param(random.Random(4).randbytes(4096), NO_REQUEST, id="noise"),
        pytest.param(b"\xff\xff\xff\xff" + ADD[4:], NO_REQUEST, id="huge-length"),
        pytest.param(ADD[:50], NO_REQUEST, id="half-an-environment"),
        pytest.param(ADD[:-9], NO_CONFIG, id="half-a-config"),
    ],
)
@pytest.mark.usefixtures("intact")
async def test_garbage_on_the_agents_socket_is_told_so(
    world: World, garbage: bytes, error: tuple[str, str]
) -> None:
    reader, writer = await asyncio.open_unix_connection(world.nodes["a"].node.machine.socket)
    writer.write(garbage)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    said, (what, why) = json.loads(answer[1:]), error
    assert (answer[0], said["code"], said["msg"]) == (1, 6, what)
    assert why in said["details"]


@pytest.mark.usefixtures("intact")
async def test_half_a_request_and_a_hang_up_assign_nothing(world: World) -> None:
    for length in (1, 4, 50, len(ADD) - 9):
        _, writer = await asyncio.open_unix_connection(world.nodes["a"].node.machine.socket)
        writer.write(ADD[:length])
        writer.transport.abort()
    await world.nodes["a"].node.kubelet.plugin.status()


# Network configs that cannot be: CNI's error on the plugin's standard output


async def executed(world: World, command: str, **changes: Any) -> Output:
    """The plugin as a runtime executes it on node a, with these changes to a good network config."""
    section = {"type": "subnetes-ipam", "socket": str(world.nodes["a"].node.machine.socket)}
    return await Plugin(plugin_path()).start(environment(command), config(ipam=section, **changes))


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        pytest.param(
            {"name": None},
            {
                "cniVersion": "1.1.0",
                "code": 7,
                "msg": "invalid network config: the network has no name",
                "details": "`name` starts with a letter or digit,"
                " followed by letters, digits, `_`, `.` or `-`",
            },
            id="no-name",
        ),
        pytest.param(
            {"cniVersion": "9.9.9"},
            {
                "cniVersion": "1.1.0",
                "code": 1,
                "msg": "cniVersion '9.9.9' is not supported",
                "details": "this plugin supports 0.3.1, 0.4.0, 1.0.0, 1.1.0",
            },
            id="unsupported-version",
        ),
    ],
)
@pytest.mark.usefixtures("intact")
async def test_a_bad_network_config_is_an_error_of_cnis_and_assigns_nothing(
    world: World, mistake: dict[str, Any], error: dict[str, Any]
) -> None:
    refused = await executed(world, "ADD", **mistake)
    assert (refused.code, refused.document) == (1, error)
    assert ("c1", "eth0") not in world.nodes["a"].agent.ipam.pool.keys

    added = await executed(world, "ADD")
    assert (added.code, list(added.document)) == (0, ["cniVersion", "ips", "routes", "dns"])
    assert (await executed(world, "DEL")).code == 0
