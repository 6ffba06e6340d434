"""What travels in the one annotation of a NodeNetworkConfig, because the other version cannot say it: pure.

The hub carries what only v1alpha says, and v1alpha what only the hub says; converting back uses it up. A
value that the other side would derive is carried only where it differs from that, and beside it: once another
value would be derived, what was carried is out of date and no longer counts.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from subnetes.api.names import CONVERSION, SCALER
from subnetes.api.nodenetworkconfig_v1alpha import Scaler
from subnetes.api.splitting import LARGEST

Dict = dict[str, Any]
T = TypeVar("T")
D = TypeVar("D")
Number = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class Kept(msgspec.Struct, Generic[T, D], omit_defaults=True, frozen=True):
    """A value, and the one that would be derived in its place; None: absent."""

    value: T | None = None
    beside: D | None = None


class Carried(msgspec.Struct, omit_defaults=True, kw_only=True):
    """All that can be carried. Network containers are keyed as `container_keys` says."""

    assigned: Kept[Number, int] | None = msgspec.field(name="assignedIPCount", default=None)
    requested: Count | None = msgspec.field(name="requestedIPCount", default=None)
    scaler: Kept[Dict, str] | None = None
    subnet_ids: dict[str, Kept[str, str]] = msgspec.field(name="subnetIDs", default_factory=dict)
    counts: dict[str, Kept[Count, int]] = msgspec.field(name="secondaryIPCounts", default_factory=dict)
    targets: dict[str, Count] | None = msgspec.field(name="secondaryIPs", default=None)


_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
_NOTHING = msgspec.json.encode(Carried())
_DECODER = msgspec.json.Decoder(Carried)
_ENCODER = msgspec.json.Encoder(order="sorted")


def kept(value: T | None, derived: D | None) -> Kept[T, D] | None:
    """What must be carried so that `value` is there again; None: nothing, it is what would be derived."""
    return None if value == derived else Kept(value, derived)


def restored(carried: Kept[T, D] | None, derived: D | None, otherwise: T | None) -> T | None:
    """The value that was there; `otherwise`, where nothing is carried or it is out of date."""
    return carried.value if carried is not None and carried.beside == derived else otherwise


def read(annotations: Mapping[str, str] | None) -> Carried:
    """What somebody else wrote there is nothing to us, and no error: the object must stay readable."""
    text = annotations.get(CONVERSION) if annotations else None
    try:
        carried = _DECODER.decode(text) if text else Carried()
    except _UNREADABLE:
        return Carried()
    if (
        carried.scaler is not None
        and carried.scaler.value is not None
        and not _is_scaler(carried.scaler.value)
    ):
        carried.scaler = None
    return carried


def write(metadata: Dict, carried: Carried) -> Dict:
    """The metadata with this in it; without the annotation if there is nothing to carry."""
    text = _ENCODER.encode(carried)
    others = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != CONVERSION}
    if text != _NOTHING:
        others[CONVERSION] = text.decode()
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return rest | {"annotations": others} if others or metadata.get("annotations") == {} else rest


def container_keys(containers: list[Dict]) -> Iterator[str]:
    """A key for each: its id; where ids are missing or come twice, with a number."""
    taken: set[str] = set()
    for each in containers:
        key = name = each.get("id") or ""
        number = 1
        while key in taken:
            number += 1
            key = f"{name}#{number}"
        taken.add(key)
        yield key


def shown_scaler(annotations: Mapping[str, str] | None) -> Dict | None:
    """The scaling values that DNC-RC wrote for readers of v1alpha; what is not that is nothing."""
    text = annotations.get(SCALER) if annotations else None
    try:
        values = msgspec.json.decode(text) if text else None
    except _UNREADABLE:
        return None
    return values if _is_scaler(values) else None


def _is_scaler(values: Any) -> bool:
    try:
        msgspec.convert(values, Scaler)
    except _UNREADABLE:
        return False
    return all(value is None or -LARGEST <= value <= LARGEST for value in values.values())


def carried_count(annotations: Mapping[str, str] | None) -> int | None:
    """How many IPs an old writer asked for while there was no network container to ask for."""
    return read(annotations).requested


def carried_scaler(annotations: Mapping[str, str] | None) -> Scaler | None:
    """`status.scaler` as an old control plane wrote it, while DNC-RC has not written newer values."""
    values = restored(read(annotations).scaler, (annotations or {}).get(SCALER), None)
    return msgspec.convert(values, Scaler) if values else None
