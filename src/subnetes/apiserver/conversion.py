"""Objects in the version that is asked for: through the CRD's webhook, or by renaming the version.

A webhook may change spec, status, labels and annotations. Another name, namespace, uid, kind or version than
asked for fails the request; every other change to metadata is undone silently, as in Kubernetes. The result
is pruned and defaulted by the schema of its version, and not validated.
"""

import base64
import os
import ssl
import uuid
from typing import Any

import aiohttp
import orjson

from subnetes.apiserver import metadata
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import plain_error

TIMEOUT_SECONDS = 30
_CHANGEABLE = ("labels", "annotations")


class _Failed(Exception):
    """What the webhook did wrong."""


class Converter:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def convert(self, endpoint: Endpoint, objects: list[Object], api_version: str) -> list[Object]:
        """The same objects in one version; those that have it already are passed through."""
        foreign = [obj for obj in objects if obj["apiVersion"] != api_version]
        if not foreign:
            return objects
        if endpoint.conversion.get("strategy") == "Webhook":
            results = await self._through_webhook(endpoint, foreign, api_version)
        else:
            results = [obj | {"apiVersion": api_version} for obj in foreign]
        for obj in results:
            endpoint.schemas[api_version].prune(obj)
            endpoint.schemas[api_version].default(obj)
        converted = iter(results)
        return [obj if obj["apiVersion"] == api_version else next(converted) for obj in objects]

    async def _through_webhook(self, endpoint: Endpoint, batch: list[Object], target: str) -> list[Object]:
        try:
            answered = await self._ask(endpoint.conversion["webhook"]["clientConfig"], batch, target)
            return [_accepted(old, new, target) for old, new in zip(batch, answered, strict=True)]
        except _Failed as problem:
            subject = f"{batch[0]['apiVersion']}, Kind={endpoint.served.resource.kind}"
            raise plain_error(f"conversion webhook for {subject} failed: {problem}") from problem

    async def _ask(self, client: Object, batch: list[Object], target: str) -> list[Any]:
        uid = str(uuid.uuid4())
        request = {"uid": uid, "desiredAPIVersion": target, "objects": batch}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
        answer = await self._post(client, head | {"request": request})
        response = answer.get("response") if isinstance(answer, dict) else None
        if not isinstance(response, dict) or response.get("uid") != uid:
            raise _Failed("the answer is not a ConversionReview response to this request")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise _Failed(result.get("message") or result)
        converted: list[Any] = response.get("convertedObjects") or []
        if len(converted) != len(batch):
            raise _Failed(f"returned {len(converted)} objects, expected {len(batch)}")
        return converted

    async def _post(self, client: Object, review: Object) -> Any:
        if not (url := client.get("url")):
            raise _Failed("a service reference needs a cluster network; use clientConfig.url here")
        try:
            context = self._context(client.get("caBundle", ""))
            body, headers = orjson.dumps(review), {"Content-Type": "application/json"}
            async with self._session.post(url, data=body, headers=headers, ssl=context) as response:
                response.raise_for_status()
                return orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
            errno = problem.errno if isinstance(problem, OSError) else None
            raise _Failed(f"{url}: {os.strerror(errno) if errno else problem or 'timeout'}") from problem

    def _context(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._contexts:
            try:
                authorities = base64.b64decode(bundle).decode() if bundle else None
                self._contexts[bundle] = ssl.create_default_context(cadata=authorities)
            except (ssl.SSLError, ValueError) as problem:
                raise _Failed(f"its caBundle cannot be read: {problem}") from problem
        return self._contexts[bundle]


def _accepted(old: Object, new: Any, target: str) -> Object:
    """The webhook's object with all metadata restored that it may not change."""
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise _Failed("returned an object without metadata")
    wanted, returned = _identity(old) | {"apiVersion": target}, _identity(new)
    if returned != wanted:
        raise _Failed(f"returned {returned}, expected {wanted}")
    restored = {key: value for key, value in old["metadata"].items() if key not in _CHANGEABLE}
    restored |= {key: new["metadata"][key] for key in _CHANGEABLE if new["metadata"].get(key)}
    for wrong in metadata.label_problems(restored):
        raise _Failed(f"returned invalid metadata: {wrong.field}: {wrong.message}")
    return new | {"metadata": restored}


def _identity(obj: Object) -> Object:
    named = {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid")}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")} | named
