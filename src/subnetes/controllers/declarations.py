"""A ClusterSubnet's spec as DNC's declarations, one a family: pure."""

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.controllers.placement import family_of, keys_of
from subnetes.dnc.types import Declaration


def declarations_of(subnet: ClusterSubnet) -> list[Declaration]:
    """The gateway and the excludes go with the address space of their family."""
    spec = subnet.spec
    spaces = {family_of(cidr): cidr for cidr in spec.address_space or ()}
    gateways = {family_of(address): address for address in spec.gateway or ()}
    return [
        Declaration(
            key,
            spaces[key.family],
            gateways.get(key.family),
            tuple(each for each in spec.exclude or () if family_of(each) == key.family),
        )
        for key in keys_of(subnet)
    ]


def problem_with(subnet: ClusterSubnet) -> str:
    """What is wrong before DNC is even asked, empty if nothing is."""
    if not subnet.spec.address_space:
        return "spec.addressSpace is missing: say which addresses the subnet has"
    families = {family_of(cidr) for cidr in subnet.spec.address_space}
    strangers = [each for each in subnet.spec.exclude or () if family_of(each) not in families]
    if strangers:
        return f"spec.exclude names {strangers[0]}, and spec.addressSpace has no address of that family"
    return ""
