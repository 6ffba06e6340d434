"""POST, PUT, PATCH and DELETE."""

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from subnetes.apiserver import admission
from subnetes.apiserver.handlers import asked, bodies
from subnetes.apiserver.handlers.answers import answer
from subnetes.apiserver.handlers.asked import Target
from subnetes.apiserver.handlers.reads import list_body
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Edit, Objects
from subnetes.apiserver.patch import json_patch, merge_patch
from subnetes.apiserver.status import bad_request, conflict, details, method_not_allowed, unsupported

Apply = Callable[[Any, Any], Any]
_PATCHES: dict[str, Apply] = {
    "application/json-patch+json": json_patch,
    "application/merge-patch+json": merge_patch,
}
_STRATEGIC = "application/strategic-merge-patch+json"


async def create(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    endpoint = target.endpoint
    dry, validation = asked.dry_run(request.query), asked.field_validation(request.query)
    if endpoint.served.resource.namespaced and not target.namespace:
        raise method_not_allowed()
    draft = admission.drafted(endpoint, await bodies.read_object(request, target), validation)
    return answer(await objects.create(endpoint, target.namespace, draft, dry=dry), 201)


async def replace(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    body = orjson.dumps(await bodies.read_object(request, target))

    def edit(old: Object) -> Object:
        new: Object = orjson.loads(body)
        uid = old["metadata"]["uid"]
        given = (new.get("metadata") or {}).get("uid") or uid
        if given != uid:
            why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {uid}"
            raise conflict(target.endpoint.served.resource, target.name, why)
        return new

    return await _update(objects, request, target, edit)


async def patch(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    media, core = bodies.media_type(request), target.endpoint.schema is None
    data = await bodies.read(request)
    if "apply-patch" in media:
        raise unsupported("server-side apply is not offered by the embedded API server")
    if media not in _PATCHES and not (core and media == _STRATEGIC):
        raise bodies.unknown_format(*_PATCHES)
    change = bodies.decoded(data)
    if media == _STRATEGIC and not _is_merge(change):
        why = "strategic merge patch of lists is not offered by the embedded API server"
        raise unsupported(f"{why}; use a merge or JSON patch")
    apply = _PATCHES.get(media, merge_patch)
    return await _update(objects, request, target, lambda old: apply(old, change))


def _is_merge(change: Any) -> bool:
    """Whether a strategic merge patch means what a merge patch does: no lists in it, and no directives."""
    if isinstance(change, dict):
        return all(not key.startswith("$") and _is_merge(value) for key, value in change.items())
    return not isinstance(change, list)


async def _update(objects: Objects, request: web.BaseRequest, target: Target, edit: Edit) -> web.Response:
    dry, validation = asked.dry_run(request.query), asked.field_validation(request.query)

    def draft(old: Object) -> Object:
        new = edit(old)
        if not isinstance(new, dict):
            raise bad_request("a patch must leave an object")
        return admission.drafted(target.endpoint, bodies.check_identity(target, new), validation)

    status = target.subresource == "status"
    place = (target.endpoint, target.namespace, target.name)
    return answer(await objects.update(*place, draft, status=status, dry=dry))


async def delete(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    options = await bodies.read_delete_options(request)
    endpoint, resource = target.endpoint, target.endpoint.served.resource
    row = objects.row(endpoint, target.namespace, target.name)
    last, gone = objects.delete(endpoint, row, options)
    if not gone:
        return answer((await objects.render(endpoint, [last]))[0])
    uid = orjson.loads(last.value)["metadata"]["uid"]
    about = {"details": details(resource.plural, resource.group, target.name, uid=uid)}
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return answer(orjson.dumps(success | about))


async def delete_collection(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    endpoint = target.endpoint
    if endpoint.served.key == "namespaces":
        raise method_not_allowed()
    options = await bodies.read_delete_options(request)
    selectors = asked.selectors(endpoint, request.query)
    span = asked.span(target, selectors)
    rows = objects.store.scan(endpoint.served.key, span.prefix, under=span.under).rows
    pairs = zip(rows, await objects.render(endpoint, rows), strict=True)
    chosen = {row.key: value for row, value in pairs if selectors.matches(orjson.loads(value))}
    for key in chosen:
        if latest := objects.store.get(endpoint.served.key, key):
            objects.delete(endpoint, latest, options)
    meta = {"resourceVersion": str(objects.store.revision)}
    return answer(list_body(target, list(chosen.values()), meta))
