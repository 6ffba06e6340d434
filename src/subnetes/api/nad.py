"""NetworkAttachmentDefinition: the CNI configuration that pods name to be attached to a further network.

The Network Plumbing Working Group's kind, not ours: meta plugins such as Multus read it. Where one of them is
installed, its CRD is there already and stays.
"""

from typing import ClassVar

from subnetes.api.meta import Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource


class NetworkAttachmentDefinitionSpec(Model):
    """How to attach."""

    config: str = ""
    """A CNI configuration or configuration list, as JSON text."""


class NetworkAttachmentDefinition(Object):
    """A network that pods can be attached to besides their first, by naming it in an annotation."""

    resource: ClassVar = Resource(
        "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions"
    )
    short_names: ClassVar = ("net-attach-def",)

    spec: NetworkAttachmentDefinitionSpec | None = None
    """How to attach."""
