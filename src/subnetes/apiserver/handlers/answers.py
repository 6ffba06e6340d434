"""The forms an answer can take: the object itself, a Table for people, or its metadata alone."""

from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import Failure, not_acceptable
from subnetes.apiserver.table import table

JSON = "application/json"
OFFERED = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
PLAIN, TABLE, PARTIAL = "", "Table", "PartialObjectMetadata"


def form(accept: str) -> str:
    """The first form in the Accept header, by preference, that is served here."""
    if accept in (JSON, "*/*", ""):
        return PLAIN
    clauses = [_clause(text) for text in accept.split(",")]
    for media, parameters in sorted(clauses, key=lambda clause: -_quality(clause[1])):
        wanted = parameters.get("as", PLAIN).removesuffix("List")
        if media in (JSON, "application/*", "*/*") and wanted in (PLAIN, TABLE, PARTIAL):
            return wanted
    raise not_acceptable(OFFERED)


def _clause(text: str) -> tuple[str, dict[str, str]]:
    media, *parameters = (part.strip() for part in text.split(";"))
    return media, dict(part.partition("=")[::2] for part in parameters)


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


def answer(
    request: web.BaseRequest, body: bytes, code: int = 200, warnings: list[str] | None = None
) -> web.Response:
    if request.query.get("pretty") in ("true", "1"):
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
    response = web.Response(body=body + b"\n", status=code, content_type=JSON)
    for warning in warnings or ():
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


def answer_failure(request: web.BaseRequest, failure: Failure) -> web.Response:
    return answer(request, orjson.dumps(failure.status()), failure.code)


def partial(obj: Object) -> Object:
    return {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def shaped(endpoint: Endpoint, shape: str, objects: list[Object], meta: Object, include: str = "") -> Object:
    """A list of objects as a Table or as metadata alone."""
    if shape == PARTIAL:
        items = [partial(obj) for obj in objects]
        return {"kind": f"{PARTIAL}List", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items}
    return tabular(endpoint, objects, meta, include)


def tabular(endpoint: Endpoint, objects: list[Object], meta: Object, include: str = "") -> dict[str, Any]:
    return table(
        endpoint.served,
        objects,
        resource_version=meta.get("resourceVersion", ""),
        continue_=meta.get("continue") or None,
        remaining=meta.get("remainingItemCount"),
        now=datetime.now(UTC),
        include_object=include or "Metadata",
    )
