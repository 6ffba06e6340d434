"""Which scaling values a subnet has, and how they travel: pure. The ClusterSubnet controller decides here.

spec.scaler, field by field  >  imported from NNCs of the old kind, once  >  the defaults
    → status.scaler  → the annotation on the NNCs that draw from the subnet  (one way, so no loop)
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from subnetes.api import names
from subnetes.api.carrying import carried_scaler
from subnetes.api.clustersubnet import Scaler, ScalerOverride
from subnetes.api.model import decode, encode
from subnetes.api.nodenetworkconfig_v1alpha import Scaler as OldScaler
from subnetes.controllers.placement import number_of_ips
from subnetes.ipam import scaling

LARGEST_BUFFER = 10
DEFAULT = Scaler(batch=scaling.DEFAULT.batch, buffer=float(scaling.DEFAULT.buffer))


def chosen(override: ScalerOverride | None, imported: Scaler | None) -> Scaler:
    base, stated = imported or DEFAULT, override or ScalerOverride()
    return Scaler(
        batch=base.batch if stated.batch is None else stated.batch,
        buffer=base.buffer if stated.buffer is None else stated.buffer,
    )


def problem_with(override: ScalerOverride | None, capacity: int | None) -> str:
    """Why the override cannot be used, empty if it can."""
    if override is None:
        return ""
    if override.buffer is not None and override.buffer > LARGEST_BUFFER:
        return f"spec.scaler.buffer is {override.buffer:g}, and may be at most {LARGEST_BUFFER}"
    batch, maximum = override.batch, scaling.DEFAULT_MAXIMUM
    if batch is not None and batch > maximum:
        return f"spec.scaler.batch is {batch}, and may be at most {maximum}, the IPs that a node may have"
    if batch is not None and capacity is not None and batch > capacity:
        return f"spec.scaler.batch is {batch}, and the subnet has only {capacity} addresses"
    return ""


def arithmetic(scaler: Scaler | None) -> scaling.Scaler:
    """The values as the scaling code counts with them."""
    return scaling.Scaler.of(scaler.batch, scaler.buffer) if scaler else scaling.DEFAULT


def annotation(scaler: Scaler, maximum: int) -> str:
    """As readers of v1alpha are to see it."""
    percent = round(arithmetic(scaler).buffer * 100)
    old = OldScaler(
        batch_size=scaler.batch,
        max_ip_count=maximum,
        release_threshold_percent=100 + percent,
        request_threshold_percent=percent,
    )
    return encode(old).decode()


def maximum_in(annotations: Mapping[str, str] | None) -> int:
    """How many IPs a node may have, as its NNC's annotation says; the default while nobody says it."""
    text = (annotations or {}).get(names.SCALER)
    try:
        stated = decode(OldScaler, text.encode()).max_ip_count if text else imported_maximum(annotations)
    except (msgspec.DecodeError, ValueError):
        stated = None
    return scaling.DEFAULT_MAXIMUM if stated is None else max(0, stated)


def imported_maximum(annotations: Mapping[str, str] | None) -> int | None:
    """How many IPs an older control plane let the node have, if it was fewer than usual.

    A node could write what is carried itself, and with a higher number take the IPs of others. With a lower
    one it has fewer itself, until somebody says otherwise on its Node.
    """
    written = _lowered(number_of_ips((annotations or {}).get(names.IMPORTED_MAX, "")))
    old = carried_scaler(annotations) if written is None else None
    return _lowered(old.max_ip_count) if old else written


def _lowered(maximum: int | None) -> int | None:
    return maximum if maximum is not None and 0 < maximum < scaling.DEFAULT_MAXIMUM else None


def said(annotations: Mapping[str, str] | None) -> str:
    """The scaling values that readers of v1alpha see: an older control plane's, else the annotation's."""
    old = carried_scaler(annotations)
    return encode(old).decode() if old else (annotations or {}).get(names.SCALER, "")


def commonest(annotations: Iterable[str]) -> Scaler | None:
    """What most NNCs have; on a tie the larger batch. What no override could be is passed over."""
    found = Counter(values for text in annotations if (values := _values(text)))
    if not found:
        return None
    batch, percent = max(found, key=lambda values: (found[values], values))
    return Scaler(batch=batch, buffer=percent / 100)


def _values(text: str) -> tuple[int, int] | None:
    try:
        old = decode(OldScaler, text.encode())
    except (msgspec.DecodeError, ValueError):
        return None
    batch, percent = old.batch_size or 0, old.request_threshold_percent
    if percent is None or not 1 <= batch <= scaling.DEFAULT_MAXIMUM:
        return None
    return (batch, percent) if 0 <= percent <= LARGEST_BUFFER * 100 else None


def to_text(scaler: Scaler) -> str:
    return encode(scaler).decode()


def from_text(text: str | None) -> Scaler | None:
    """What `to_text` wrote; anything else is nothing."""
    try:
        return decode(Scaler, text.encode()) if text else None
    except (msgspec.DecodeError, ValueError):
        return None
