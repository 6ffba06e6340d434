"""What a sandbox is told: its addresses with what their subnet says of them, or why there is none. Pure.

`Ipam` answers with these; the event on a pod that waits carries the same words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subnetes.cns.containers import Container, by_id, serving
from subnetes.ipam.pool import IP, Pool, State


@dataclass(frozen=True, slots=True)
class Assigned:
    """One address of an attachment, with what its subnet says."""

    address: str
    prefix_length: int
    gateway: str
    nc_id: str
    subnet: str
    family: int


def described(ips: Iterable[IP], containers: Sequence[Container]) -> list[Assigned]:
    known = by_id(containers)
    return [_described(ip, known.get(ip.nc)) for ip in ips]


def _described(ip: IP, nc: Container | None) -> Assigned:
    family = 6 if ":" in ip.address else 4
    if nc is None:  # an attachment may outlive its NC
        return Assigned(ip.address, 128 if family == 6 else 32, "", ip.nc, "", family)
    return Assigned(ip.address, nc.prefix_length, nc.gateway, nc.id, nc.subnet, family)


def shortage(pool: Pool, containers: Sequence[Container], subnet: str | None) -> str:
    """Why an ADD gets no IP, and what helps."""
    ncs = serving(containers, subnet)
    if not ncs:
        what = f"subnet {subnet}" if subnet else "the default network"
        return f"this node draws from no subnet for {what}: see which ClusterSubnets match the node"
    empty = [nc for nc in ncs if not pool.count(nc.id, State.AVAILABLE)] or list(ncs)
    return "; ".join(_short_of(nc, pool) for nc in empty)


def _short_of(nc: Container, pool: Pool) -> str:
    used, letting_go = pool.count(nc.id, State.ASSIGNED), pool.count(nc.id, State.PENDING_RELEASE)
    state = "the subnet is full" if nc.full else "more were asked for and have not come yet"
    return (
        f"no IP of subnet {nc.subnet} ({nc.cidr}) is free on this node: {used} are in use, {letting_go} on"
        f" their way back; {state}"
        + ("; it starts by itself when others let go, or enlarge the subnet" if nc.full else "")
    )
