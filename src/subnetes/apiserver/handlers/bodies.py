"""The bodies of requests: read with a limit, decoded, and checked to be the kind that the path names."""

import json
from typing import Any

import msgspec
import orjson
import yaml
from aiohttp import web

from subnetes.apiserver.admission import DeleteOptions, Draft
from subnetes.apiserver.causes import unsupported as unsupported_value
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.handlers import asked
from subnetes.apiserver.handlers.asked import Target, refused
from subnetes.apiserver.metadata import Object, go_words
from subnetes.apiserver.status import bad_request, too_large, unsupported

LIMIT = 3 * 1024 * 1024
_POLICIES = ("Foreground", "Background", "Orphan")
_UNNAMED = "the name of the object ({} based on URL) was undeterminable: name must be provided"
_ACCEPTED = "the body of the request was in an unknown format - accepted media types include:"


async def read(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > LIMIT:
        raise too_large(LIMIT)
    chunks, size = [], 0
    async for chunk in request.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LIMIT:
            raise too_large(LIMIT)
    return b"".join(chunks)


def media_type(request: web.BaseRequest) -> str:
    """What the client says; aiohttp's own property would make something valid of nonsense."""
    return request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()


async def read_object(request: web.BaseRequest, target: Target) -> Draft:
    """The object in the body, which must be of the kind, version and place of the request."""
    media, data = media_type(request), await read(request)
    if media == "application/yaml":
        data = _from_yaml(data)
    elif media != "application/json":
        raise unsupported(
            f"{_ACCEPTED} application/json, application/yaml, application/vnd.kubernetes.protobuf"
        )
    obj = check_identity(target, _decoded(target.endpoint, data))
    return Draft(obj, [f'duplicate field "{path}"' for path in duplicates(data, obj)])


def duplicates(data: bytes, obj: Object) -> list[str]:
    """The paths of keys that were given twice; nearly always the size alone tells that there are none."""
    if len(orjson.dumps(obj)) == len(data):
        return []
    found: list[str] = []
    _walk_duplicates(json.loads(data, object_pairs_hook=_Pairs), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, repeated ones too."""


def _walk_duplicates(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, below in value:
            at = f"{path}.{key}" if path else key
            if key in seen and at not in found:
                found.append(at)
            seen.add(key)
            _walk_duplicates(below, at, found)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            _walk_duplicates(below, f"{path}[{index}]", found)


def check_identity(target: Target, obj: Object) -> Object:
    """Refuse an object that says it is another than the path says; complete one that says less."""
    metadata = obj.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    if target.name and "name" not in given:
        raise bad_request(_UNNAMED.format(target.name))
    if target.name and given["name"] != target.name:
        why = f"the name of the object ({given['name']}) does not match the name on the URL ({target.name})"
        raise bad_request(why)
    if target.namespace and (given.get("namespace") or target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return obj


def _from_yaml(data: bytes) -> bytes:
    try:
        return orjson.dumps(yaml.safe_load(data))
    except (yaml.YAMLError, TypeError) as problem:
        raise bad_request(f"yaml: {problem}") from None


def _decoded(endpoint: Endpoint, data: bytes) -> Object:
    resource = endpoint.served.resource
    unrecognized = f"the object provided is unrecognized (must be of type {resource.kind})"
    try:
        obj = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        why = f"couldn't get version/kind; json parse error: {problem}"
        raise bad_request(f"{unrecognized}: {why} ({_excerpt(data)})") from None
    if not isinstance(obj, dict) or not isinstance(obj.get("kind", ""), str):
        why = "couldn't get version/kind; json parse error: the body is not an object with a kind"
        raise bad_request(f"{unrecognized}: {why} ({_excerpt(data)})")
    if endpoint.schema is None:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
    return _check_kind(endpoint, obj, data, unrecognized)


def _check_kind(endpoint: Endpoint, obj: Object, data: bytes, unrecognized: str) -> Object:
    resource = endpoint.served.resource
    if not obj.get("kind"):
        raise bad_request(f"{unrecognized}: Object 'Kind' is missing in '{data.decode()}' ({_excerpt(data)})")
    version = obj.get("apiVersion")
    if endpoint.schema is None and (version, obj["kind"]) != (resource.api_version, resource.kind):
        raise bad_request(f'{obj["kind"]} in version "{version}" cannot be handled as a {resource.kind}')
    if version != resource.api_version:
        expected = f"does not match the expected API version ({resource.api_version})"
        raise bad_request(f"the API version in the data ({version or ''}) {expected}")
    return obj


def _excerpt(data: bytes) -> str:
    if not data:
        return "<empty>"
    text = data.decode(errors="replace")
    return text if len(text) <= 30 else f"{text[:30]} ..."


def decoded_patch(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        raise bad_request(f"error decoding patch: {problem}") from None


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None
    preconditions: _Preconditions | None = None


async def read_delete_options(request: web.BaseRequest) -> DeleteOptions:
    """The options of a deletion: in the body, else in the query."""
    query, data = request.query, await read(request)
    try:
        given = msgspec.convert(orjson.loads(data), _DeleteOptions) if data else _DeleteOptions()
    except orjson.JSONDecodeError as problem:
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from None
    except msgspec.ValidationError as problem:
        raise bad_request(f"json: cannot unmarshal {go_words(str(problem), 'DeleteOptions')}") from None
    policy = given.propagation_policy or query.get("propagationPolicy")
    if policy not in (None, *_POLICIES):
        path = (None, "propagationPolicy")
        raise refused("DeleteOptions", unsupported_value(path, policy, [*_POLICIES, "nil"]))
    if given.orphan_dependents or asked.flag(query, "orphanDependents"):
        policy = "Orphan"
    grace = given.grace_period_seconds
    seconds = asked.number(query, "gracePeriodSeconds") if grace is None else grace
    asked_dry = {"dryRun": given.dry_run[0]} if given.dry_run else query
    wanted = given.preconditions or _Preconditions()
    dry = asked.dry_run(asked_dry, "DeleteOptions")
    return DeleteOptions(wanted.uid, wanted.resource_version, seconds, policy, dry)
