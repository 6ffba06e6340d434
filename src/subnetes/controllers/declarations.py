"""A ClusterSubnet's spec as DNC's declarations, one a family: pure.

What DNC accepted last is kept in an annotation: an edit that is refused must change nothing, also for a
leader that never saw the spec as it was before.
"""

import msgspec

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.model import decode, encode
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


def accepted_text(subnet: ClusterSubnet) -> str:
    """What of the spec DNC knows, for the annotation."""
    spec = subnet.spec
    known = ClusterSubnetSpec(
        address_space=spec.address_space,
        gateway=spec.gateway,
        exclude=spec.exclude,
        network_id=spec.network_id,
    )
    return encode(known).decode()


def accepted(subnet: ClusterSubnet) -> ClusterSubnet | None:
    """The subnet as DNC accepted it last; None: it never did, or the annotation is not what we write."""
    text = (subnet.metadata.annotations or {}).get(names.ACCEPTED)
    if not text:
        return None
    try:
        spec = decode(ClusterSubnetSpec, text.encode())
    except (msgspec.DecodeError, ValueError):
        return None
    as_it_was = msgspec.structs.replace(subnet, spec=spec)
    return None if problem_with(as_it_was) else as_it_was
