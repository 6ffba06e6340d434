"""DNC's HTTP API as data: what the server serves, the client calls and the OpenAPI document says. Pure."""

from dataclasses import dataclass
from typing import Any

from subnetes.dnc.types import (
    NC,
    AdoptedNC,
    Conflict,
    Fence,
    SetResult,
    Subnet,
    SubnetKey,
    Utilization,
    Waiter,
)

NO_NETWORK = "-"  # stands in a path for the empty network id


@dataclass(frozen=True, slots=True)
class SubnetBody:
    cidr: str
    gateway: str | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NCBody:
    node: str
    subnet: SubnetKey


@dataclass(frozen=True, slots=True)
class SecondaryBody:
    fence: Fence
    target: int
    released: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmedBody:
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdoptionBody:
    ncs: tuple[AdoptedNC, ...]


@dataclass(frozen=True, slots=True)
class Freed:
    freed: int


@dataclass(frozen=True, slots=True)
class Done:
    done: bool = True


@dataclass(frozen=True, slots=True)
class ErrorBody:
    reason: str  # the error's name in errors.py
    message: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    operation: str
    method: str
    path: str
    summary: str
    answer: Any
    body: Any = None
    query: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


_SUBNET = "/networks/{network}/subnets/{subnet}"
_FAMILY = _SUBNET + "/families/{family}"
_WAITING = "/clusters/{cluster}" + _FAMILY + "/waiting"
_NCS = "/clusters/{cluster}/ncs"

ROUTES: dict[str, Route] = {
    route.operation: route
    for route in (
        Route(
            "utilization",
            "GET",
            _SUBNET + "/utilization",
            "How full a subnet is",
            Utilization,
            query=("family",),
            errors=("SubnetUnknown",),
        ),
        Route("subnets", "GET", "/subnets", "Every subnet on record", list[Subnet]),
        Route(
            "ensureSubnet",
            "PUT",
            _FAMILY,
            "Declare a subnet, grow it, change its gateway or excludes",
            Utilization,
            body=SubnetBody,
            errors=("SubnetInUse", "SubnetInvalid", "SubnetOverlaps"),
        ),
        Route("deleteSubnet", "DELETE", _FAMILY, "Delete an unused subnet", Done, errors=("SubnetInUse",)),
        Route("waiting", "GET", _WAITING, "Who of the cluster waits for IPs, in order", list[Waiter]),
        Route("releaseWait", "DELETE", _WAITING + "/{node}", "A node waits for no primary any more", Done),
        Route("ncs", "GET", _NCS, "The cluster's network containers", list[NC], query=("node",)),
        Route(
            "ensureNC",
            "POST",
            _NCS,
            "A node's network container in a subnet: a primary, no secondary IPs at first",
            NC,
            body=NCBody,
            errors=("SubnetUnknown", "SubnetFull"),
        ),
        Route("nc", "GET", _NCS + "/{nc}", "One network container", NC, errors=("NCUnknown",)),
        Route("deleteNC", "DELETE", _NCS + "/{nc}", "Free everything of a network container", Freed),
        Route(
            "setSecondary",
            "PUT",
            _NCS + "/{nc}/secondary",
            "Take out what is released, then grant up to the target",
            SetResult,
            body=SecondaryBody,
            errors=("NCUnknown", "StaleReading"),
        ),
        Route(
            "confirm",
            "POST",
            _NCS + "/{nc}/confirmed",
            "Free what is leaving a network container and is shown by its node's status no longer",
            Freed,
            body=ConfirmedBody,
        ),
        Route(
            "adopt",
            "POST",
            "/clusters/{cluster}/adoptions",
            "Take network containers into the record as they stand; the answer is what conflicts",
            list[Conflict],
            body=AdoptionBody,
        ),
    )
}
