"""One request to two servers: what the embedded one answers must be what the real one answers.

`Twins` sends a request to both and compares the whole answer, less what cannot be equal (see `rest.normal`).
The differences that are accepted are asserted in tests/kube/test_known_differences.py and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.harness.rest import Answer, Rest, normal
from tests.harness.widgets import collection


@dataclass(frozen=True)
class Twins:
    embedded: Rest
    real: Rest
    namespace: str = ""

    @property
    def widgets(self) -> str:
        return collection(self.namespace)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """The embedded server's answer, which is proven to be the real server's."""
        return self.both(lambda rest: rest.request(method, path, body, **options))

    def both(self, action: Callable[[Rest], Answer]) -> Answer:
        expected, got = action(self.real), action(self.embedded)
        shown = [json.dumps(comparable(answer), sort_keys=True, default=repr) for answer in (got, expected)]
        assert shown[0] == shown[1], f"\nembedded: {shown[0]}\nreal:     {shown[1]}"
        return got

    def alike(self, action: Callable[[Rest], Answer]) -> Answer:
        """The embedded server's refusal, of the real one's code, reason and fields; the words may differ."""
        expected, got = action(self.real), action(self.embedded)
        assert verdict(got) == verdict(expected), f"\nembedded: {got.body!r}\nreal:     {expected.body!r}"
        return got

    def do(self, method: str, path: str, body: Any = None, **options: Any) -> None:
        """A step that must succeed on both, whatever the answers look like."""
        for rest in (self.real, self.embedded):
            rest.request(method, path, body, **options).ok()


def verdict(answer: Answer) -> Any:
    causes = answer.json.get("details", {}).get("causes", [])
    fields = {(cause.get("field"), cause["reason"]) for cause in causes}
    return answer.code, answer.json["status"], answer.json.get("reason"), sorted(fields)


def comparable(answer: Answer) -> Any:
    kind = answer.headers.get("content-type", "").partition(";")[0]
    body = normal(answer.json) if kind == "application/json" else answer.body
    if isinstance(body, dict) and body.get("kind") == "Status":
        body = _status(body)
    return {"code": answer.code, "type": kind, "warnings": answer.warnings, "body": body}


def _status(status: dict[str, Any]) -> dict[str, Any]:
    """Causes come in no order (the real server walks a map), and the message lists them in that order."""
    causes = status.get("details", {}).get("causes", [])
    if not causes:
        return status
    unique = {(cause.get("field"), cause["reason"], cause["message"]) for cause in causes}
    message = status["message"] if len(causes) == 1 else status["message"].partition(" is invalid: [")[0]
    return status | {"message": message, "details": status["details"] | {"causes": sorted(unique, key=str)}}
