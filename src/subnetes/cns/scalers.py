"""Which scaling values rule an NC: its ClusterSubnet's, else the NNC's v1alpha scaler, else the defaults.

Pure.
"""

from fractions import Fraction

import msgspec

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.names import SCALER
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.ipam.scaling import DEFAULT, DEFAULT_MAXIMUM, EXHAUSTED, Scaler


class NodeScaler(msgspec.Struct, frozen=True, rename="camel"):
    """What the annotation on the NNC says; anything else in it is not looked at."""

    batch_size: int | None = None
    max_ip_count: int | None = msgspec.field(name="maxIPCount", default=None)
    request_threshold_percent: float | None = None


NOTHING_SAID = NodeScaler()


def node_scaler(nnc: NodeNetworkConfig) -> NodeScaler:
    """What cannot be understood is as if it were not there: with the defaults, pods still start."""
    try:
        return msgspec.json.decode((nnc.metadata.annotations or {}).get(SCALER, "{}"), type=NodeScaler)
    except msgspec.MsgspecError:
        return NOTHING_SAID


def maximum(said: NodeScaler) -> int:
    known = said.max_ip_count is not None and said.max_ip_count >= 0
    return said.max_ip_count if known and said.max_ip_count is not None else DEFAULT_MAXIMUM


def is_exhausted(subnet: ClusterSubnet | None) -> bool:
    return bool(subnet and subnet.status and subnet.status.exhausted)


def scaler(subnet: ClusterSubnet | None, said: NodeScaler) -> Scaler:
    if is_exhausted(subnet):
        return EXHAUSTED
    if subnet is not None and subnet.status is not None and subnet.status.scaler is not None:
        return Scaler.of(subnet.status.scaler.batch, subnet.status.scaler.buffer)
    batch, percent = said.batch_size, said.request_threshold_percent
    if batch is None or percent is None or batch < 1 or percent < 0:
        return DEFAULT
    return Scaler.of(batch, Fraction(str(percent)) / 100)
