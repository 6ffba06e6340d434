"""The story of the scaler: overridden while the subnet runs, refused where it is senseless, replicated."""

import json
import uuid
from typing import Any

import pytest

from subnetes.api.names import NAMESPACE, SCALER
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.patches import MergePatch
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


def values(world: World) -> tuple[int, float] | None:
    scaler = world.subnet_status("pods").scaler
    return (scaler.batch, scaler.buffer) if scaler else None


async def test_an_override_is_followed_by_status_and_pools_and_defaults_return(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    await world.node("a")
    pods = await world.pods("a", 3)
    await world.running(pods)
    await world.until(lambda: values(world) == (16, 0.5) and len(world.granted("a")) == 15)

    await world.change_subnet("pods", scaler={"batch": 4, "buffer": 1})
    await world.until(lambda: values(world) == (4, 1.0))
    await world.until(lambda: len(world.granted("a")) == 7)  # 4 x ceil(1 + 3/4), less the primary

    await world.change_subnet("pods", scaler={"batch": None, "buffer": 2})
    await world.until(lambda: values(world) == (16, 2.0))  # field by field: the batch is the default again
    await world.until(lambda: len(world.granted("a")) == 47)

    await world.change_subnet("pods", scaler=None)
    await world.until(lambda: values(world) == (16, 0.5))
    await world.until(lambda: len(world.granted("a")) == 15)


async def test_an_override_beyond_reason_is_refused_visibly_and_changes_nothing(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    await world.node("a")
    await world.until(lambda: len(world.granted("a")) == 15)
    world.writes.forget()

    await world.change_subnet("pods", scaler={"batch": 251})
    await world.until(lambda: world.condition("pods", "ScalerAccepted") == ("False", "InvalidOverride"))
    assert await world.events("InvalidOverride")
    assert values(world) == (16, 0.5)
    await world.quiet()
    assert world.writes.all == []
    assert len(world.granted("a")) == 15

    await world.change_subnet("pods", scaler=None)
    await world.until(lambda: world.condition("pods", "ScalerAccepted") == ("True", "Accepted"))


async def test_the_nncs_tell_old_clients_the_same_values(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24", scaler={"batch": 8, "buffer": 0.25})
    await world.node("a")

    def told() -> Any:
        nnc = world.nnc("a")
        return json.loads(((nnc.metadata.annotations if nnc else None) or {}).get(SCALER, "null"))

    await world.until(lambda: told() is not None and told()["batchSize"] == 8)
    assert told()["requestThresholdPercent"] == 25
    assert told()["releaseThresholdPercent"] == 125
    assert told()["maxIPCount"] == 250


async def test_without_a_clustersubnet_the_nncs_own_scaler_rules(bare_world: World) -> None:
    """Another control plane's node: an NNC with v1alpha's scaler, and no ClusterSubnet at all."""
    world = bare_world
    nc = str(uuid.uuid4())
    scaler = {
        "batchSize": 8,
        "maxIPCount": 250,
        "requestThresholdPercent": 50,
        "releaseThresholdPercent": 150,
    }
    body = {
        "apiVersion": NodeNetworkConfig.resource.api_version,
        "kind": "NodeNetworkConfig",
        "metadata": {
            "name": "a",
            "namespace": NAMESPACE,
            "annotations": {SCALER: json.dumps(scaler)},
        },
    }
    await world.client.create(body, resource=NodeNetworkConfig.resource)
    container = {
        "id": nc,
        "assignmentMode": "dynamic",
        "type": "vnet",
        "subnetName": "theirs",
        "subnetAddressSpace": "10.9.0.0/24",
        "defaultGateway": "10.9.0.1",
        "primaryIP": "10.9.0.4",
        "nodeIP": "198.18.0.1",
        "version": 0,
    }
    status = MergePatch({"status": {"networkContainers": [container]}})
    await world.client.patch(NodeNetworkConfig, "a", status, NAMESPACE, subresource="status")
    await world.node("a")
    await world.until(lambda: world.requested("a") == 7)
    await world.pods("a", 6)
    await world.until(lambda: world.requested("a") == 15)  # 8 x ceil(0.5 + 6/8), less the primary
