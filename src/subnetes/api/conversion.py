"""NodeNetworkConfig from v1alpha to v1beta1, the hub, and back: pure, deterministic, nothing lost.

    v1alpha                                       v1beta1
    spec.requestedIPCount                    ⇄    spec.secondaryIPs{nc: count}              splitting.py
    spec.ipsNotInUse                         ⇄    spec.releasedIPs
    status.assignedIPCount                   ⇄    status.networkContainers[].secondaryIPCount
    status.networkContainers[].ipAssignments ⇄    status.networkContainers[].secondaryIPs
      name, ip                               ⇄      id, address
    status.networkContainers[].subnetID      ⇄    the same as subnetName, or carried
    status.scaler                            ⇄    DNC-RC's annotation, or carried

All else is the same in both. What a version cannot say is carried in one annotation (carrying.py); nothing
else of the metadata is touched. It works on plain dictionaries: absent and empty stay two things, and fields
that we do not know go along. What it returns is valid, or it raises, for the API server does not look.
docs/conversion.md has an example of each case.
"""

from typing import Any, TypeVar

import msgspec

from subnetes.api import carrying, nodenetworkconfig, nodenetworkconfig_v1alpha
from subnetes.api.carrying import Carried, Dict, container_keys, kept, restored
from subnetes.api.model import from_builtins
from subnetes.api.names import SCALER
from subnetes.api.splitting import Holding, split, total

HUB = nodenetworkconfig.NodeNetworkConfig.resource.api_version
OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig.resource.api_version
KIND = nodenetworkconfig.NodeNetworkConfig.resource.kind

_SPECS: dict[str, type[msgspec.Struct]] = {
    HUB: nodenetworkconfig.NodeNetworkConfigSpec,
    OLD: nodenetworkconfig_v1alpha.NodeNetworkConfigSpec,
}
_STATUSES: dict[str, type[msgspec.Struct]] = {
    HUB: nodenetworkconfig.NodeNetworkConfigStatus,
    OLD: nodenetworkconfig_v1alpha.NodeNetworkConfigStatus,
}


class ConversionError(ValueError):
    """The object cannot be shown in the version that is asked for; the text says why."""


def convert(obj: Any, target: str) -> Dict:
    """The same object in another version; `obj` is left alone, but shares its parts with the result."""
    if not isinstance(obj, dict):
        raise ConversionError("it is no object")
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if kind != KIND or not isinstance(version, str) or version not in _SPECS:
        raise ConversionError(
            f"{kind!s:.80} of {version!s:.80} is not known here, only {KIND} of {HUB} and {OLD}"
        )
    if target not in _SPECS:
        raise ConversionError(f"there is no version {target!s:.80}, only {HUB} and {OLD}")
    _validate(obj, version)
    if version == target:
        return obj
    result = _up(obj) if target == HUB else _down(obj)
    _validate(result, target)
    return result


def _up(old: Dict) -> Dict:
    was, carried = carrying.read(old["metadata"].get("annotations")), Carried()
    new, spec, status = _apart(old)
    if spec is not None:
        new["spec"] = _spec_up(spec, (status or {}).get("networkContainers") or [], was, carried)
    if status is not None:
        new["status"] = _status_up(old["metadata"], status, was, carried)
    return new | {"apiVersion": HUB, "metadata": carrying.write(old["metadata"], carried)}


def _down(hub: Dict) -> Dict:
    was, carried = carrying.read(hub["metadata"].get("annotations")), Carried()
    new, spec, status = _apart(hub)
    if spec is not None or was.requested is not None:
        new["spec"] = _spec_down(spec or {}, was, carried)
    if status is not None:
        new["status"] = _status_down(hub["metadata"], status, was, carried)
    return new | {"apiVersion": OLD, "metadata": carrying.write(hub["metadata"], carried)}


def _apart(obj: Dict) -> tuple[Dict, Dict | None, Dict | None]:
    """What is the same in both versions, spec, status. A null, as in the midst of an apply, is the same."""
    rest = {key: value for key, value in obj.items() if value is None or key not in ("spec", "status")}
    return rest, obj.get("spec"), obj.get("status")


def _spec_up(spec: Dict, containers: list[Dict], was: Carried, carried: Carried) -> Dict:
    new = _renamed(spec, {"ipsNotInUse": "releasedIPs"})
    count = new.pop("requestedIPCount", None)
    if count is None:
        return new
    count = max(0, count)  # old CRDs admit less, and whoever wants less than nothing wants nothing
    targets = _only(count, containers) if was.targets is None else None
    if targets is None:
        holdings = [_holding(each) for each in containers]
        targets = split(count, was.targets, holdings, spec.get("ipsNotInUse") or ())
    if targets is None:
        carried.requested = count
    else:
        new["secondaryIPs"] = targets
    return new


def _only(count: int, containers: list[Dict]) -> dict[str, int] | None:
    """The usual case without looking at addresses: one network container, of which nothing is known."""
    return {containers[0]["id"]: count} if len(containers) == 1 and containers[0].get("id") else None


def _holding(container: Dict) -> Holding:
    return Holding(
        container.get("id") or "", [each.get("name", "") for each in container.get("ipAssignments") or ()]
    )


def _spec_down(spec: Dict, was: Carried, carried: Carried) -> Dict:
    new = _renamed(spec, {"releasedIPs": "ipsNotInUse"})
    targets = new.pop("secondaryIPs", None)
    if targets is not None:
        carried.targets = {nc: target for nc, target in targets.items() if target is not None}
        new["requestedIPCount"] = total(carried.targets.values())
    elif was.requested is not None:
        new["requestedIPCount"] = was.requested
    return new


def _status_up(metadata: Dict, status: Dict, was: Carried, carried: Carried) -> Dict:
    new = {key: value for key, value in status.items() if key not in ("assignedIPCount", "scaler")}
    containers = status.get("networkContainers")
    if containers is not None:
        new["networkContainers"] = [
            _container_up(key, each, was, carried)
            for key, each in zip(container_keys(containers), containers, strict=True)
        ]
    carried.assigned = kept(status.get("assignedIPCount"), _total(new.get("networkContainers")))
    annotations = metadata.get("annotations") or {}
    if status.get("scaler") != carrying.shown_scaler(annotations):
        carried.scaler = carrying.Kept(status.get("scaler"), annotations.get(SCALER))
    return new


def _status_down(metadata: Dict, status: Dict, was: Carried, carried: Carried) -> Dict:
    new = dict(status)
    containers = status.get("networkContainers")
    if containers is not None:
        new["networkContainers"] = [
            _container_down(key, each, was, carried)
            for key, each in zip(container_keys(containers), containers, strict=True)
        ]
    total = _total(containers)
    annotations = metadata.get("annotations") or {}
    _put(new, "assignedIPCount", restored(was.assigned, total, total))
    shown = carrying.shown_scaler(annotations)
    _put(new, "scaler", restored(was.scaler, annotations.get(SCALER), shown))
    return new


def _container_up(key: str, container: Dict, was: Carried, carried: Carried) -> Dict:
    new = {name: value for name, value in container.items() if name not in ("ipAssignments", "subnetID")}
    assigned = container.get("ipAssignments")
    if assigned is not None:
        new["secondaryIPs"] = _renamed_all(assigned, {"ip": "address", "name": "id"})
    derived = len(assigned) if assigned is not None else None
    _put(new, "secondaryIPCount", restored(was.counts.get(key), derived, derived))
    if carry := kept(container.get("subnetID"), container.get("subnetName")):
        carried.subnet_ids[key] = carry
    return new


def _container_down(key: str, container: Dict, was: Carried, carried: Carried) -> Dict:
    new = {
        name: value for name, value in container.items() if name not in ("secondaryIPs", "secondaryIPCount")
    }
    addresses = container.get("secondaryIPs")
    if addresses is not None:
        new["ipAssignments"] = _renamed_all(addresses, {"address": "ip", "id": "name"})
    if carry := kept(container.get("secondaryIPCount"), len(addresses) if addresses is not None else None):
        carried.counts[key] = carry
    subnet = container.get("subnetName")
    _put(new, "subnetID", restored(was.subnet_ids.get(key), subnet, subnet))
    return new


def _total(containers: list[Dict] | None) -> int | None:
    """Of no network container, none: the field is not there."""
    return total(each.get("secondaryIPCount") or 0 for each in containers) if containers else None


def _put(new: Dict, name: str, value: Any) -> None:
    if value is not None:
        new[name] = value


def _renamed(values: Dict, names: dict[str, str]) -> Dict:
    return {names.get(key, key): value for key, value in values.items()}


def _renamed_all(items: list[Dict], names: dict[str, str]) -> list[Dict]:
    (first, new_first), (second, new_second) = names.items()
    try:
        return [
            {new_first: each[first], new_second: each[second]} if len(each) == 2 else _renamed(each, names)
            for each in items
        ]
    except KeyError:
        return [_renamed(each, names) for each in items]


S = TypeVar("S", bound=msgspec.Struct)


def _validate(obj: Dict, version: str) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise ConversionError("it has no metadata")
    if not _are_texts(metadata.get("annotations")):
        raise ConversionError("metadata.annotations is not a map of texts")
    for part, kind in (("spec", _SPECS[version]), ("status", _STATUSES[version])):
        if obj.get(part) is not None:
            _check(part, obj[part], kind)


def _without_nulls(value: Any) -> Any:
    """A null is an absent field: the API server has them in the midst of an apply."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _are_texts(annotations: Any) -> bool:
    return annotations is None or (
        isinstance(annotations, dict) and all(isinstance(value, str) for value in annotations.values())
    )


def _check(part: str, value: Any, kind: type[S]) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        try:
            from_builtins(kind, _without_nulls(value))  # and with fields that we do not know
        except RecursionError:
            raise ConversionError(f"{part} is nested too deeply") from None
        except msgspec.ValidationError as problem:
            text = str(problem)
            where = f"{text} - at `{part}`" if "$" not in text else text.replace("$", part, 1)
            raise ConversionError(where) from None
