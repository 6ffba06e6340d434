"""Objects in the version that is asked for: through the CRD's webhook, or by renaming the version.

A webhook may change spec, status, labels and annotations. Another name, namespace, uid, kind or version than
asked for fails the request; every other change to metadata is undone silently, as in Kubernetes. The result
is pruned and defaulted by the schema of its version, and not validated.
"""

import base64
import os
import ssl
import uuid
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from subnetes.apiserver import metadata
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.status import plain_error

TIMEOUT_SECONDS = 30


class _Failed(Exception):
    pass


class Converter:
    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def __aenter__(self) -> "Converter":
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(
            timeout=timeout, json_serialize=lambda o: orjson.dumps(o).decode()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def convert(self, endpoint: Endpoint, objects: list[Object], api_version: str) -> list[Object]:
        """The same objects in one version; those that have it already are passed through."""
        foreign = [obj for obj in objects if obj["apiVersion"] != api_version]
        if not foreign:
            return objects
        by_version: dict[str, list[Object]] = {}
        for obj in foreign:
            by_version.setdefault(obj["apiVersion"], []).append(obj)
        results: dict[int, Object] = {}
        for source, batch in by_version.items():
            converted = await self._batch(endpoint, batch, source, api_version)
            results |= {id(old): new for old, new in zip(batch, converted, strict=True)}
        return [results.get(id(obj), obj) for obj in objects]

    async def _batch(self, endpoint: Endpoint, batch: list[Object], source: str, target: str) -> list[Object]:
        if endpoint.conversion.get("strategy") == "Webhook":
            subject = f"conversion webhook for {source}, Kind={endpoint.served.resource.kind}"
            try:
                converted = await self._ask(endpoint.conversion.get("webhook") or {}, batch, target)
                pairs = zip(batch, converted, strict=True)
                results = [_accepted(old, new, target, index) for index, (old, new) in enumerate(pairs)]
            except _Failed as problem:
                raise plain_error(f"{subject} {problem}") from problem
        else:
            results = [obj | {"apiVersion": target} for obj in batch]
        schema = endpoint.schemas[target]
        for obj in results:
            schema.prune(obj)
            schema.default(obj)
        return results

    async def _ask(self, webhook: Object, batch: list[Object], target: str) -> list[Any]:
        uid = str(uuid.uuid4())
        review = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": target, "objects": batch},
        }
        answer = await self._post(webhook.get("clientConfig") or {}, review)
        response = answer.get("response") if isinstance(answer, dict) else None
        if not isinstance(response, dict) or response.get("uid") != uid:
            raise _Failed("failed: the answer is not a ConversionReview response to this request")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise _Failed(f"failed: {result.get('message') or result}")
        converted = response.get("convertedObjects") or []
        if len(converted) != len(batch):
            raise _Failed(f"returned {len(converted)} objects, expected {len(batch)}")
        return converted

    async def _post(self, client: Object, review: Object) -> Any:
        url = client.get("url")
        if not url:
            raise _Failed("failed: a service reference needs a cluster network; use clientConfig.url here")
        assert self._session is not None
        asked = f"{url}?timeout={TIMEOUT_SECONDS}s"
        try:
            context = self._context(client.get("caBundle", ""))
            async with self._session.post(asked, json=review, ssl=context) as response:
                if response.status != 200:
                    raise _Failed(f"failed: the server answered {response.status}")
                return orjson.loads(await response.read())
        except aiohttp.ClientConnectorError as problem:
            address = urlsplit(url).netloc
            why = os.strerror(problem.os_error.errno or 0).lower()
            raise _Failed(f'failed: Post "{asked}": dial tcp {address}: connect: {why}') from problem
        except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
            raise _Failed(f'failed: Post "{asked}": {problem or "timeout"}') from problem

    def _context(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._contexts:
            authorities = base64.b64decode(bundle).decode() if bundle else None
            self._contexts[bundle] = ssl.create_default_context(cadata=authorities)
        return self._contexts[bundle]


def _accepted(old: Object, new: Any, target: str, index: int) -> Object:
    """The webhook's object with all metadata restored that it may not change."""
    where = f"returned invalid converted object at index {index}"
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise _Failed(f"{where}: it has no metadata")
    if new.get("apiVersion") != target:
        raise _Failed(f"{where}: invalid groupVersion (expected {target}, received {new.get('apiVersion')})")
    if new.get("kind") != old["kind"]:
        raise _Failed(f"{where}: invalid kind (expected {old['kind']}, received {new.get('kind')})")
    before, after = old["metadata"], new["metadata"]
    for same in ("name", "namespace", "uid"):
        if after.get(same) != before.get(same):
            raise _Failed(f"{where}: must have the same {same}: {after.get(same)} != {before.get(same)}")
    restored = {key: value for key, value in before.items() if key not in ("labels", "annotations")}
    restored |= {key: after[key] for key in ("labels", "annotations") if after.get(key)}
    wrong = metadata.label_problems(restored)
    if wrong:
        raise _Failed(
            f"returned invalid metadata in object at index {index}: {wrong[0].field}: {wrong[0].message}"
        )
    return new | {"metadata": restored}
