"""Every way a request can fail, as the Status object that answers it.

Failure                  any of them: an HTTP code, a reason, a message, field causes
├── bad_request          400 BadRequest        malformed body, selector, patch, continue token
├── unauthorized         401 Unauthorized
├── forbidden            403 Forbidden
├── not_found            404 NotFound
├── no_such_resource     404 NotFound          nothing is served at that path
├── method_not_allowed   405 MethodNotAllowed
├── not_acceptable       406 NotAcceptable
├── already_exists       409 AlreadyExists
├── conflict             409 Conflict          stale resourceVersion, failed precondition
├── expired              410 Expired           compacted resourceVersion or continue token
├── too_large            413 RequestEntityTooLarge
├── unsupported          415 UnsupportedMediaType
├── invalid              422 Invalid           schema, rule or metadata violated; one cause a field
├── internal             500 InternalError     a conversion webhook that fails, a bug of ours
├── plain_error          500, no reason        a resourceVersion that is no number, a webhook that is down
└── timeout              504 Timeout           a resourceVersion from the future
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong: reason as in FieldValueInvalid, message without the field's path."""

    reason: str
    field: str
    message: str


class Failure(Exception):
    """An answer rather than an error of ours, hence its name."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Failure:
    """422 in the API server's own words: `Kind.group "name" is invalid: field: message`."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    fields = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    about = details(kind, group, name, causes=fields)
    return Failure(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', about)


def details(plural: str, group: str, name: str = "", **more: Any) -> dict[str, Any]:
    """What a Status says about its subject; `kind` is, by an old custom of Kubernetes, the plural."""
    named = {"name": name} if name else {}
    return named | ({"group": group} if group else {}) | {"kind": plural} | more


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def unauthorized() -> Failure:
    return Failure(401, "Unauthorized", "Unauthorized")


def forbidden(
    plural: str, group: str, name: str, why: str, causes: list[dict[str, str]] | None = None
) -> Failure:
    about = details(plural, group, name) | ({"causes": causes} if causes else {})
    return Failure(403, "Forbidden", f'{qualified(plural, group)} "{name}" is forbidden: {why}', about)


def not_found(plural: str, group: str, name: str) -> Failure:
    message = f'{qualified(plural, group)} "{name}" not found'
    return Failure(404, "NotFound", message, details(plural, group, name))


def no_such_resource() -> Failure:
    """The path is under /api or /apis, but nothing is served there."""
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> Failure:
    text = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", text, {})


def verb_not_supported(verb: str, plural: str, group: str) -> Failure:
    """405 as custom resources answer it."""
    text = f'{verb} is not supported on resources of kind "{qualified(plural, group)}"'
    return Failure(405, "MethodNotAllowed", text, details(plural, group))


def not_acceptable(offered: Sequence[str]) -> Failure:
    listed = ", ".join(offered)
    return Failure(406, "NotAcceptable", f"only the following media types are accepted: {listed}")


def already_exists(plural: str, group: str, name: str) -> Failure:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, details(plural, group, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, why: str = STALE) -> Failure:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return Failure(409, "Conflict", message, details(plural, group, name))


def expired(message: str) -> Failure:
    return Failure(410, "Expired", message)


def too_large(limit: int) -> Failure:
    return Failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported(message: str) -> Failure:
    return Failure(415, "UnsupportedMediaType", message)


def internal(message: str) -> Failure:
    causes = [{"message": message}]
    return Failure(500, "InternalError", f"Internal error occurred: {message}", {"causes": causes})


def plain_error(message: str) -> Failure:
    """500 without a reason: how the API server passes on an error that it has no name for."""
    return Failure(500, "", message)


def timeout(message: str, causes: list[dict[str, str]]) -> Failure:
    """504: the client asked for a resourceVersion that does not exist yet."""
    return Failure(504, "Timeout", f"Timeout: {message}", {"causes": causes, "retryAfterSeconds": 1})
