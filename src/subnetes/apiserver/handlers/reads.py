"""GET of one object and of lists: paging, exact revisions, selectors, tables."""

import asyncio
import base64
import binascii
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from subnetes.apiserver.handlers import answers, asked
from subnetes.apiserver.handlers.answers import PARTIAL, PLAIN, answer
from subnetes.apiserver.handlers.asked import Query, Selectors, Target
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import Failure, bad_request, expired, timeout
from subnetes.apiserver.store import Expired, Page, Row

FUTURE_PATIENCE = 3.0  # how long a read waits for a resourceVersion that is not there yet
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


async def get(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    shape = answers.form(request.headers.get("Accept", ""))
    await _reach(objects, _revision(request.query.get("resourceVersion", "")))
    row = objects.row(target.endpoint, target.namespace, target.name)
    value = (await objects.render(target.endpoint, [row]))[0]
    if shape == PLAIN:
        return answer(request, value)
    obj = orjson.loads(value)
    if shape == PARTIAL:
        return answer(request, orjson.dumps(answers.partial(obj)))
    meta = {"resourceVersion": str(row.rv)}
    include = request.query.get("includeObject", "")
    return answer(request, orjson.dumps(answers.tabular(target.endpoint, [obj], meta, include)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list is to be read: at which revision, after which key, how much."""

    at: int | None = None
    after: str = ""
    limit: int | None = None


async def list_all(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    query = request.query
    shape = answers.form(request.headers.get("Accept", ""))
    selectors = asked.selectors(target.endpoint, query)
    place = await _place(objects, query)
    page, values = await _matching(objects, target, place, selectors)
    meta: Object = {"resourceVersion": str(page.revision)}
    if page.remaining:
        meta["continue"] = _token(page.revision, page.rows[-1].key)
        # What remains was not looked at, so with a selector nobody knows how much of it matches.
        meta |= {} if selectors.any else {"remainingItemCount": page.remaining}
    if shape == PLAIN:
        return answer(request, _list_body(target, values, meta))
    decoded = [orjson.loads(value) for value in values]
    include = query.get("includeObject", "")
    return answer(request, orjson.dumps(answers.shaped(target.endpoint, shape, decoded, meta, include)))


async def _matching(
    objects: Objects, target: Target, place: Place, selectors: Selectors
) -> tuple[Page, list[bytes]]:
    """Rows of the store, and those of them in the request's version that the selectors let through."""
    values: list[bytes] = []
    while True:
        page = _page(objects, target, place)
        rendered = await objects.render(target.endpoint, page.rows)
        values += [v for v in rendered if selectors.matches(orjson.loads(v))] if selectors.any else rendered
        short = place.limit is not None and selectors.any and len(values) < place.limit
        if not page.remaining or not short:
            break
        place = replace(place, at=page.revision, after=page.rows[-1].key)
    if place.limit is not None and len(values) > place.limit:
        last = orjson.loads(values[place.limit - 1])["metadata"]
        key = target.endpoint.key(last.get("namespace", ""), last["name"])
        page = Page([Row(0, key, b"")], page.revision, page.remaining + 1)
        values = values[: place.limit]
    return page, values


def _page(objects: Objects, target: Target, place: Place) -> Page:
    prefix = f"{target.namespace}/" if target.namespace else ""
    key = target.endpoint.served.key
    try:
        return objects.store.scan(key, prefix, at=place.at, after=place.after, limit=place.limit)
    except Expired:
        if not place.after:
            raise expired("The resourceVersion for the provided list is too old.") from None
        failure = expired(_TOO_OLD)
        failure.metadata = {"continue": _token(-1, place.after)}
        raise failure from None


def _list_body(target: Target, values: list[bytes], meta: Object) -> bytes:
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


async def _place(objects: Objects, query: Query) -> Place:
    version, match = asked.list_version(query)
    limit = asked.number(query, "limit") or 0
    wanted = limit if limit > 0 else None
    if token := query.get("continue"):
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        at, after = _from_token(token)
        return Place(None if at < 0 else at, after, wanted)
    revision = _revision(version)
    await _reach(objects, revision)
    exact = match == "Exact" or (wanted is not None and not match and revision)
    return Place(revision if exact else None, "", wanted)


def _revision(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: {why}")
    return int(text)


async def _reach(objects: Objects, revision: int) -> None:
    """Wait until a revision exists, for a while."""
    deadline = asyncio.get_running_loop().time() + FUTURE_PATIENCE
    while objects.store.revision < revision:
        if asyncio.get_running_loop().time() > deadline:
            message = f"Too large resource version: {revision}, current: {objects.store.revision}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise timeout(message, [cause])
        await asyncio.sleep(0.05)


def _token(revision: int, after: str) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\0"}
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, str]:
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(content["rv"]), str(content["start"]).removesuffix("\0")
    except (binascii.Error, ValueError, KeyError, TypeError) as problem:
        raise Failure(
            400, "BadRequest", f"invalid continue token: continue key is not valid: {problem}"
        ) from None
