"""POST, PUT, PATCH and DELETE."""

from functools import partial
from typing import Any

import orjson
from aiohttp import web

from subnetes.apiserver import admission
from subnetes.apiserver.admission import Draft
from subnetes.apiserver.handlers import asked, bodies
from subnetes.apiserver.handlers.answers import answer
from subnetes.apiserver.handlers.asked import Target
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.patch import json_patch, merge_patch
from subnetes.apiserver.status import bad_request, details, method_not_allowed, unsupported
from subnetes.apiserver.store import Row

_PATCHES = {"application/json-patch+json": json_patch, "application/merge-patch+json": merge_patch}
_LEFT_OUT = {
    "application/apply-patch+yaml": "server-side apply",
    "application/apply-patch+cbor": "server-side apply",
    "application/strategic-merge-patch+json": "strategic merge patch",
}
_UNKNOWN_FORMAT = "the body of the request was in an unknown format - accepted media types include:"


async def create(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    endpoint = target.endpoint
    dry = asked.dry_run(request.query, "CreateOptions")
    validation = asked.field_validation(request.query, "CreateOptions")
    if endpoint.served.resource.namespaced and not target.namespace:
        raise asked.PageNotFound if endpoint.schema else method_not_allowed()
    body = await bodies.read_object(request, target)
    draft = admission.drafted(endpoint, body.obj)
    draft.doubts[:0] = body.doubts
    warnings = admission.warnings(endpoint, draft, validation)
    created = await objects.create(endpoint, target.namespace, draft.obj, dry=dry)
    return answer(request, created, 201, warnings)


async def replace(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    body = await bodies.read_object(request, target)

    def edit(old: Object) -> Draft:
        draft = admission.drafted(target.endpoint, orjson.loads(orjson.dumps(body.obj)))
        draft.doubts[:0] = body.doubts
        admission.same_object(target.endpoint, draft.obj["metadata"], old["metadata"])
        return draft

    return await _update(objects, request, target, edit, "UpdateOptions")


async def patch(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    kind, core = bodies.media_type(request), target.endpoint.schema is None
    if kind in _LEFT_OUT and (core or "apply" in kind):
        raise unsupported(
            f"{_LEFT_OUT[kind]} is not offered by the embedded API server; use a merge or JSON patch"
        )
    if kind not in _PATCHES:
        raise unsupported(f"{_UNKNOWN_FORMAT} {', '.join((*_PATCHES, 'application/apply-patch+yaml'))}")
    change = partial(_patched, target, _PATCHES[kind], bodies.decoded_patch(await bodies.read(request)))
    return await _update(objects, request, target, change, "PatchOptions")


def _patched(target: Target, apply: Any, change: Any, old: Object) -> Draft:
    patched = apply(old, change)
    if not isinstance(patched, dict):
        raise bad_request("a patch must leave an object")
    return admission.drafted(target.endpoint, bodies.check_identity(target, patched))


async def _update(
    objects: Objects, request: web.BaseRequest, target: Target, edit: Any, options: str
) -> web.Response:
    dry = asked.dry_run(request.query, options)
    validation = asked.field_validation(request.query, options)
    warnings: list[str] = []

    def checked(old: Object) -> Draft:
        draft: Draft = edit(old)
        warnings[:] = admission.warnings(target.endpoint, draft, validation, old)
        return draft

    status = target.subresource == "status"
    value = await objects.update(
        target.endpoint, target.namespace, target.name, checked, status=status, dry=dry
    )
    return answer(request, value, 200, warnings)


async def delete(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    options = await bodies.read_delete_options(request)
    endpoint = target.endpoint
    row = objects.row(endpoint, target.namespace, target.name)
    last, gone = objects.delete(endpoint, row, options)
    if endpoint.rules.answers_deleted or not gone:
        return answer(request, (await objects.render(endpoint, [last]))[0])
    resource = endpoint.served.resource
    about = details(
        resource.plural, resource.group, target.name, uid=orjson.loads(last.value)["metadata"]["uid"]
    )
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}
    return answer(request, orjson.dumps(success))


async def delete_collection(objects: Objects, request: web.BaseRequest, target: Target) -> web.Response:
    endpoint = target.endpoint
    if not endpoint.rules.deletes_collection:
        raise method_not_allowed()
    options = await bodies.read_delete_options(request)
    selectors = asked.selectors(endpoint, request.query)
    prefix = f"{target.namespace}/" if target.namespace else ""
    page = objects.store.scan(endpoint.served.key, prefix)
    chosen: list[tuple[Row, bytes]] = []
    for row, value in zip(page.rows, await objects.render(endpoint, page.rows), strict=True):
        if not selectors.any or selectors.matches(orjson.loads(value)):
            chosen.append((row, value))
    for row, _ in chosen:
        latest = objects.store.get(endpoint.served.key, row.key)
        if latest is not None:
            objects.delete(endpoint, latest, options)
    served = endpoint.served
    meta = {"continue": "", "resourceVersion": str(objects.store.revision)}
    head = {"kind": served.list_kind, "apiVersion": served.resource.api_version, "metadata": meta}
    body = b'%s,"items":[%s]}' % (orjson.dumps(head)[:-1], b",".join(value for _, value in chosen))
    return answer(request, body)
