"""What a test's own parts know of IPs, as `subnetes ipam check` would read it."""

from __future__ import annotations

from collections.abc import Iterable

from subnetes.api.model import to_builtins
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cli.reading import config_records, dnc_container
from subnetes.cns.journal import Loaded, without_assignments
from subnetes.dnc.types import NC
from subnetes.ipam.moves import IP
from subnetes.ipam.snapshot import Container, NodeConfig


def of_dnc(ncs: Iterable[NC]) -> tuple[Container, ...]:
    return tuple(map(dnc_container, ncs))


def of_nncs(nncs: Iterable[NodeNetworkConfig]) -> tuple[NodeConfig, ...]:
    return config_records([to_builtins(nnc) for nnc in nncs], ())


def of_journal(found: Loaded, boot_id: str) -> tuple[IP, ...]:
    """What another boot assigned is void, though it stands in the journal until it is written again."""
    return tuple(found.pool if found.boot == boot_id else without_assignments(found.pool, 0.0))
