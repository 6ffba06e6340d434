"""A node's pool without a cluster: a real `Ipam`, journal and all, that was granted some IPs."""

from pathlib import Path

from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal, this_boot

SUBNET = "podnet"


def ipam(folder: Path, ips: int = 16, *, wait: float = 0.0, v6: bool = False) -> Ipam:
    """One NC with this many IPs; with `v6`, a second one of the other family."""
    made = Ipam(Journal(folder / "journal", this_boot()), wait=wait)
    made.reconcile(granted(ips, v6=v6))
    return made


def granted(ips: int, *, v6: bool = False, version: int = 1) -> NodeNetworkConfig:
    ncs = [_container("nc-1", "10.0.0.0/16", "10.0.0.1", _v4(ips), version)]
    if v6:
        ncs.append(
            _container("nc-2", "fd00::/64", "fd00::1", [f"fd00::{n + 16:x}" for n in range(ips)], version)
        )
    return NodeNetworkConfig(
        metadata=ObjectMeta(name="node-1", namespace="kube-system"),
        status=NodeNetworkConfigStatus(network_containers=ncs, status="Updated"),
    )


def _v4(ips: int) -> list[str]:
    return [f"10.0.{(n + 16) // 256}.{(n + 16) % 256}" for n in range(ips)]


def _container(name: str, cidr: str, gateway: str, addresses: list[str], version: int) -> NetworkContainer:
    return NetworkContainer(
        id=name,
        subnet_name=SUBNET,
        subnet_address_space=cidr,
        default_gateway=gateway,
        primary_ip="fd00::4" if ":" in cidr else "10.0.0.4",
        version=version,
        secondary_ips=[SecondaryIP(id=f"{name}-{n}", address=each) for n, each in enumerate(addresses)],
    )
