"""ClusterSubnetState: where agents older than ClusterSubnet learn whether their subnet is exhausted.

Azure's kind, the ancestor of ClusterSubnet. Its CRD is not ours and not among those that we generate: where a
cluster has it, DNC-RC keeps one in step with each ClusterSubnet; where it has not, nobody misses it.
"""

from typing import ClassVar

from subnetes.api.meta import Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource


class ClusterSubnetStateStatus(Model):
    """The subnet as old agents see it. The schema demands both fields."""

    exhausted: bool | None = None
    """Whether addresses are so scarce that nodes keep no spare ones."""
    timestamp: str = ""
    """When that was last decided."""


class ClusterSubnetState(Object):
    """Whether the subnet of the same name is exhausted."""

    resource: ClassVar = Resource("acn.azure.com", "v1alpha1", "ClusterSubnetState", "clustersubnetstates")

    status: ClusterSubnetStateStatus | None = None
    """The subnet as old agents see it."""
