"""NetworkClass: a type of network: the engine that makes it and the CNI plugin that attaches pods to it."""

from typing import Annotated, ClassVar

from msgspec import Meta

from subnetes.api.declaration import AGE, Column, Rule, immutable
from subnetes.api.meta import Conditions, Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource

NETWORKING = "networking.subnetes.io"

EngineName = Annotated[str, Meta(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
PluginName = Annotated[str, Meta(max_length=255, pattern="^[A-Za-z0-9_][A-Za-z0-9._-]*$")]


class NetworkClassSpec(Model, kw_only=True):
    """Which code makes networks of this class."""

    rules: ClassVar[tuple[Rule, ...]] = (immutable("engine"),)

    engine: EngineName
    """The engine that sets up networks of this class: vlan, vxlan, or the name of another."""
    cni_name: PluginName
    """The CNI plugin that attaches pods to them, such as bridge."""


class NetworkClassStatus(Model):
    """The class as it is."""

    conditions: Conditions | None = None
    """What is to be known of the class, such as an engine that nobody provides."""


class NetworkClass(Object, kw_only=True):
    """A type of network: the engine that makes it and the CNI plugin that attaches pods to it."""

    resource: ClassVar = Resource(NETWORKING, "v1beta1", "NetworkClass", "networkclasses", namespaced=False)
    short_names: ClassVar = ("nc",)
    columns: ClassVar = (Column("Engine", ".spec.engine"), Column("CNI", ".spec.cniName"), AGE)

    spec: NetworkClassSpec
    """Which code makes networks of this class."""
    status: NetworkClassStatus | None = None
    """The class as it is."""
