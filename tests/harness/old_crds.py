"""The NodeNetworkConfig CRD of a cluster that another control plane set up: v1alpha and nothing else."""

from __future__ import annotations

from typing import Any

GROUP = "acn.azure.com"
NC_STATUSES = (
    "NCUpdateSuccess",
    "NCUpdateSubnetFullError",
    "NCUpdateInternalServerError",
    "NCUpdateUnauthorizedError",
    "NCUpdateFailed",
)
SCALER = {"batchSize": 16, "maxIPCount": 250, "releaseThresholdPercent": 150, "requestThresholdPercent": 50}

Dict = dict[str, Any]


def _text() -> Dict:
    return {"type": "string"}


def _number(**more: Any) -> Dict:
    return {"type": "integer", "format": "int64"} | more


def _container() -> Dict:
    texts = (
        "defaultGateway defaultGatewayV6 id macAddress nodeIP primaryIP primaryIPV6 resourceGroupID"
        " subcriptionID subnetAddressSpace subnetAddressSpaceV6 subnetID subnetName vnetID"
    )
    assignment = {"type": "object", "properties": {"ip": _text(), "name": _text()}}
    special = {
        "assignmentMode": {"type": "string", "default": "dynamic", "enum": ["dynamic", "static"]},
        "ipAssignments": {"type": "array", "items": assignment},
        "status": {"type": "string", "enum": [*NC_STATUSES]},
        "type": {"type": "string", "default": "vnet"},
        "version": _number(default=0),
    }
    return {"type": "object", "properties": {name: _text() for name in texts.split()} | special}


def field_crd() -> Dict:
    """v1alpha and nothing else, with the defaults and columns that its users have."""
    spec = {
        "availabilityZone": {"type": "integer"},
        "ipsNotInUse": {"type": "array", "items": _text()},
        "requestedIPCount": _number(default=0),
    }
    status = {
        "assignedIPCount": {"type": "integer", "default": 0},
        "networkContainers": {"type": "array", "items": _container()},
        "scaler": {"type": "object", "properties": {name: _number() for name in SCALER}},
        "status": {"type": "string", "enum": ["Updating", "Updated", "Error"]},
    }
    parts = {"spec": spec, "status": status}
    properties = {name: {"type": "object", "properties": each} for name, each in parts.items()}
    first = ".status.networkContainers[*]"
    version = {
        "name": "v1alpha",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("Requested IPs", ".spec.requestedIPCount", "integer", 1),
            _column("Availability Zone", ".spec.availabilityZone", "string", 1),
            _column("Allocated IPs", ".status.assignedIPCount", "integer", 0),
            _column("Subnet", f"{first}.subnetName", "string", 1),
            _column("Subnet CIDR", f"{first}.subnetAddressSpace", "string", 1),
            _column("NC ID", f"{first}.id", "string", 1),
            _column("NC Mode", f"{first}.assignmentMode", "string", 0),
            _column("NC Type", f"{first}.type", "string", 1),
            _column("NC Version", f"{first}.version", "integer", 0),
        ],
    }
    names = {
        "kind": "NodeNetworkConfig",
        "listKind": "NodeNetworkConfigList",
        "plural": "nodenetworkconfigs",
        "singular": "nodenetworkconfig",
        "shortNames": ["nnc"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"nodenetworkconfigs.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _column(name: str, path: str, kind: str, priority: int) -> Dict:
    return {"name": name, "jsonPath": path, "type": kind, "priority": priority}
