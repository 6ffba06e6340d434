"""Every way a request to Kubernetes can fail, for whoever calls the client.

    ApiError                      any of them: code, reason, message, the API server's causes, retry_after
    ├── Temporary                 starting over later (read, decide, write) may work by itself
    │   ├── Conflict              409  the object changed since it was read, or another manager owns a field
    │   ├── Gone                  410  the resourceVersion or continue token is compacted: list again
    │   ├── TooManyRequests       429  not executed; the server's Retry-After was obeyed until the deadline
    │   └── Unavailable           5xx, refused, reset, cut short, timed out: a write may have happened
    └── Permanent                 somebody has to change something first: the caller, a user, a permission
        ├── BadRequest            400, 405, 406, 413, 415 and any 4xx without a class of its own
        ├── Unauthorized          401  also after the credentials were refreshed
        │   └── CredentialsError       no usable credentials here: kubeconfig, token file, exec plugin
        ├── Forbidden             403
        ├── NotFound              404
        ├── AlreadyExists         409
        ├── Invalid               422  schema, rule or metadata violated; one cause a field
        └── Undecodable           a good answer that is not what the kind says

Exceptions of libraries are chained (`raise … from`), never shown. Controllers retry `Temporary` with backoff
and report `Permanent`. `error_of` turns an HTTP answer into one, `error_of_status` a watch's ERROR event.
"""

from typing import ClassVar

import msgspec

from subnetes.api.meta import Status, StatusCause
from subnetes.api.model import decode

_EXCERPT = 200  # characters of a body that is no Status: enough to recognise a proxy's error page


class ApiError(Exception):
    temporary: ClassVar[bool]

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[StatusCause, ...] = (),
        retry_after: float | None = None,
        name: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after
        self.name = name  # of the object that the API server speaks of, if it names one


class Temporary(ApiError):
    temporary = True


class Permanent(ApiError):
    temporary = False


class Conflict(Temporary): ...


class Gone(Temporary): ...


class TooManyRequests(Temporary): ...


class Unavailable(Temporary): ...


class BadRequest(Permanent): ...


class Unauthorized(Permanent): ...


class CredentialsError(Unauthorized): ...


class Forbidden(Permanent): ...


class NotFound(Permanent): ...


class AlreadyExists(Permanent): ...


class Invalid(Permanent): ...


class Undecodable(Permanent): ...


_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_of(code: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """The error that an HTTP answer means, whether a Status explains it or something in between answered."""
    try:
        status = decode(Status, body)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind != "Status" or not (status.reason or status.message):
        excerpt = " ".join(body[: 4 * _EXCERPT].decode(errors="replace").split())[:_EXCERPT]
        message = f"HTTP {code}: {excerpt or 'no explanation'}"
        return error_class(code, "")(message, code=code, retry_after=retry_after)
    return error_of_status(status, code, retry_after)


def error_of_status(status: Status, code: int = 0, retry_after: float | None = None) -> ApiError:
    code = code or status.code
    details = status.details
    if details is not None and details.retry_after_seconds and retry_after is None:
        retry_after = float(details.retry_after_seconds)
    return error_class(code, status.reason)(
        status.message or status.reason,
        code=code,
        reason=status.reason,
        causes=tuple(details.causes) if details else (),
        retry_after=retry_after,
        name=details.name if details else "",
    )


def error_class(code: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if code in _BY_CODE:
        return _BY_CODE[code]
    return BadRequest if 400 <= code < 500 else Unavailable
