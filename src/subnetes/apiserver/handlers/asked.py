"""What a request asks for, read from its path and its query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from subnetes.apiserver import causes
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.registry import Registry
from subnetes.apiserver.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from subnetes.apiserver.status import Cause, Failure, bad_request, invalid, no_such_resource

Query = Mapping[str, str]
_NAME_TERM = re.compile(r"(^|,)metadata\.name==?[^,]")


@dataclass(frozen=True, slots=True)
class Target:
    endpoint: Endpoint
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def prefix(self) -> str:
        """What the keys of the namespace's objects begin with."""
        return f"{self.namespace}/" if self.namespace else ""


def target(registry: Registry, path: str) -> Target:
    """The endpoint and object that a path under /api or /apis names."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < (3 if parts[0] == "api" else 4):
        raise no_such_resource()
    group, version, *parts = ["", *parts[1:]] if parts[0] == "api" else parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] != "status":
        namespace, parts = parts[1], parts[2:]
    endpoint = registry.find(group, version, parts[0])
    if endpoint is None or len(parts) > 3:
        raise no_such_resource()
    name, subresource = (*parts[1:], "", "")[:2]
    namespaced = endpoint.served.resource.namespaced
    if (namespace and not namespaced) or (name and namespaced and not namespace):
        raise no_such_resource()
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


def selectors(endpoint: Endpoint, query: Query) -> Selectors:
    labels, fields = query.get("labelSelector"), query.get("fieldSelector")
    supported = ("metadata.name", "metadata.namespace", *endpoint.served.selectable_fields)
    return Selectors(
        parse_labels(labels) if labels else None, parse_fields(fields, supported) if fields else None
    )


class Span(NamedTuple):
    """Where in the store all that can match is found."""

    prefix: str  # what the keys begin with: their namespace, or one object's whole key
    under: str | None  # the value of the field that the store files this resource by


def span(target: Target, selectors: Selectors) -> Span:
    served, equals = target.endpoint.served, selectors.fields.equals if selectors.fields else {}
    name = equals.get("metadata.name")
    if name and (target.namespace or not served.resource.namespaced):
        return Span(target.endpoint.key(target.namespace, name), None)
    return Span(target.prefix, equals.get(served.filed_by))


def is_watch(request: web.BaseRequest, target: Target) -> bool:
    return request.method == "GET" and not target.name and flag(request.query, "watch")


def counted(request: web.BaseRequest, target: Target) -> dict[str, str]:
    """The labels under which the real server counts the request.

    A collection that is asked for one name counts as that object, and is got rather than listed.
    """
    resource, query = target.endpoint.served.resource, request.query
    one = target.name or request.method == "POST" or _NAME_TERM.search(query.get("fieldSelector", ""))
    listed = request.method == "GET" and not one
    return {
        "component": "apiserver",
        "dry_run": query.get("dryRun", ""),
        "group": resource.group,
        "resource": resource.plural,
        "scope": "resource" if one else "namespace" if target.namespace else "cluster",
        "subresource": target.subresource,
        "verb": "WATCH" if is_watch(request, target) else "LIST" if listed else request.method,
        "version": resource.version,
    }


def flag(query: Query, key: str) -> bool:
    return query.get(key, "").lower() in ("true", "1")


def number(query: Query, key: str) -> int:
    """A number of the query; 0 is as good as none."""
    text = query.get(key) or "0"
    if not text.isdecimal():
        raise bad_request(f'{key}: Invalid value: "{text}": it must be a number')
    return int(text)


def dry_run(query: Query) -> bool:
    return bool(choice("dryRun", query.get("dryRun", ""), "All"))


def field_validation(query: Query) -> str:
    return choice("fieldValidation", query.get("fieldValidation", ""), "Ignore", "Warn", "Strict")


def version_match(query: Query) -> str:
    """How a list's resourceVersion is meant."""
    key = "resourceVersionMatch"
    match = choice(key, query.get(key, ""), "Exact", "NotOlderThan")
    if match == "Exact" and query.get("resourceVersion", "") in ("", "0"):
        raise refused(causes.forbidden((None, key), "Exact needs a resourceVersion"))
    return match


def choice(option: str, asked: str, *offered: str) -> str:
    """An option of the request that has only these values, or none."""
    if asked and asked not in offered:
        raise refused(causes.unsupported((None, option), asked, list(offered)))
    return asked


def refused(cause: Cause) -> Failure:
    """422 for an option of the request rather than an object."""
    return invalid("Options", "meta.k8s.io", "", [cause])
