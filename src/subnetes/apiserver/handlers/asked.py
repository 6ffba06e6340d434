"""What a request asks for, read from its path and its query."""

from collections.abc import Mapping
from dataclasses import dataclass

from subnetes.apiserver import causes
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.registry import Registry
from subnetes.apiserver.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from subnetes.apiserver.status import Cause, Failure, bad_request, invalid, no_such_resource

Query = Mapping[str, str]
_NAMESPACE_PARTS = {"status", "finalize"}


class PageNotFound(Exception):
    """The plain-text answer for paths that are no API."""


@dataclass(frozen=True, slots=True)
class Target:
    endpoint: Endpoint
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(registry: Registry, path: str) -> Target:
    """The endpoint and object that a path under /api or /apis names."""
    parts = [part for part in path.split("/") if part]
    group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, parts = parts[0], parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in _NAMESPACE_PARTS:
        namespace, parts = parts[1], parts[2:]
    endpoint = registry.find(group, version, parts[0])
    misplaced = endpoint is None or (namespace and not endpoint.served.resource.namespaced)
    if endpoint is None or misplaced or len(parts) > 3:
        if group and "k8s.io" not in group:
            raise PageNotFound
        raise no_such_resource()
    name, subresource = (*parts[1:], "", "")[:2]
    return Target(endpoint, namespace, name, subresource)


@dataclass(frozen=True, slots=True)
class Selectors:
    labels: LabelSelector | None
    fields: FieldSelector | None

    @property
    def any(self) -> bool:
        return self.labels is not None or self.fields is not None

    def matches(self, obj: Mapping[str, object]) -> bool:
        metadata = obj.get("metadata")
        assert isinstance(metadata, Mapping)
        if self.labels is not None and not self.labels.matches(metadata.get("labels") or {}):
            return False
        return self.fields is None or self.fields.matches(obj)


def selectors(endpoint: Endpoint, query: Query, name: str = "") -> Selectors:
    """The selectors of a query; a watch of one object by its path selects its name."""
    labels, fields = query.get("labelSelector"), query.get("fieldSelector")
    if name:
        fields = f"metadata.name={name}"
    supported = ("metadata.name", "metadata.namespace", *endpoint.served.selectable_fields)
    return Selectors(
        parse_labels(labels) if labels else None,
        parse_fields(fields, supported) if fields else None,
    )


def flag(query: Query, key: str) -> bool:
    return query.get(key, "").lower() in ("true", "1")


def number(query: Query, key: str) -> int | None:
    text = query.get(key, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def dry_run(query: Query, options: str) -> bool:
    asked = query.get("dryRun", "")
    if asked not in ("", "All"):
        raise refused(options, causes.unsupported((None, "dryRun"), [asked], ["All"]))
    return bool(asked)


def field_validation(query: Query, options: str) -> str:
    asked = query.get("fieldValidation", "")
    if asked not in ("", "Ignore", "Strict", "Warn"):
        path = (None, "fieldValidation")
        raise refused(options, causes.unsupported(path, asked, ["", "Ignore", "Strict", "Warn"]))
    return asked


def list_version(query: Query) -> tuple[str, str]:
    """resourceVersion and resourceVersionMatch of a list."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    path = (None, "resourceVersionMatch")
    if flag(query, "sendInitialEvents"):
        why = "sendInitialEvents is forbidden for list"
        raise refused("ListOptions", causes.forbidden((None, "sendInitialEvents"), why))
    if match and not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise refused("ListOptions", causes.forbidden(path, why))
    if match and query.get("continue"):
        why = "resourceVersionMatch is forbidden when continue is provided"
        raise refused("ListOptions", causes.forbidden(path, why))
    if match not in ("", "Exact", "NotOlderThan"):
        raise refused("ListOptions", causes.unsupported(path, match, ["Exact", "NotOlderThan", ""]))
    if match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise refused("ListOptions", causes.forbidden(path, why))
    return version, match


def streams_list(query: Query) -> bool:
    """Whether a watch asks for the current state first, ended by a bookmark (`sendInitialEvents`)."""
    match = query.get("resourceVersionMatch", "")
    path = (None, "resourceVersionMatch")
    if "sendInitialEvents" not in query:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            found = [causes.forbidden(path, why)]
            if match != "NotOlderThan":
                found.append(causes.unsupported(path, match, ["NotOlderThan"]))
            raise refused("ListOptions", *found)
        return False
    if match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise refused("ListOptions", causes.forbidden(path, why))
    return flag(query, "sendInitialEvents")


def refused(options: str, *found: Cause) -> Failure:
    """422 for an option of the request rather than an object."""
    return invalid(options, "meta.k8s.io", "", found)
