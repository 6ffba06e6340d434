"""GET of one object and of lists: paging, exact revisions, selectors, tables."""

import base64
import binascii
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from subnetes.apiserver.handlers import answers, asked
from subnetes.apiserver.handlers.answers import TABLE, answer
from subnetes.apiserver.handlers.asked import Query, Selectors, Span, Target
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import bad_request, expired, timeout
from subnetes.apiserver.store import Expired, Page

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result: start a new list, or "
    "use the continue token in this response for the rest of it as it is now."
)


async def get(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    shape = answers.form(request)
    check_reached(objects, asked.number(request.query, "resourceVersion"))
    row = objects.row(target.endpoint, target.namespace, target.name)
    value = (await objects.render(target.endpoint, [row]))[0]
    if shape == TABLE:
        meta = {"resourceVersion": str(row.rv)}
        value = orjson.dumps(answers.tabular(request, target.endpoint, [orjson.loads(value)], meta))
    return answer(value)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list is to be read: at which revision, after which key, how much."""

    at: int | None = None
    after: str = ""
    limit: int | None = None


async def list_all(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    shape = answers.form(request)
    selectors = asked.selectors(target.endpoint, request.query)
    place = _place(objects, request.query)
    page, values = await _matching(objects, target, place, selectors)
    meta: Object = {"resourceVersion": str(page.revision)}
    if page.remaining:
        meta["continue"] = _token(page.revision, page.rows[-1].key)
        # The real server looks no further than the page, so with a selector it cannot tell.
        meta |= {} if selectors.any else {"remainingItemCount": page.remaining}
    if shape == TABLE:
        decoded = [orjson.loads(value) for value in values]
        return answer(orjson.dumps(answers.tabular(request, target.endpoint, decoded, meta)))
    return answer(list_body(target, values, meta))


async def _matching(
    objects: Objects, target: Target, place: Place, selectors: Selectors
) -> tuple[Page, list[bytes]]:
    """The rows that the selectors let through, as many as were asked for, and their JSON."""
    span = asked.span(target, selectors)
    page = _page(objects, target, span, replace(place, limit=None) if selectors.any else place)
    values = await objects.render(target.endpoint, page.rows)
    if not selectors.any:
        return page, values
    pairs = zip(page.rows, values, strict=True)
    chosen = [(row, value) for row, value in pairs if selectors.matches(orjson.loads(value))]
    shown = chosen[: place.limit]
    rest = Page([row for row, _ in shown], page.revision, len(chosen) - len(shown))
    return rest, [value for _, value in shown]


def _page(objects: Objects, target: Target, span: Span, place: Place) -> Page:
    scan = partial(objects.store.scan, target.endpoint.served.key, span.prefix, under=span.under)
    try:
        return scan(at=place.at, after=place.after, limit=place.limit)
    except Expired:
        if not place.after:
            raise expired("The resourceVersion for the provided list is too old.") from None
        failure = expired(_TOO_OLD)
        failure.metadata = {"continue": _token(-1, place.after)}
        raise failure from None


def list_body(target: Target, values: list[bytes], meta: Object) -> bytes:
    served = target.endpoint.served
    kind, api_version = served.resource.kind.encode(), served.resource.api_version.encode()
    if target.endpoint.schema is not None:
        meta = {"continue": ""} | meta
    else:
        # Core kinds leave out, in a list, what is the same for every item.
        begin = len(b'{"apiVersion":"%s","kind":"%s",' % (api_version, kind))
        values = [b"{" + value[begin:] for value in values]
    head = {"kind": served.list_kind, "apiVersion": served.resource.api_version, "metadata": meta}
    return b'%s,"items":[%s]}' % (orjson.dumps(head)[:-1], b",".join(values))


def _place(objects: Objects, query: Query) -> Place:
    limit = asked.number(query, "limit") or None
    match, revision = asked.version_match(query), asked.number(query, "resourceVersion")
    if token := query.get("continue"):
        if revision:
            raise bad_request("specifying resource version is not allowed when using continue")
        at, after = _from_token(token)
        if at > objects.store.revision:
            raise expired("The continue parameter is from another history than this one: start a new list.")
        return Place(None if at < 0 else at, after, limit)
    check_reached(objects, revision)
    exact = match == "Exact" or (limit is not None and not match and revision)
    return Place(revision if exact else None, "", limit)


def check_reached(objects: Objects, revision: int) -> None:
    """Nothing lags behind here, so a revision that is not there yet is not worth waiting for."""
    if objects.store.revision < revision:
        message = f"Too large resource version: {revision}, current: {objects.store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise timeout(message, cause)


def _token(revision: int, after: str) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\0"}
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, str]:
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(content["rv"]), str(content["start"]).removesuffix("\0")
    except (binascii.Error, ValueError, KeyError, TypeError) as problem:
        raise bad_request(f"continue key is not valid: {problem}") from None
