"""From what a client sent to what will be stored: the rules of create, update, status update and delete.

Pure: objects go in, new objects or a Failure come out; `objects.py` reads and writes around it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from subnetes.apiserver import causes, definitions, metadata
from subnetes.apiserver.builtins import CRDS
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import Cause, bad_request, conflict, invalid, plain_error

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
POLICY_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    uid: str | None = None
    resource_version: str | None = None
    grace: int | None = None
    policy: str | None = None
    dry: bool = False


@dataclass(slots=True)
class Draft:
    """An object on its way in, and what is doubtful about it: fields that are unknown or given twice."""

    obj: Object
    doubts: list[str] = field(default_factory=list)


def drafted(endpoint: Endpoint, body: Object) -> Draft:
    """Clean what arrived: types of metadata, unknown fields, defaults."""
    resource = endpoint.served.resource
    clean, dropped = metadata.cleaned(body.get("metadata"), resource.kind, resource.version)
    obj = body | {"metadata": clean}
    unknown = [f"metadata.{name}" for name in dropped]
    if endpoint.schema is not None:
        unknown += endpoint.schema.prune(obj)
        endpoint.schema.default(obj)
    return Draft(obj, [f'unknown field "{path}"' for path in unknown])


def created(endpoint: Endpoint, obj: Object, now: str, uid: str) -> Object:
    """A new object, ready to be stored in the version of the request."""
    rules, meta = endpoint.rules, obj["metadata"]
    if meta.get("resourceVersion"):
        raise plain_error("resourceVersion should not be set on objects to be created")
    metadata.created(meta, now, uid)
    if rules.generation:
        meta["generation"] = 1
    if endpoint.served.status_subresource and not rules.created_with_status:
        obj.pop("status", None)
    rules.prepare(obj, None)
    _check(endpoint, obj, None, [])
    return obj


def updated(endpoint: Endpoint, new: Object, old: Object) -> Object:
    """The object after a write of the main resource: status stays as it was."""
    if endpoint.served.status_subresource:
        _take(new, old, "status")
    return _revised(endpoint, new, old)


def status_updated(endpoint: Endpoint, new: Object, old: Object) -> Object:
    """The object after a write of /status: all but status (and, for core kinds, metadata) stays."""
    kept = dict(old)
    _take(kept, new, "status")
    if endpoint.rules.status_with_metadata:
        kept["metadata"] = new["metadata"]
    else:
        kept["metadata"] = dict(old["metadata"])
        _take(kept["metadata"], new["metadata"], "uid")
        _take(kept["metadata"], new["metadata"], "resourceVersion")
    return _revised(endpoint, kept, old)


def _revised(endpoint: Endpoint, new: Object, old: Object) -> Object:
    _guard(endpoint, new["metadata"], old["metadata"])
    metadata.carried_over(new["metadata"], old["metadata"])
    endpoint.rules.prepare(new, old)
    if endpoint.rules.generation and _content(endpoint, new) != _content(endpoint, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    wrong = metadata.immutable(new["metadata"], old["metadata"])
    _check(endpoint, new, old, wrong)
    return new


def _guard(endpoint: Endpoint, meta: Object, old: Object) -> None:
    """Optimistic concurrency: the writer's resourceVersion and uid must be those of the object."""
    resource, version = endpoint.served.resource, meta.get("resourceVersion")
    subject = (resource.plural, resource.group, old["name"])
    if not version and endpoint.rules.needs_version:
        cause = causes.invalid((None, "metadata.resourceVersion"), 0, "must be specified for an update")
        raise invalid(*subject, [cause])
    if version and not version.isdigit():
        raise plain_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if version and version != old["resourceVersion"]:
        raise conflict(*subject)


def same_object(endpoint: Endpoint, meta: Object, old: Object) -> None:
    """A PUT that names another uid is meant for another object."""
    resource = endpoint.served.resource
    if meta.get("uid", old["uid"]) != old["uid"]:
        place = endpoint.key(old.get("namespace", ""), old["name"])
        key = f"/registry/{resource.group}/{resource.plural}/{place}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
        )
        raise conflict(resource.plural, resource.group, old["name"], why)


def _take(into: Object, source: Object, key: str) -> None:
    if key in source:
        into[key] = source[key]
    else:
        into.pop(key, None)


def _content(endpoint: Endpoint, obj: Object) -> Object:
    beside = {"metadata", "status"} if endpoint.served.status_subresource else {"metadata"}
    return {key: value for key, value in obj.items() if key not in beside}


def _check(endpoint: Endpoint, new: Object, old: Object | None, found: list[Cause]) -> None:
    resource, kind = endpoint.served.resource, new.get("kind")
    for key, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if new.get(key) != expected:
            cause = causes.invalid((None, key), new.get(key), f"must be {expected}")
            raise invalid(str(kind), resource.group, new["metadata"].get("name", ""), [cause])
    found = found + metadata.problems(new["metadata"], endpoint.rules.name)
    if endpoint.schema is not None:
        found = endpoint.schema.validate(new, old, found)
    if endpoint.served.key == CRDS:
        found = found + definitions.problems(new, old)
    if found:
        raise invalid(resource.kind, resource.group, new["metadata"].get("name", ""), found)


def check_preconditions(endpoint: Endpoint, meta: Object, options: DeleteOptions) -> None:
    resource = endpoint.served.resource
    if options.uid is not None and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.kind, resource.group, meta["name"], why)
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource.kind, resource.group, meta["name"], why)


def deleted(endpoint: Endpoint, old: Object, options: DeleteOptions, now: datetime) -> Object:
    """The object after a delete request; `is_finished` tells whether it is gone."""
    rules, obj = endpoint.rules, old | {"metadata": dict(old["metadata"])}
    meta = obj["metadata"]
    first = "deletionTimestamp" not in meta
    if rules.mark is not None:
        if first:
            meta["deletionTimestamp"] = timestamp(now)
            rules.mark(obj)
        return obj
    if first and (finalizer := POLICY_FINALIZERS.get(options.policy or "")):
        meta["finalizers"] = [*meta.get("finalizers", []), finalizer]
    grace = _grace(obj, options) if rules.graceful else 0
    waits = bool(meta.get("finalizers")) or rules.graceful
    if waits and (first or grace < meta.get("deletionGracePeriodSeconds", 0)):
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        if first and "generation" in meta:
            meta["generation"] += 1
    return obj


def _grace(pod: Object, options: DeleteOptions) -> int:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    if options.grace is not None:
        return options.grace
    already = pod["metadata"].get("deletionGracePeriodSeconds")
    return int(spec.get("terminationGracePeriodSeconds", 30) if already is None else already)


def is_finished(obj: Object) -> bool:
    """Whether a deleted object has nothing left to wait for."""
    held = obj["metadata"].get("finalizers") or (obj.get("spec") or {}).get("finalizers")
    return not held and not obj["metadata"].get("deletionGracePeriodSeconds")


def ends(obj: Object) -> bool:
    """Whether this update took away the last thing that a deletion waited for."""
    return "deletionTimestamp" in obj["metadata"] and is_finished(obj)


def timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def warnings(endpoint: Endpoint, draft: Draft, validation: str, old: Object | None = None) -> list[str]:
    """What the client is warned of; with fieldValidation=Strict, doubtful fields are a Failure."""
    if draft.doubts and validation == "Strict":
        resource = endpoint.served.resource
        kind = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{kind}: strict decoding error: {', '.join(draft.doubts)}")
    before = old["metadata"].get("finalizers", []) if old else []
    doubts = [] if validation == "Ignore" else draft.doubts
    return doubts + metadata.finalizer_warnings(draft.obj["metadata"].get("finalizers", []), before)


def is_terminating(obj: dict[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]
