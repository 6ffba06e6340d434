"""Every limit and every rule of our CRDs, each with a value that it lets through and one that it refuses.

One row a limit. `test_crd_rules` tries the rows on both API servers and fails if a row is missing;
`tests/unit/test_api_rules` evaluates the rules among them with the CEL library that the embedded server uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.kube.crd_rows import MISSING, SAMPLES, V1ALPHA, Json, Row, at

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "AllWell",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


def _name(kind: str, path: str, longest: int) -> list[Row]:
    """A reference to an object by its name."""
    return [
        Row(kind, path, "maxLength", "a" * longest, "a" * (longest + 1)),
        Row(kind, path, "pattern", "a-1.b", "Not_A_Name"),
    ]


def _device(kind: str, path: str, also: Mapping[str, Any] | None = None) -> list[Row]:
    return [
        Row(kind, path, "maxLength", "e" * 15, "e" * 16, also or {}),
        Row(kind, path, "pattern", "eth0.100", "eth/0", also or {}),
    ]


def _between(kind: str, path: str, low: int, high: int, also: Mapping[str, Any] | None = None) -> list[Row]:
    return [
        Row(kind, path, "minimum", low, low - 1, also or {}),
        Row(kind, path, "maximum", high, high + 1, also or {}),
    ]


def _conditions(kind: str) -> list[Row]:
    each = "status.conditions[]"
    also = {each: CONDITION}
    return [
        Row(
            kind,
            "status.conditions",
            "unique",
            [CONDITION],
            [CONDITION, CONDITION],
            blamed="status.conditions[1]",
        ),
        *(Row(kind, f"{each}.{name}", "required", CONDITION[name], MISSING, also) for name in CONDITION),
        Row(kind, f"{each}.type", "minLength", "R", "", also),
        Row(kind, f"{each}.type", "maxLength", "R" * 316, "R" * 317, also),
        Row(kind, f"{each}.status", "enum", "Unknown", "Perhaps", also),
        Row(kind, f"{each}.reason", "maxLength", "R" * 1024, "R" * 1025, also),
        Row(kind, f"{each}.reason", "pattern", "AllWell", "all is well", also),
        Row(kind, f"{each}.message", "maxLength", "m" * 32768, "m" * 32769, also),
        Row(kind, f"{each}.lastTransitionTime", "format", "2026-01-02T03:04:05Z", "yesterday", also),
        Row(kind, f"{each}.observedGeneration", "minimum", 0, -1, also),
    ]


def _range(kind: str, path: str, highest: int) -> list[Row]:
    also = {f"{path}.min": 1, f"{path}.max": highest}
    return [
        *_between(kind, f"{path}.min", 1, highest, also)[:1],
        Row(kind, f"{path}.min", "maximum", highest, highest + 1, {f"{path}.max": highest}),
        Row(kind, f"{path}.max", "minimum", 1, 0, {f"{path}.min": 1}),
        Row(kind, f"{path}.max", "maximum", highest, highest + 1, also),
        Row(kind, f"{path}.min", "required", 1, MISSING, also),
        Row(kind, f"{path}.max", "required", 2, MISSING, also),
        Row(
            kind,
            path,
            "min must not be above max",
            {"min": 2, "max": 2},
            {"min": 2, "max": 1},
            blamed=f"{path}.min",
        ),
    ]


def _options(kind: str, options: str) -> list[Row]:
    vlan, vxlan = f"{options}.vlanOptions", f"{options}.vxLanOptions"
    both: Json = {"vlanOptions": {}, "vxLanOptions": {}}
    return [
        Row(kind, options, "vlanOptions and vxLanOptions exclude each other", {"vxLanOptions": {}}, both),
        *_device(kind, f"{vlan}.nic"),
        Row(kind, f"{vlan}.nics", "minItems", ["eth0"], []),
        Row(kind, f"{vlan}.nics", "maxItems", [f"e{n}" for n in range(16)], [f"e{n}" for n in range(17)]),
        Row(kind, f"{vlan}.nics", "unique", ["eth0", "eth1"], ["eth0", "eth0"], blamed=f"{vlan}.nics[1]"),
        *_device(kind, f"{vlan}.nics[]"),
        Row(
            kind,
            vlan,
            "nic and nics exclude each other",
            {"nic": "eth0"},
            {"nic": "eth0", "nics": ["eth1"]},
            blamed=f"{vlan}.nic",
        ),
        Row(
            kind,
            vlan,
            "a bond needs nics",
            {"nics": ["eth0"], "bond": {}},
            {"nic": "eth0", "bond": {}},
            blamed=f"{vlan}.bond",
        ),
        Row(kind, f"{vlan}.bond.mode", "enum", "802.3ad", "fast", {f"{vlan}.nics": ["eth0"]}),
        Row(kind, f"{vlan}.bond.miimon", "minimum", 1, 0, {f"{vlan}.nics": ["eth0"]}),
        *_between(kind, f"{vlan}.mtu", 68, 65535),
        *_range(kind, f"{vlan}.vlanRange", 4094),
        *_device(kind, f"{vxlan}.nic"),
        Row(kind, f"{vxlan}.underlayCIDR", "format", "fd00::/8", "10.0.0.0/33"),
        Row(kind, f"{vxlan}.underlayCIDR", "maxLength", "10.0.0.0/8", f"10.0.0.0/{'0' * 40}8"),
        Row(
            kind,
            vxlan,
            "nic and underlayCIDR exclude each other",
            {"underlayCIDR": "10.0.0.0/8"},
            {"nic": "eth0", "underlayCIDR": "10.0.0.0/8"},
            blamed=f"{vxlan}.nic",
        ),
        *_between(kind, f"{vxlan}.dstPort", 1, 65535),
        *_between(kind, f"{vxlan}.mtu", 68, 65535),
        *_range(kind, f"{vxlan}.vniRange", 16777215),
    ]


def _address(kind: str, path: str) -> list[Row]:
    message = "must be an IP address, such as 10.1.0.1 or fd00::1"
    return [
        Row(kind, path, "maxLength", "10.1.0.1", "1" * 46),
        Row(kind, path, message, "10.1.0.1", "10.1.0.256"),
        Row(kind, path, message, "10.255.9.0", "fd00"),
        Row(kind, path, message, "192.168.100.200", "10.1.0.0/16"),
    ]


def _node_network_configs() -> Iterator[Row]:
    for kind in ("NodeNetworkConfig", V1ALPHA):
        container = "status.networkContainers[]"
        yield Row(kind, f"{container}.assignmentMode", "enum", "static", "by hand")
        yield Row(kind, "status.status", "enum", "Updated", "Done")
    yield Row("NodeNetworkConfig", "spec.secondaryIPs{}", "minimum", 0, -1)
    yield Row("NodeNetworkConfig", "status.networkContainers[].secondaryIPCount", "minimum", 0, -1)
    yield Row(V1ALPHA, "spec.requestedIPCount", "minimum", 0, -1)


def _cluster_subnets() -> Iterator[Row]:
    kind = "ClusterSubnet"
    for scaler in ("spec.scaler", "status.scaler"):
        also = {scaler: {"batch": 16, "buffer": 0.5}}
        yield Row(kind, f"{scaler}.batch", "minimum", 1, 0, also)
        yield Row(kind, f"{scaler}.buffer", "minimum", 0, -0.25, also)
    for name in ("batch", "buffer"):
        yield Row(
            kind,
            f"status.scaler.{name}",
            "required",
            1,
            MISSING,
            {"status.scaler": {"batch": 16, "buffer": 0.5}},
        )
    for name in ("capacity", "reserved", "timestamp"):
        yield Row(kind, f"status.{name}", "minimum", 2**53 - 1, -1)
    yield Row(kind, "spec.thresholds.upper", "maximum", 1, 1.01)
    yield Row(kind, "spec.thresholds.lower", "minimum", 0.01, 0)
    yield Row(
        kind,
        "spec.thresholds",
        "lower (0.8 unless given) must be below upper (0.9 unless given)",
        {"upper": 0.81},
        {"upper": 0.8},
        blamed="spec.thresholds.lower",
    )
    yield from _subnet_addresses(kind)
    yield Row(kind, "spec.networkID", "minLength", "b", "")
    yield Row(kind, "spec.networkID", "maxLength", "b" * 253, "b" * 254)
    yield Row(
        kind,
        "spec",
        "networkID cannot be changed, added or removed",
        {"networkID": "blue", "addressSpace": ["10.2.0.0/16"]},
        {"networkID": "red"},
        blamed="spec.networkID",
        on_update=True,
    )
    yield from _node_selector(kind)
    yield from _conditions(kind)


def _subnet_addresses(kind: str) -> Iterator[Row]:
    space, gateway, exclude = "spec.addressSpace", "spec.gateway", "spec.exclude"
    dual = ["10.1.0.0/16", "fd00::/64"]
    yield Row(kind, space, "minItems", dual, [])
    yield Row(kind, space, "maxItems", dual, [*dual, "10.2.0.0/16"])
    yield Row(kind, space, "at most one for IPv4 and one for IPv6", dual, ["10.1.0.0/16", "10.2.0.0/16"])
    yield Row(kind, f"{space}[]", "format", "fd00::/64", "10.1.0.0")
    yield Row(kind, f"{space}[]", "maxLength", "10.0.0.0/8", f"10.0.0.0/{'0' * 40}8")
    yield Row(
        kind, gateway, "maxItems", ["10.1.0.1", "fd00::1"], ["10.1.0.1", "fd00::1", "10.1.0.2"], {space: dual}
    )
    yield Row(kind, gateway, "at most one for IPv4 and one for IPv6", ["10.1.0.1"], ["10.1.0.1", "10.1.0.2"])
    yield from _address(kind, f"{gateway}[]")
    yield Row(
        kind,
        "spec",
        "a gateway needs an addressSpace of its own family",
        {"addressSpace": dual, "gateway": ["fd00::1"]},
        {"addressSpace": ["10.1.0.0/16"], "gateway": ["fd00::1"]},
        blamed=gateway,
    )
    yield Row(kind, exclude, "maxItems", ["10.1.0.9"] * 256, ["10.1.0.9"] * 257)
    yield Row(kind, f"{exclude}[]", "maxLength", "10.1.0.9", "1" * 92)
    message = "must be an IP address (10.1.0.9), a range (10.1.0.10-10.1.0.20) or a CIDR (10.1.0.32/28)"
    for good, bad in (
        ("10.1.0.10-10.1.0.20", "10.1.0.10..20"),
        ("10.1.0.32/28", "10.1.0.0/"),
        ("fd00::1-fd00::ff", "fd00::1-"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7"),
        ("::/64", "everything"),
    ):
        yield Row(kind, f"{exclude}[]", message, good, bad)


def _node_selector(kind: str) -> Iterator[Row]:
    expressions = "spec.nodeSelector.matchExpressions"
    one = {"key": "pool", "operator": "In", "values": ["a"]}
    also = {f"{expressions}[]": one}
    yield Row(kind, expressions, "maxItems", [one] * 64, [one] * 65)
    yield Row(kind, f"{expressions}[].key", "minLength", "p", "", also)
    yield Row(kind, f"{expressions}[].key", "maxLength", "p" * 317, "p" * 318, also)
    yield Row(kind, f"{expressions}[].operator", "enum", "NotIn", "Like", also)
    yield Row(kind, f"{expressions}[].values", "maxItems", ["a"] * 64, ["a"] * 65, also)
    yield Row(kind, f"{expressions}[].values[]", "maxLength", "a" * 63, "a" * 64, also)
    yield Row(kind, f"{expressions}[].key", "required", "pool", MISSING, also)
    yield Row(kind, f"{expressions}[].operator", "required", "In", MISSING, also)
    yield Row(
        kind,
        f"{expressions}[]",
        "In and NotIn need values, Exists and DoesNotExist have none",
        {"key": "pool", "operator": "Exists"},
        {"key": "pool", "operator": "In"},
        blamed=f"{expressions}[].values",
    )


def _unchanging(kind: str, name: str, value: str) -> Row:
    """A field that keeps its value: writing the same again is allowed."""
    spec: Json = SAMPLES[kind]["spec"]
    message, blamed = f"{name} cannot be changed", f"spec.{name}"
    return Row(kind, "spec", message, spec, {**spec, name: value}, blamed=blamed, on_update=True)


def _required(kind: str, *paths: str) -> list[Row]:
    return [Row(kind, path, "required", at(SAMPLES[kind], path), MISSING) for path in paths]


def _network_classes() -> Iterator[Row]:
    kind = "NetworkClass"
    yield from _required(kind, "spec", "spec.engine", "spec.cniName")
    yield Row(kind, "spec.engine", "maxLength", "e" * 63, "e" * 64)
    yield Row(kind, "spec.engine", "pattern", "my-engine", "My Engine")
    yield Row(kind, "spec.cniName", "maxLength", "c" * 255, "c" * 256)
    yield Row(kind, "spec.cniName", "pattern", "cilium-cni", "../bridge")
    yield _unchanging(kind, "engine", "vxlan")
    yield from _conditions(kind)


def _cluster_networks() -> Iterator[Row]:
    kind = "ClusterNetwork"
    yield from _required(kind, "spec", "spec.NetworkClassName")
    yield from _name(kind, "spec.NetworkClassName", 253)
    yield _unchanging(kind, "NetworkClassName", "vxlan")
    yield Row(
        kind, "", "the name must not be longer than 63 characters", "n" * 63, "n" * 64, blamed="metadata"
    )
    yield from _options(kind, "spec.DefaultOptions")
    for name in ("desiredNodes", "readyNodes"):
        yield Row(kind, f"status.{name}", "minimum", 0, -1)
    yield from _conditions(kind)


def _node_networks() -> Iterator[Row]:
    kind, device = "NodeNetwork", "status.devices[]"
    bridge = {"name": "br-1", "type": "bridge"}
    yield from _required(kind, "spec", "spec.nodeName", "spec.clusterNetworkName")
    yield from _name(kind, "spec.nodeName", 253)
    yield from _name(kind, "spec.clusterNetworkName", 63)
    yield _unchanging(kind, "nodeName", "node-2")
    yield _unchanging(kind, "clusterNetworkName", "other")
    yield from _options(kind, "spec.options")
    many = [{"name": f"d{n}", "type": "vlan"} for n in range(65)]
    yield Row(kind, "status.devices", "maxItems", many[:64], many)
    yield Row(kind, "status.devices", "unique", [bridge], [bridge, bridge], blamed="status.devices[1]")
    yield from _device(kind, f"{device}.name", {device: bridge})
    yield Row(kind, f"{device}.type", "minLength", "v", "", {device: bridge})
    yield Row(kind, f"{device}.type", "maxLength", "v" * 63, "v" * 64, {device: bridge})
    yield from (Row(kind, f"{device}.{name}", "required", "x", MISSING, {device: bridge}) for name in bridge)
    yield from _address(kind, "status.vtepAddress")
    yield from _conditions(kind)


def _networks() -> Iterator[Row]:
    kind, conf = "Network", "spec.conf"
    vlan, vxlan = {"vid": 100}, {"VNI": 100}
    yield from _required(kind, "spec", "spec.clusterNetworkName", "spec.conf", "spec.conf.vlanConf.vid")
    yield from _name(kind, "spec.clusterNetworkName", 63)
    yield from _name(kind, "spec.subnetName", 253)
    yield _unchanging(kind, "clusterNetworkName", "other")
    yield from _between(kind, f"{conf}.vlanConf.vid", 1, 4094)
    tunnel = {f"{conf}.vlanConf": MISSING, f"{conf}.vxLanConf": vxlan}
    yield from _between(kind, f"{conf}.vxLanConf.VNI", 1, 16777215, tunnel)
    yield Row(kind, f"{conf}.vxLanConf.VNI", "required", 1, MISSING, tunnel)
    exactly_one = "exactly one of vlanConf and vxLanConf must be given"
    for bad in ({}, {"vlanConf": None, "vxLanConf": None}, {"vlanConf": vlan, "vxLanConf": vxlan}):
        yield Row(kind, conf, exactly_one, {"vlanConf": None, "vxLanConf": vxlan}, bad)
    yield Row(
        kind,
        conf,
        "a network cannot change between VLAN and VXLAN",
        {"vlanConf": {"vid": 101}, "vxLanConf": None},
        {"vxLanConf": vxlan},
        on_update=True,
    )
    yield from _conditions(kind)


ROWS: list[Row] = [
    *_node_network_configs(),
    *_cluster_subnets(),
    *_network_classes(),
    *_cluster_networks(),
    *_node_networks(),
    *_networks(),
]
