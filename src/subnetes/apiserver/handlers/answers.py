"""The forms an answer can take: the object itself, or a Table for people."""

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import not_acceptable
from subnetes.apiserver.table import table

JSON = "application/json"
PLAIN, TABLE = "", "Table"


def form(request: web.BaseRequest) -> str:
    """The first form in the Accept header that is served here."""
    for clause in request.headers.get("Accept", "*/*").split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        wanted = dict(part.partition("=")[::2] for part in parameters).get("as", PLAIN)
        if media in (JSON, "application/*", "*/*") and wanted in (PLAIN, TABLE):
            return wanted
    raise not_acceptable(JSON)


def answer(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body + b"\n", status=code, content_type=JSON)


def tabular(request: web.BaseRequest, endpoint: Endpoint, objects: list[Object], meta: Object) -> Any:
    return table(
        endpoint.served,
        objects,
        resource_version=meta["resourceVersion"],
        continue_=meta.get("continue"),
        remaining=meta.get("remainingItemCount"),
        now=datetime.now(UTC),
        include_object=request.query.get("includeObject") or "Metadata",
    )
