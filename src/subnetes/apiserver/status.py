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
├── internal             500 InternalError     a bug of ours
├── plain_error          500, no reason        a conversion webhook that fails
└── timeout              504 Timeout           a resourceVersion from the future
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subnetes.api.resource import Resource

STALE = "the object has been modified; please apply your changes to the latest version and try again"


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
        head = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        reason = {"reason": self.reason} if self.reason else {}
        details = {"details": self.details} if self.details is not None else {}
        return head | {"message": self.message} | reason | details | {"code": self.code}


def details(plural: str, group: str, name: str = "", **more: Any) -> dict[str, Any]:
    """What a Status says about its subject; `kind` is, by an old custom of Kubernetes, the plural."""
    named = {"name": name} if name else {}
    return named | ({"group": group} if group else {}) | {"kind": plural} | more


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _about(code: int, reason: str, resource: Resource, name: str, words: str, **more: Any) -> Failure:
    """`words` say what happened to {}, the object."""
    plural, group = resource.plural, resource.group
    message = words.replace("{}", f'{_qualified(plural, group)} "{name}"', 1)
    return Failure(code, reason, message, details(plural, group, name, **more))


def forbidden(resource: Resource, name: str, why: str, **more: Any) -> Failure:
    return _about(403, "Forbidden", resource, name, f"{{}} is forbidden: {why}", **more)


def not_found(resource: Resource, name: str) -> Failure:
    return _about(404, "NotFound", resource, name, "{} not found")


def already_exists(resource: Resource, name: str, before: str = "") -> Failure:
    return _about(409, "AlreadyExists", resource, name, before + "{} already exists")


def conflict(resource: Resource, name: str, why: str = STALE) -> Failure:
    return _about(409, "Conflict", resource, name, f"Operation cannot be fulfilled on {{}}: {why}")


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Failure:
    """422 in the API server's own words: `Kind.group "name" is invalid: field: message`."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    fields = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    about = details(kind, group, name, causes=fields)
    return Failure(422, "Invalid", f'{_qualified(kind, group)} "{name}" is invalid: {listed}', about)


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def unauthorized() -> Failure:
    return Failure(401, "Unauthorized", "Unauthorized")


def no_such_resource() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> Failure:
    text = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", text, {})


def not_acceptable(*offered: str) -> Failure:
    words = "only the following media types are accepted:"
    return Failure(406, "NotAcceptable", f"{words} {', '.join(offered)}")


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


def timeout(message: str, cause: dict[str, str]) -> Failure:
    return Failure(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})
