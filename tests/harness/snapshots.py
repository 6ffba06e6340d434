"""What a test's own parts know of IPs, as one `Snapshot` for the invariants' checker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from subnetes.api.core import Pod
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.dnc.types import NC
from subnetes.ipam.snapshot import Container, Grant, NodeConfig, PodRecord


def of_dnc(ncs: Iterable[NC]) -> tuple[Container, ...]:
    return tuple(
        Container(
            id=nc.id,
            node=nc.node,
            subnet=nc.subnet.name,
            network=nc.subnet.network,
            cidr=nc.cidr,
            primary=nc.primary,
            version=nc.version,
            secondary=tuple(Grant(ip.id, ip.address) for ip in nc.secondary),
        )
        for nc in ncs
    )


def of_nncs(nncs: Iterable[NodeNetworkConfig]) -> tuple[NodeConfig, ...]:
    return tuple(
        NodeConfig(
            node=nnc.metadata.name,
            containers=tuple(_containers(nnc)),
            targets=(nnc.spec.secondary_ips if nnc.spec else None) or {},
            released=tuple((nnc.spec.released_ips if nnc.spec else None) or ()),
        )
        for nnc in nncs
    )


def _containers(nnc: NodeNetworkConfig) -> Iterator[Container]:
    shown: list[NetworkContainer] = (nnc.status.network_containers if nnc.status else None) or []
    for nc in shown:
        yield Container(
            id=nc.id,
            node=nnc.metadata.name,
            subnet=nc.subnet_name,
            network=nc.vnet_id,
            cidr=nc.subnet_address_space,
            primary=nc.primary_ip,
            version=nc.version or 0,
            secondary=tuple(Grant(ip.id, ip.address) for ip in nc.secondary_ips or ()),
        )


def of_pods(pods: Iterable[Pod]) -> tuple[PodRecord, ...]:
    return tuple(
        PodRecord(
            namespace=pod.metadata.namespace or "",
            name=pod.metadata.name,
            uid=pod.metadata.uid or "",
            node=pod.spec.node_name,
            addresses=tuple(each.ip for each in pod.status.pod_ips or ()),
            finished=pod.status.phase in ("Succeeded", "Failed"),
            terminating=pod.metadata.deletion_timestamp is not None,
        )
        for pod in pods
        if not pod.spec.host_network
    )
