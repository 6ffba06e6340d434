"""Which kinds there are: /version, /api, /apis and below.

Clients read these first; kubectl finds short names, categories, verbs and scopes here. The HTTP handlers call
one function per path with everything that is served. The aggregated form is left out: clients that ask for it
ask for this one, too.
"""

import platform
import re
from collections.abc import Iterable
from typing import Any

from subnetes.apiserver.resources import Served

Json = dict[str, Any]

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_STATUS_VERBS = ["get", "patch", "update"]


def version() -> Json:
    """/version: the Kubernetes whose API this is, so that clients know what to expect."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.3+subnetes",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{machine}",
    }


def api_versions(server_address: str) -> Json:
    """/api"""
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}


def api_groups(served: Iterable[Served]) -> Json:
    """/apis"""
    groups = [_group(name, members) for name, members in _by_group(served).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(served: Iterable[Served], group: str) -> Json | None:
    """/apis/g, or None if there is no such group."""
    members = _by_group(served).get(group)
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, members) if members else None


def api_resources(served: Iterable[Served], group: str, version: str) -> Json | None:
    """/api/v1 (no group) or /apis/g/v, or None if there is no such version."""
    members = _by_version(_by_group(served).get(group, [])).get(version)
    if not members:
        return None
    resources = [entry for each in members for entry in _resources(each)]
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    return head | {"groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def version_priority(name: str) -> tuple[int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, then other names."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", name)
    if match is None:
        return 3, 0, 0, name
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return stability, -int(match[1]), -int(match[3] or 0), name


def _by_group(served: Iterable[Served]) -> dict[str, list[Served]]:
    groups: dict[str, list[Served]] = {}
    for each in sorted(served, key=lambda each: (each.resource.group, each.resource.plural)):
        groups.setdefault(each.resource.group, []).append(each)
    return groups


def _by_version(members: list[Served]) -> dict[str, list[Served]]:
    names = sorted({each.resource.version for each in members}, key=version_priority)
    return {name: [each for each in members if each.resource.version == name] for name in names}


def _group(name: str, members: list[Served]) -> Json:
    versions = [{"groupVersion": f"{name}/{each}", "version": each} for each in _by_version(members)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _verbs(served: Served) -> list[str]:
    if served.key == "namespaces":
        return [verb for verb in _VERBS if verb != "deletecollection"]
    return list(_VERBS if served.openapi is None else _CUSTOM_VERBS)


def _resources(served: Served) -> list[Json]:
    resource = served.resource
    scope = {"namespaced": resource.namespaced, "kind": resource.kind}
    names = {"shortNames": list(served.short_names), "categories": list(served.categories)}
    main = {"name": resource.plural, "singularName": served.singular} | scope | {"verbs": _verbs(served)}
    main |= {key: value for key, value in names.items() if value}
    status = {"name": f"{resource.plural}/status", "singularName": ""} | scope | {"verbs": _STATUS_VERBS}
    return [main, status] if served.status_subresource else [main]
