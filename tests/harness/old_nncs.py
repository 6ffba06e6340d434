"""A cluster as another control plane left it: NNCs with all that live ones carry.

`field_nncs` is seeded: the same number of NNCs are the same NNCs. They have every shape that was seen or can
be: one to three network containers, blocks and overlays, requests with nothing to key them by, counts that do
not add up, subnet ids that are no names, releases under way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.harness.old_crds import GROUP, NC_STATUSES, SCALER, Dict
from tests.harness.wire import Wire

NAMESPACE = "kube-system"
CONTROL_PLANE = "dnc-rc"
AGENT = "azure-cns"


def collection(version: str) -> str:
    return f"/apis/{GROUP}/{version}/namespaces/{NAMESPACE}/nodenetworkconfigs"


# the objects


@dataclass
class FieldNnc:
    """What the control plane created, what it wrote as status, and what the agent applied last."""

    shape: str
    document: Dict
    status: Dict | None
    applied: Dict | None

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


@dataclass
class _Maker:
    """Random values from one seed; addresses never come twice."""

    random: random.Random
    taken: defaultdict[int, int] = field(default_factory=lambda: defaultdict(lambda: 4))

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def address(self, subnet: int) -> str:
        self.taken[subnet] += 1
        return str(ipaddress.IPv4Address(f"10.{64 + subnet}.0.0") + self.taken[subnet])

    def container(self, number: int, subnet: int, ips: int) -> Dict:
        name = f"podnet-{subnet}"
        return {
            "assignmentMode": "dynamic",
            "defaultGateway": f"10.{64 + subnet}.0.1",
            "id": self.uuid(),
            "ipAssignments": [{"ip": self.address(subnet), "name": self.uuid()} for _ in range(ips)],
            "nodeIP": node_address(number),
            "primaryIP": self.address(subnet) + ("/16" if self.random.random() < 0.3 else ""),
            "resourceGroupID": "MC_group",
            "status": self.random.choice(NC_STATUSES),
            "subcriptionID": "0b1f6471-1bf0-4dda-aec3-cb9272f09590",
            "subnetAddressSpace": f"10.{64 + subnet}.0.0/16",
            "subnetID": name,
            "subnetName": name,
            "type": "vnet",
            "version": self.random.randrange(1, 90),
            "vnetID": "vnet-1",
        }

    def with_v6(self, nc: Dict, subnet: int) -> Dict:
        return nc | {
            "primaryIPV6": f"fd00:{subnet:x}::{self.taken[subnet]:x}",
            "defaultGatewayV6": f"fd00:{subnet:x}::1",
            "subnetAddressSpaceV6": f"fd00:{subnet:x}::/64",
        }

    def with_mac(self, nc: Dict) -> Dict:
        return nc | {"macAddress": ":".join(f"{self.random.randrange(256):02x}" for _ in range(6))}


def node_address(number: int) -> str:
    return str(ipaddress.IPv4Address("10.240.0.10") + number)


def field_nncs(count: int = 500, seed: int = 5) -> list[FieldNnc]:
    maker = _Maker(random.Random(seed))
    shapes = list(_SHAPES.items())
    return [_nnc(maker, number, *shapes[number % len(shapes)]) for number in range(count)]


Shape = Callable[[_Maker, int, Dict, Dict], None]


# Each changes a spec and a status with one network container of 16 IPs into its own shape.


def _plain(_: _Maker, __: int, ___: Dict, ____: Dict) -> None: ...


def _several(many: int) -> Shape:
    def change(make: _Maker, number: int, spec: Dict, status: Dict) -> None:
        for subnet in range(4, 3 + many):
            nc = make.container(number, subnet, make.random.choice((0, 8, 16)))
            status["networkContainers"].append(make.with_v6(nc, subnet) if subnet % 2 else nc)
        _recount(spec, status)

    return change


def _v6(make: _Maker, _: int, __: Dict, status: Dict) -> None:
    status["networkContainers"] = [make.with_mac(make.with_v6(nc, 0)) for nc in status["networkContainers"]]


def _miscounted(make: _Maker, _: int, __: Dict, status: Dict) -> None:
    status["assignedIPCount"] += make.random.choice((-3, 1, 5))


def _renamed(make: _Maker, _: int, __: Dict, status: Dict) -> None:
    for nc in status["networkContainers"]:
        nc["subnetID"] = f"/subscriptions/{make.uuid()}/subnets/{nc['subnetName']}"


def _no_subnet_id(_: _Maker, __: int, ___: Dict, status: Dict) -> None:
    del status["networkContainers"][0]["subnetID"]


def _nothing_yet(make: _Maker, _: int, spec: Dict, status: Dict) -> None:
    spec["requestedIPCount"] = make.random.choice((0, 16, 32))
    status.clear()


def _waiting(make: _Maker, _: int, spec: Dict, status: Dict) -> None:
    spec["requestedIPCount"] = 16
    status |= {"networkContainers": [], "assignedIPCount": 0, "status": "Updating"}


def _emptied(_: _Maker, __: int, spec: Dict, status: Dict) -> None:
    status["networkContainers"][0]["ipAssignments"] = []
    _recount(spec, status)


def _bare(_: _Maker, __: int, spec: Dict, status: Dict) -> None:
    del status["networkContainers"][0]["ipAssignments"]
    _recount(spec, status)


def _releasing(make: _Maker, _: int, spec: Dict, status: Dict) -> None:
    names = [ip["name"] for nc in status["networkContainers"] for ip in nc["ipAssignments"]]
    spec["ipsNotInUse"] = sorted(make.random.sample(names, 5))
    spec["requestedIPCount"] -= 5


def _growing(_: _Maker, __: int, spec: Dict, status: Dict) -> None:
    spec["requestedIPCount"] += 16
    status["status"] = "Updating"


def _block(make: _Maker, number: int, spec: Dict, status: Dict) -> None:
    blocks = [{"ip": f"10.120.{number % 250}.{16 * n}/28", "name": make.uuid()} for n in range(3)]
    change = {"assignmentMode": "static", "type": "vnetblock", "ipAssignments": blocks}
    status["networkContainers"][0] |= change | {"primaryIP": f"10.120.{number % 250}.240/28"}
    _recount(spec, status)
    spec["requestedIPCount"] = 0


def _overlay(_: _Maker, number: int, spec: Dict, status: Dict) -> None:
    nc = status["networkContainers"][0]
    del nc["ipAssignments"]
    nc |= {"assignmentMode": "static", "type": "overlay", "subnetAddressSpace": "192.168.0.0/16"}
    nc |= {"primaryIP": f"192.168.{number % 250}.0/24", "subnetName": "routingdomain_1", "subnetID": ""}
    spec["requestedIPCount"] = status["assignedIPCount"] = 0


def _no_scaler(_: _Maker, __: int, ___: Dict, status: Dict) -> None:
    del status["scaler"]


def _odd_scaler(make: _Maker, _: int, __: Dict, status: Dict) -> None:
    status["scaler"] = {"batchSize": make.random.choice((0, 8, 10, 256)), "maxIPCount": 110}


_SHAPES: dict[str, Shape] = {
    "plain": _plain,
    "two": _several(2),
    "three": _several(3),
    "v6": _v6,
    "miscounted": _miscounted,
    "renamed": _renamed,
    "no-subnet-id": _no_subnet_id,
    "nothing-yet": _nothing_yet,
    "waiting": _waiting,
    "emptied": _emptied,
    "bare": _bare,
    "releasing": _releasing,
    "growing": _growing,
    "block": _block,
    "overlay": _overlay,
    "no-scaler": _no_scaler,
    "odd-scaler": _odd_scaler,
}


def _recount(spec: Dict, status: Dict) -> None:
    total = sum(len(nc.get("ipAssignments") or ()) for nc in status["networkContainers"])
    spec["requestedIPCount"] = status["assignedIPCount"] = total


def _nnc(make: _Maker, number: int, name: str, shape: Shape) -> FieldNnc:
    node = f"aks-pool{number % 3}-{number:06d}"
    spec: Dict = {"requestedIPCount": 16}
    status: Dict = {
        "assignedIPCount": 16,
        "networkContainers": [make.container(number, number % 4, 16)],
        "scaler": dict(SCALER),
        "status": "Updated",
    }
    shape(make, number, spec, status)
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node,
        "uid": make.uuid(),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": node,
        "namespace": NAMESPACE,
        "labels": {"kubernetes.azure.com/podnetwork-delegationguid": make.uuid(), "owner": node},
        "annotations": {"acn.azure.com/note": f"node {number}"} if number % 2 else {},
        "finalizers": ["finalizers.acn.azure.com/dnc-operations"],
        "ownerReferences": [owner],
    }
    zone = {"availabilityZone": number % 4} if number % 4 else {}
    document = _document(metadata, {"requestedIPCount": 0} | zone)
    applied = _document({"name": node, "namespace": NAMESPACE}, spec) if number % 3 else None
    if applied is None:
        document["spec"] |= spec
    return FieldNnc(name, document, status or None, applied)


def _document(metadata: Dict, spec: Dict) -> Dict:
    return {
        "apiVersion": f"{GROUP}/v1alpha",
        "kind": "NodeNetworkConfig",
        "metadata": metadata,
        "spec": spec,
    }


# putting them there


async def plant(wire: Wire, nncs: Sequence[FieldNnc], *, applies: bool = True) -> None:
    """As it comes about in the field: a Node, its NNC, what it is granted, what its agent applies.

    `applies`: whether the server knows server-side apply.
    """
    turns = asyncio.Semaphore(16)

    async def one(nnc: FieldNnc) -> None:
        path = f"{collection('v1alpha')}/{nnc.name}"
        async with turns:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": nnc.name}}
            uid = (await wire.post("/api/v1/nodes", node)).ok()["metadata"]["uid"]
            nnc.document["metadata"]["ownerReferences"][0]["uid"] = uid
            made = await wire.post(collection("v1alpha"), nnc.document, fieldManager=CONTROL_PLANE)
            if nnc.status is not None:
                body = made.ok() | {"status": nnc.status}
                (await wire.put(f"{path}/status", body, fieldManager=CONTROL_PLANE)).ok()
            if nnc.applied is not None and applies:
                (await wire.apply(path, nnc.applied, AGENT)).ok()
            elif nnc.applied is not None:
                (await wire.merge(path, {"spec": nnc.applied["spec"]}, fieldManager=AGENT)).ok()

    await asyncio.gather(*map(one, nncs))


async def everything(wire: Wire, version: str = "v1alpha") -> dict[str, Dict]:
    """All NNCs as they are now, by name; quorum reads."""
    while (reply := await wire.get(collection(version))).code == 429:
        await asyncio.sleep(0.05)  # a CRD was changed, and the API server sets its storage up anew
    found = reply.ok()
    assert not found["metadata"].get("continue")
    return {item["metadata"]["name"]: item for item in found["items"]}


def owned(nnc: Mapping[str, Any]) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    """managedFields without their times: manager, operation, version, subresource, the paths it owns."""
    return sorted(
        (
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry.get("subresource", ""),
            tuple(paths(entry["fieldsV1"])),
        )
        for entry in nnc["metadata"].get("managedFields") or ()
    )


def paths(fields: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The leaves of a fieldsV1: `f:spec.f:requestedIPCount`."""
    for key, below in sorted(fields.items()):
        here = f"{above}.{key}" if above else key
        if below:
            yield from paths(below, here)
        else:
            yield here
