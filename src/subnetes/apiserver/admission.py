"""From what a client sent to what will be stored: the rules of create, update, status update and delete.

Pure: objects go in, new objects or a Failure come out; `objects.py` reads and writes around it.
"""

from datetime import datetime, timedelta

import msgspec

from subnetes.apiserver import causes, definitions, metadata
from subnetes.apiserver.builtins import CRDS, NAMESPACE
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import Cause, bad_request, conflict, invalid, plain_error

_GUARDS = ("uid", "resourceVersion")


class Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    dry_run: list[str] = []
    preconditions: Preconditions = msgspec.field(default_factory=Preconditions)


def drafted(endpoint: Endpoint, body: Object, validation: str = "") -> Object:
    """Clean what arrived (types of metadata, unknown fields, defaults); `Strict` refuses unknown fields."""
    resource = endpoint.served.resource
    kind = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    try:
        msgspec.convert(body, endpoint.rules.shape)
    except msgspec.ValidationError as problem:
        raise bad_request(f"{kind}: {problem}") from None
    clean, unknown = metadata.cleaned(body.get("metadata"))
    obj = body | {"metadata": clean}
    if endpoint.schema is not None:
        unknown += endpoint.schema.prune(obj)
        endpoint.schema.default(obj)
    if unknown and validation == "Strict":
        doubts = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(f"{kind}: strict decoding error: {doubts}")
    return obj


def created(endpoint: Endpoint, obj: Object, now: str, uid: str) -> Object:
    """A new object, ready to be stored in the version of the request."""
    rules, meta = endpoint.rules, obj["metadata"]
    if meta.get("resourceVersion"):
        raise plain_error("resourceVersion should not be set on objects to be created")
    metadata.created(meta, now, uid)
    if rules.generation:
        meta["generation"] = 1
    if endpoint.served.status_subresource and rules.status_apart:
        obj.pop("status", None)
    rules.prepare(obj, None)
    _check(endpoint, obj, None, [])
    return obj


def updated(endpoint: Endpoint, new: Object, old: Object) -> Object:
    """The object after a write of the main resource: status stays as it was."""
    if endpoint.served.status_subresource:
        new = _with_status(new, old)
    return _revised(endpoint, new, old)


def status_updated(endpoint: Endpoint, new: Object, old: Object) -> Object:
    """The object after a write of /status: all but status (and, for core kinds, metadata) stays."""
    meta = dict(new["metadata"])
    if endpoint.rules.status_apart:
        kept = {key: value for key, value in old["metadata"].items() if key not in _GUARDS}
        meta = kept | {key: value for key, value in meta.items() if key in _GUARDS}
    return _revised(endpoint, _with_status(old, new) | {"metadata": meta}, old)


def _with_status(obj: Object, source: Object) -> Object:
    kept = {key: value for key, value in obj.items() if key != "status"}
    return kept | ({"status": source["status"]} if "status" in source else {})


def _revised(endpoint: Endpoint, new: Object, old: Object) -> Object:
    _guard(endpoint, new["metadata"], old["metadata"])
    metadata.carried_over(new["metadata"], old["metadata"])
    endpoint.rules.prepare(new, old)
    if endpoint.rules.generation and _content(endpoint, new) != _content(endpoint, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    _check(endpoint, new, old, metadata.immutable(new["metadata"], old["metadata"]))
    return new


def _guard(endpoint: Endpoint, meta: Object, old: Object) -> None:
    """Optimistic concurrency: the writer's resourceVersion must be that of the object."""
    resource, version = endpoint.served.resource, meta.get("resourceVersion")
    if not version and endpoint.rules.needs_version:
        cause = causes.invalid((None, "metadata.resourceVersion"), 0, "must be specified for an update")
        raise invalid(resource.plural, resource.group, old["name"], [cause])
    if version and version != old["resourceVersion"]:
        raise conflict(resource, old["name"])


def _content(endpoint: Endpoint, obj: Object) -> Object:
    beside = {"metadata", "status"} if endpoint.served.status_subresource else {"metadata"}
    return {key: value for key, value in obj.items() if key not in beside}


def _check(endpoint: Endpoint, new: Object, old: Object | None, found: list[Cause]) -> None:
    resource, name = endpoint.served.resource, new["metadata"].get("name", "")
    for key, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if new.get(key) != expected:
            cause = causes.invalid((None, key), new.get(key), f"must be {expected}")
            raise invalid(str(new.get("kind")), resource.group, name, [cause])
    found = found + metadata.problems(new["metadata"], endpoint.rules.name)
    if endpoint.schema is not None:
        found = endpoint.schema.validate(new, old, found)
    if endpoint.served.key == CRDS:
        found = found + definitions.problems(new, old)
    if found:
        raise invalid(resource.kind, resource.group, name, found)


def check_preconditions(endpoint: Endpoint, meta: Object, wanted: Preconditions) -> None:
    pairs = {"UID": (wanted.uid, meta["uid"])}
    pairs["ResourceVersion"] = (wanted.resource_version, meta["resourceVersion"])
    for word, (asked, found) in pairs.items():
        if asked is not None and asked != found:
            why = f"the {word} in the precondition ({asked}) does not match the {word} in record ({found})"
            raise conflict(endpoint.served.resource, meta["name"], why)


def deleted(endpoint: Endpoint, old: Object, options: DeleteOptions, now: datetime) -> Object:
    """The object after a delete request; `is_finished` tells whether it is gone."""
    rules, obj = endpoint.rules, old | {"metadata": dict(old["metadata"])}
    meta, first = obj["metadata"], not is_terminating(old)
    if rules.mark is not None:
        if first:
            meta["deletionTimestamp"] = timestamp(now)
            rules.mark(obj)
        return obj
    grace = _grace(obj, options) if rules.graceful else 0
    waits = bool(meta.get("finalizers")) or rules.graceful
    if waits and (first or grace < meta.get("deletionGracePeriodSeconds", 0)):
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        if first and "generation" in meta:
            meta["generation"] += 1
    return obj


def _grace(pod: Object, options: DeleteOptions) -> int:
    spec, status = metadata.section(pod, "spec"), metadata.section(pod, "status")
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds
    already: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    declared = spec.get("terminationGracePeriodSeconds")
    return already if already is not None else declared if isinstance(declared, int) else 30


def is_finished(endpoint: Endpoint, obj: Object) -> bool:
    """Whether a deleted object has nothing left to wait for."""
    held = obj["metadata"].get("finalizers")
    if endpoint.served.resource == NAMESPACE:
        held = held or metadata.section(obj, "spec").get("finalizers")
    return not held and not obj["metadata"].get("deletionGracePeriodSeconds")


def is_terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
