"""What may be a name or a number in DNC's record, whichever door it came through. Pure."""

from subnetes.dnc.errors import BadRequest
from subnetes.dnc.types import AdoptedNC, Fence, SubnetKey

LONGEST = 512  # characters of a name: an Azure resource id is well below
MOST = 2**31 - 1  # secondary IPs
_HIGHEST = 2**63 - 1  # what a database's integer holds


def check_name(what: str, text: str) -> None:
    if not is_name(text):
        raise BadRequest(f"{what} must be 1 to {LONGEST} printable characters, not {text[:40]!r}")


def check_key(key: SubnetKey) -> None:
    check_name("the subnet's name", key.name)
    if key.network:
        check_name("the network's id", key.network)
    if key.family not in (4, 6):
        raise BadRequest(f"the family of a subnet is 4 or 6, not {key.family}")


def check_target(target: int) -> None:
    if not 0 <= target <= MOST:
        raise BadRequest(f"the target is a number of IPs from 0 to {MOST}, not {target}")


def check_fence(fence: Fence) -> None:
    if not 0 <= fence.resource_version <= _HIGHEST or not _is_text(fence.uid):
        raise BadRequest("the fence is the uid and the resourceVersion of a NodeNetworkConfig")


def is_name(text: str) -> bool:
    return bool(text) and _is_text(text)


def is_sound(nc: AdoptedNC) -> bool:
    """Whether an adopted NC can be written down at all."""
    texts = (nc.primary, *(ip.id for ip in nc.secondary), *(ip.address for ip in nc.secondary))
    return (
        is_name(nc.id)
        and is_name(nc.node)
        and is_name(nc.subnet.name)
        and all(map(_is_text, (nc.subnet.network, *texts)))
        and nc.subnet.family in (4, 6)
        and 0 <= nc.version <= _HIGHEST
    )


def _is_text(text: str) -> bool:
    return len(text) <= LONGEST and text.isprintable()
