"""Every way in which DNC says no, for whoever calls an `Allocator`, in process or over HTTP.

    DncError                  any of them: message, reason (its name on the wire), status (its HTTP code)
    ├── Temporary             the same call may work later by itself
    │   ├── SubnetFull        409  no address is left for a primary; the wait is on record
    │   ├── StaleReading      412  the call is based on an older reading than one seen before: read again
    │   └── Unavailable       503  the database or the service did not answer: a mutation may have happened
    └── Permanent             somebody has to change something first
        ├── BadRequest        400  a malformed id or body
        ├── Unauthorized      401  no token, or one that nobody has
        ├── NotYours          403  the token is another cluster's
        ├── SubnetUnknown     404  not declared
        ├── NCUnknown         404  no such NC in this cluster
        ├── SubnetInUse       409  shrinking, excluding or deleting what is held; some of it in `addresses`
        ├── SubnetInvalid     422  the declaration contradicts itself
        │     └── SubnetOverlaps   it takes addresses of another subnet of its network
        └── Broken            500  a guard of the database refused what must never happen: a bug

Exceptions of libraries are chained, never shown.
"""

from collections.abc import Sequence
from typing import ClassVar


class DncError(Exception):
    temporary: ClassVar[bool]
    status: ClassVar[int]

    def __init__(self, message: str, *, addresses: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.addresses = tuple(addresses)

    @property
    def reason(self) -> str:
        return type(self).__name__


class Temporary(DncError):
    temporary = True


class Permanent(DncError):
    temporary = False


class SubnetFull(Temporary):
    status = 409


class StaleReading(Temporary):
    status = 412


class Unavailable(Temporary):
    status = 503


class BadRequest(Permanent):
    status = 400


class Unauthorized(Permanent):
    status = 401


class NotYours(Permanent):
    status = 403


class SubnetUnknown(Permanent):
    status = 404


class NCUnknown(Permanent):
    status = 404


class SubnetInUse(Permanent):
    status = 409


class SubnetInvalid(Permanent):
    status = 422


class SubnetOverlaps(SubnetInvalid):
    status = 422


class Broken(Permanent):
    status = 500


BY_REASON: dict[str, type[DncError]] = {
    each.__name__: each
    for each in (
        SubnetFull,
        StaleReading,
        Unavailable,
        BadRequest,
        Unauthorized,
        NotYours,
        SubnetUnknown,
        NCUnknown,
        SubnetInUse,
        SubnetInvalid,
        SubnetOverlaps,
        Broken,
    )
}
