"""The bodies of requests: read with a limit, decoded, and checked to be the kind that the path names."""

from typing import Any

import msgspec
import orjson
from aiohttp import web

from subnetes.apiserver.admission import DeleteOptions
from subnetes.apiserver.handlers import asked
from subnetes.apiserver.handlers.answers import JSON
from subnetes.apiserver.handlers.asked import Target
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import Failure, bad_request, too_large, unsupported

LIMIT = 3 * 1024 * 1024


async def read(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > LIMIT:
        raise too_large(LIMIT)
    data = bytearray()
    async for chunk in request.content.iter_any():
        data += chunk
        if len(data) > LIMIT:
            raise too_large(LIMIT)
    return bytes(data)


def decoded(data: bytes) -> Any:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        raise bad_request(f"the body is not JSON: {problem}") from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Refuse what cannot be written as JSON again, be it inside the request to a conversion webhook."""
    try:
        orjson.dumps({"request": {"objects": [value]}})
    except orjson.JSONEncodeError as problem:
        raise bad_request(f"the body cannot be stored: {problem}") from None


def media_type(request: web.BaseRequest) -> str:
    """What the client says; aiohttp's own property would make something valid of nonsense."""
    return request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()


def unknown_format(*accepted: str) -> Failure:
    words = "the body of the request was in an unknown format - accepted media types include:"
    return unsupported(f"{words} {', '.join(accepted)}")


async def read_object(request: web.BaseRequest, target: Target) -> Object:
    """The object in the body, which must be of the kind, version and place of the request."""
    data = await read(request)
    if media_type(request) != JSON:
        raise unknown_format(f"{JSON} (as `kubectl apply -f` sends it, and `kubectl create KIND` does not)")
    obj, resource = decoded(data), target.endpoint.served.resource
    if not isinstance(obj, dict):
        raise bad_request(f"the body is not an object (must be of type {resource.kind})")
    if target.endpoint.schema is None:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
    version, kind = obj.get("apiVersion") or "", obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise bad_request(f"Object 'Kind' is missing (must be of type {resource.kind})")
    if version != resource.api_version:
        expected = f"does not match the expected API version ({resource.api_version})"
        raise bad_request(f"the API version in the data ({version}) {expected}")
    return check_identity(target, obj)


def check_identity(target: Target, obj: Object) -> Object:
    """Refuse an object that says it is another than the path says."""
    check_depth(obj)
    metadata = obj.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    name = given.get("name", "")
    if target.name and name != target.name:
        why = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise bad_request(why)
    if target.namespace and (given.get("namespace") or target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return obj


async def read_delete_options(request: web.BaseRequest) -> DeleteOptions:
    """The options of a deletion: in the body, else in the query."""
    query, data = request.query, await read(request)
    try:
        options = msgspec.convert(decoded(data), DeleteOptions) if data else DeleteOptions()
    except msgspec.ValidationError as problem:
        raise bad_request(f"DeleteOptions cannot be read: {problem}") from None
    if "gracePeriodSeconds" in query and options.grace_period_seconds is None:
        options.grace_period_seconds = asked.number(query, "gracePeriodSeconds")
    if "dryRun" in query and not options.dry_run:
        options.dry_run = [query["dryRun"]]
    for each in options.dry_run:
        asked.choice("dryRun", each, "All")
    policy = options.propagation_policy or query.get("propagationPolicy", "")
    asked.choice("propagationPolicy", policy, "Background")
    return options
