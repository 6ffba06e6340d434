"""The OpenAPI document of DNC's HTTP API, made from `routes.py` and the types themselves. Pure."""

import re
from typing import Any

import msgspec

from subnetes.dnc.errors import BY_REASON
from subnetes.dnc.routes import NO_NETWORK, ROUTES, ErrorBody, Route

_REF = "#/components/schemas/{name}"
_ALWAYS = ("BadRequest", "Unauthorized", "NotYours", "Unavailable")
_ABOUT = {
    "network": f"The id of the network, or `{NO_NETWORK}` for none",
    "family": "4 or 6; of the utilization: the only one there is, else 4",
    "node": "The name of a node",
}


def document(version: str) -> dict[str, Any]:
    types = [each for route in ROUTES.values() for each in (route.answer, route.body) if each is not None]
    _, components = msgspec.json.schema_components([*types, ErrorBody], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES.values():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Subnetes DNC", "version": version, "description": _DESCRIPTION},
        "security": [{"cluster": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"cluster": {"type": "http", "scheme": "bearer"}},
        },
    }


_DESCRIPTION = (
    "Subnets, network containers and IPs. Every call can be repeated. A token belongs to one cluster, which"
    " sees and changes its own network containers only; subnets are shared."
)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {"200": _content("Done", route.answer), **_errors(route)},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(route.body)}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = [_parameter(name, "path", required=True) for name in re.findall(r"{(\w+)}", route.path)]
    return in_path + [_parameter(name, "query", required=False) for name in route.query]


def _parameter(name: str, where: str, *, required: bool) -> dict[str, Any]:
    kind = {"type": "integer", "enum": [4, 6]} if name == "family" else {"type": "string"}
    about = _ABOUT.get(name, f"The {name}'s name or id")
    return {"name": name, "in": where, "required": required, "description": about, "schema": kind}


def _errors(route: Route) -> dict[str, Any]:
    by_status: dict[str, list[str]] = {}
    for reason in (*_ALWAYS, *route.errors):
        by_status.setdefault(str(BY_REASON[reason].status), []).append(reason)
    return {
        status: _content(" or ".join(reasons), ErrorBody) for status, reasons in sorted(by_status.items())
    }


def _content(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {"application/json": {"schema": schema}}
