"""Names that several components must spell alike: annotations, finalizers, labels, the reserved namespace.

What an NNC carries beside its fields. One owner each: DNC-RC writes all of them but CONVERSION, agents and
conversions read.
"""

NAMESPACE = "kube-system"

SCALER = "acn.azure.com/scaler"
"""On an NNC, for readers of v1alpha: the scaling values of its first network container, as JSON."""
CONVERSION = "acn.azure.com/conversion"
"""On an NNC: what the version that it is shown or stored in cannot say, as JSON. The conversion's alone."""
DRAINING = "acn.azure.com/draining"
"""On an NNC: the ids of network containers whose subnet no longer matches the node, with commas between."""
GRANTER = "acn.azure.com/granter"
"""On an NNC: the replica of DNC-RC that grants. A new leader writes it first, so that what a former one still
has under way conflicts."""
MAX_IPS = "acn.azure.com/max-ip-count"
"""On a Node: how many IPs it may have over all its network containers, instead of the default."""
IMPORTED_MAX = "acn.azure.com/imported-max-ip-count"
"""On an NNC: how many IPs its node may have, as an older control plane said; while the Node says nothing."""

RELEASE_FINALIZER = "acn.azure.com/release-ips"
"""On an NNC: its IPs are still reserved."""
SUBNET_FINALIZER = "acn.azure.com/in-use"
"""On a ClusterSubnet: network containers draw from it."""

RETURNING = "acn.azure.com/returning"
"""Label of the ConfigMap that keeps a returning node's network containers while its NNC is made anew."""
RETURNING_PREFIX = "returning-nnc-"

IMPORTED_SCALER = "acn.azure.com/imported-scaler"
"""On a ClusterSubnet: the scaling values that its nodes had before it was declared, as JSON. They rule again
when an override is removed."""
ACCEPTED = "acn.azure.com/accepted"
"""On a ClusterSubnet: the addresses of its spec as DNC accepted them last, as JSON. A new leader has DNC
serve them while a later edit is refused."""
