"""The built-in kinds that we meet.

Pods, Nodes and Namespaces are others' and are only read, so they are Views of the few fields that count.
Leases, Events, Secrets and ConfigMaps are written, so they are whole.
"""

from typing import ClassVar

import msgspec

from subnetes.api.meta import Object, ObjectMetaView
from subnetes.api.model import Model, View
from subnetes.api.resource import Resource


class PodIP(View):
    """One of a pod's addresses."""

    ip: str = ""


class PodSpecView(View):
    """Where the pod runs, and whether it uses the node's own network."""

    node_name: str = ""
    host_network: bool = False


class PodStatusView(View):
    """How far the pod is, and with which addresses."""

    phase: str = ""
    pod_ip: str = ""
    pod_ips: list[PodIP] | None = msgspec.field(name="podIPs", default=None)


class Pod(View):
    """A pod, as far as it needs IPs."""

    resource: ClassVar = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMetaView = msgspec.field(default_factory=ObjectMetaView)
    spec: PodSpecView = msgspec.field(default_factory=PodSpecView)
    status: PodStatusView = msgspec.field(default_factory=PodStatusView)


class NodeAddress(View):
    """One of a node's addresses; the type says what it is good for."""

    type: str = ""
    address: str = ""


class NodeCondition(View):
    """One observation about a node, such as Ready."""

    type: str = ""
    status: str = ""


class NodeSpecView(View):
    """Whether pods may be scheduled here."""

    unschedulable: bool = False


class NodeStatusView(View):
    """The node's addresses and health."""

    addresses: list[NodeAddress] | None = None
    conditions: list[NodeCondition] | None = None


class Node(View):
    """A node, as far as networks are set up on it."""

    resource: ClassVar = Resource("", "v1", "Node", "nodes", namespaced=False)

    metadata: ObjectMetaView = msgspec.field(default_factory=ObjectMetaView)
    spec: NodeSpecView = msgspec.field(default_factory=NodeSpecView)
    status: NodeStatusView = msgspec.field(default_factory=NodeStatusView)


class Namespace(View):
    """A namespace."""

    resource: ClassVar = Resource("", "v1", "Namespace", "namespaces", namespaced=False)

    metadata: ObjectMetaView = msgspec.field(default_factory=ObjectMetaView)


class LeaseSpec(Model):
    """Who holds the lease, since when and for how long; times have microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """What leaders are elected by."""

    resource: ClassVar = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ObjectReference(Model):
    """Which object an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Model):
    """Who saw it, the old way."""

    component: str = ""
    host: str = ""


class EventSeries(Model):
    """An event that goes on."""

    count: int | None = None
    last_observed_time: str | None = None


class Event(Object, kw_only=True):
    """Something that happened to an object, for people to read."""

    resource: ClassVar = Resource("", "v1", "Event", "events")

    involved_object: ObjectReference
    reason: str = ""
    message: str = ""
    type: str = ""
    action: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    source: EventSource | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class Secret(Object):
    """Bytes that few may read."""

    resource: ClassVar = Resource("", "v1", "Secret", "secrets")

    type: str = ""
    data: dict[str, bytes] | None = None
    string_data: dict[str, str] | None = None
    immutable: bool | None = None


class ConfigMap(Object):
    """Texts and bytes that anybody may read."""

    resource: ClassVar = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None
    immutable: bool | None = None
