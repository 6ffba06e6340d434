"""A raw HTTP client for the Kubernetes API that hides nothing: status code, headers and body as they came.

The conformance suite speaks through it and not through `subnetes.kube`, so a mistake that our client and our
server shared would still show. `normal` takes out of an answer what must differ between two servers.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
PATIENCE = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers, which kubectl prints on stderr."""
        return re.findall(r'299 - "((?:[^"\\]|\\.)*)"', self.headers.get("warning", ""))

    def ok(self) -> Any:
        """The object of a successful answer."""
        assert self.code < 300, f"{self.code}: {self.body.decode(errors='replace')[:2000]}"
        return self.json

    def failed(self, code: int, reason: str) -> Any:
        """The Status of an answer that must be this failure."""
        assert self.code == code, f"{self.code}: {self.body.decode(errors='replace')[:2000]}"
        status = self.json
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure"), status
        assert (status["code"], status.get("reason")) == (code, reason), status
        return status


class Watch:
    """An open watch: one event a line. Reading past `PATIENCE` without an event fails the test."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.code = response.status

    def next(self) -> Any:
        line = self._response.readline()
        assert line, "the server ended the watch"
        return json.loads(line)

    def take(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name)."""
        return [(event["type"], event["object"]["metadata"]["name"]) for event in self._events(count)]

    def until(self, kind: str) -> Any:
        """The next event of this type; others before it are passed over."""
        while (event := self.next())["type"] != kind:
            pass
        return event

    def to_end(self) -> list[Any]:
        """All events until the server ends the stream."""
        return [json.loads(line) for line in self._response]

    def _events(self, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield self.next()


@dataclass(frozen=True)
class Rest:
    """One identity at one server."""

    url: str
    ca_file: Path
    token: str | None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str | None = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with self._exchange(method, path, data, content_type, accept, query) as response:
            headers: dict[str, str] = {}
            for name, value in response.getheaders():
                joined = [headers[name.lower()], value] if name.lower() in headers else [value]
                headers[name.lower()] = ", ".join(joined)
            return Answer(response.status, headers, response.read())

    def get(self, path: str, *, accept: str = "application/json", **query: Any) -> Answer:
        return self.request("GET", path, accept=accept, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.request("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Answer:
        return self.request("PUT", path, body, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self.request("PATCH", path, body, content_type=content_type, **query)

    def delete(self, path: str, options: Any = None, **query: Any) -> Answer:
        return self.request("DELETE", path, options, **query)

    @contextmanager
    def watch(self, path: str, *, accept: str = "application/json", **query: Any) -> Iterator[Watch]:
        with self._exchange("GET", path, None, None, accept, query | {"watch": True}) as response:
            assert response.status == 200, f"{response.status}: {response.read()[:2000]!r}"
            yield Watch(response)

    def as_user(self, token: str | None) -> Rest:
        return replace(self, token=token)

    @contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content_type: str | None,
        accept: str,
        query: dict[str, Any],
    ) -> Iterator[http.client.HTTPResponse]:
        address = urlsplit(self.url)
        assert address.hostname
        context = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=PATIENCE, context=context
        )
        headers = {"Accept": accept} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        if data is not None and content_type is not None:
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path + _suffix(query), data, headers)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()


def _suffix(query: dict[str, Any]) -> str:
    pairs = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
    return "?" + urlencode(pairs) if pairs else ""


def eventually(
    question: Callable[[], T],
    accept: Callable[[T], bool] = bool,
    patience: float = PATIENCE,
    every: float = 0.02,
) -> T:
    """Ask until the answer is acceptable; the last answer is in the failure's text."""
    deadline = time.monotonic() + patience
    while True:
        answer = question()
        if accept(answer):
            return answer
        assert time.monotonic() < deadline, f"not within {patience} s; the last answer: {answer}"
        time.sleep(every)


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_UNEQUAL = {"resourceVersion": "<rv>", "uid": "<uid>", "remainingItemCount": "<count>", "continue": "<token>"}
_FOREIGN = ("managedFields", "selfLink")


def normal(value: Any) -> Any:
    """The value without what two servers cannot have in common: ids, versions, times, field owners."""
    if isinstance(value, dict):
        kept = {
            key: item
            for key, item in value.items()
            if key not in _FOREIGN and (key, item) != ("continue", "")
        }
        return {key: _UNEQUAL.get(key) or normal(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, str):
        return _TIME.sub("<time>", _UUID.sub("<uid>", value))
    return value
