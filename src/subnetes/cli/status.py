"""`subnetes status`: the subnets and the nodes' pools, as two tables.

The rows are made by pure functions, which `subnetes demo` shows live too.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Pod
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.cli import connection
from subnetes.kube.client import Client


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One network container, or a node that has none yet."""

    node: str
    nc: str = ""
    subnet: str = ""
    requested: int = 0
    granted: int = 0
    assigned: int = 0
    waiting: str = ""


def add_to(commands: Any) -> None:
    command = commands.add_parser("status", help="show the subnets and the nodes' IP pools")
    connection.add_kubeconfig(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return connection.run("status", options, _show)


async def _show(client: Client, _: argparse.Namespace) -> None:
    subnets = (await client.list(ClusterSubnet, NAMESPACE)).items
    nncs = (await client.list(NodeNetworkConfig, NAMESPACE)).items
    pods = (await client.list(Pod)).items
    console = Console()
    console.print(subnet_table(subnets) if subnets else "no ClusterSubnet is declared")
    console.print(pool_table(pool_rows(nncs, pods)) if nncs else "no node has a pool yet")


def subnet_table(subnets: Iterable[ClusterSubnet]) -> Table:
    table = _table("Subnets", "subnet", "CIDR", "capacity>", "reserved>", "exhausted", "batch>", "buffer>")
    for each in subnets:
        status, name = each.status, each.metadata.name
        space = ", ".join(each.spec.address_space or [])
        if status is None:
            table.add_row(name, space, "", "", "not looked at yet", "", "")
            continue
        scaler = (str(status.scaler.batch), f"{status.scaler.buffer:g}") if status.scaler else ("", "")
        exhausted = Text("yes", "bold red") if status.exhausted else Text("no")
        table.add_row(name, space, _number(status.capacity), _number(status.reserved), exhausted, *scaler)
    return table


def pool_table(rows: Iterable[PoolRow]) -> Table:
    columns = ("node", "NC", "subnet", "requested>", "granted>", "assigned>", "waiting for")
    table = _table("Pools", *columns)
    for row in rows:
        counts = (str(row.requested), str(row.granted), str(row.assigned))
        table.add_row(row.node, row.nc[:8], row.subnet, *counts, Text(row.waiting, "yellow"))
    return table


def pool_rows(nncs: Iterable[NodeNetworkConfig], pods: Iterable[Pod]) -> list[PoolRow]:
    held = _addresses_by_node(pods)
    found = sorted(nncs, key=lambda nnc: nnc.metadata.name)
    return [row for nnc in found for row in _rows_of(nnc, held.get(nnc.metadata.name, set()))]


def _rows_of(nnc: NodeNetworkConfig, held: set[str]) -> list[PoolRow]:
    containers = (nnc.status.network_containers if nnc.status else None) or []
    asked = (nnc.spec.secondary_ips if nnc.spec else None) or {}
    if not containers:
        full = nnc.status is not None and nnc.status.status == "Error"
        why = "a primary IP: the subnet is full" if full else "its first network container"
        return [PoolRow(nnc.metadata.name, waiting=why)]
    return [_row(nnc.metadata.name, each, asked, held) for each in containers]


def _row(node: str, nc: NetworkContainer, asked: Mapping[str, int], held: set[str]) -> PoolRow:
    granted = {each.address for each in nc.secondary_ips or []}
    requested = asked.get(nc.id, 0)
    return PoolRow(
        node=node,
        nc=nc.id,
        subnet=nc.subnet_name,
        requested=requested,
        granted=len(granted),
        assigned=len(granted & held),
        waiting=_waiting(nc, requested - len(granted)),
    )


def _waiting(nc: NetworkContainer, missing: int) -> str:
    if nc.status == "NCUpdateSubnetFullError":
        return f"{max(missing, 0)} IPs: {nc.subnet_name} is full"
    if missing > 0:
        return f"{missing} IPs: the grant is under way"
    return f"{-missing} IPs to be taken back" if missing < 0 else ""


def _addresses_by_node(pods: Iterable[Pod]) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {}
    for pod in pods:
        if not pod.spec.host_network and pod.status.phase not in ("Succeeded", "Failed"):
            found = {each.ip for each in pod.status.pod_ips or []}
            held.setdefault(pod.spec.node_name, set()).update(found)
    return held


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left")
    return table


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
