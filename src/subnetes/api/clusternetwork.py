"""ClusterNetwork: one L2 fabric, of the type that its NetworkClass names, over the nodes of a cluster."""

from typing import ClassVar

import msgspec

from subnetes.api.declaration import AGE, READY, Column, Rule, immutable
from subnetes.api.limits import Count, ObjectName
from subnetes.api.meta import Conditions, Object
from subnetes.api.model import Model
from subnetes.api.networkclass import NETWORKING
from subnetes.api.options import Options
from subnetes.api.resource import Resource


class ClusterNetworkSpec(Model, kw_only=True):
    """The fabric as declared."""

    rules: ClassVar[tuple[Rule, ...]] = (immutable("NetworkClassName"),)

    description: str = ""
    """What the fabric is for."""
    network_class_name: ObjectName = msgspec.field(name="NetworkClassName")
    """The NetworkClass that the fabric is of."""
    default_options: Options = msgspec.field(name="DefaultOptions", default_factory=Options)
    """How the fabric is built on a node whose NodeNetwork does not say otherwise."""


class ClusterNetworkStatus(Model):
    """The fabric as it is."""

    conditions: Conditions | None = None
    """What is to be known of the fabric; Ready is True while it works on every node that should have it."""
    desired_nodes: Count | None = None
    """How many nodes should have the fabric."""
    ready_nodes: Count | None = None
    """On how many nodes it works."""


class ClusterNetwork(Object, kw_only=True):
    """One L2 fabric over the nodes of the cluster. Networks are parts of it, by VLAN id or VNI."""

    resource: ClassVar = Resource(
        NETWORKING, "v1beta1", "ClusterNetwork", "clusternetworks", namespaced=False
    )
    short_names: ClassVar = ("cn", "cns")
    columns: ClassVar = (
        Column("Class", ".spec.NetworkClassName"),
        Column("Desired", ".status.desiredNodes", "integer"),
        Column("Ready Nodes", ".status.readyNodes", "integer"),
        READY,
        Column("Description", ".spec.description", wide=True),
        AGE,
    )
    selectable: ClassVar = (".spec.NetworkClassName",)
    # The name becomes the name part of a node label, networking.subnetes.io/<name>.
    rules: ClassVar = (
        Rule(
            "size(self.metadata.name) <= 63",
            "the name must not be longer than 63 characters",
            ".metadata",
        ),
    )

    spec: ClusterNetworkSpec
    """The fabric as declared."""
    status: ClusterNetworkStatus | None = None
    """The fabric as it is."""
