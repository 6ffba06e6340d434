"""The error tree: every answer becomes the right error, and each says whether it passes by itself."""

import json
from typing import Any

import pytest

from subnetes.kube import errors
from subnetes.kube.errors import ApiError, error_of
from tests.harness.scripted import status


def body(code: int, reason: str, message: str = "", **details: Any) -> bytes:
    return json.dumps(status(code, reason, message, **details)).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.BadRequest),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (413, "RequestEntityTooLarge", errors.BadRequest),
        (415, "UnsupportedMediaType", errors.BadRequest),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
def test_every_answer_has_its_error(code: int, reason: str, expected: type[ApiError]) -> None:
    error = error_of(code, body(code, reason, "because"))
    assert type(error) is expected
    assert (error.code, error.reason, error.message, str(error)) == (code, reason, "because", "because")


def test_every_error_is_either_temporary_or_permanent() -> None:
    def leaves(cls: type[ApiError]) -> list[type[ApiError]]:
        return [cls, *(leaf for each in cls.__subclasses__() for leaf in leaves(each))]

    ours = [kind for kind in leaves(ApiError) if kind.__module__.startswith("subnetes.kube.")]
    kinds = [kind for kind in ours if kind is not ApiError]
    assert {kind.__name__ for kind in kinds if kind.temporary} == {
        "Temporary",
        "Conflict",
        "Gone",
        "TooManyRequests",
        "Unavailable",
    }
    assert all(issubclass(kind, errors.Temporary) == kind.temporary for kind in kinds)
    assert all(issubclass(kind, errors.Permanent) != kind.temporary for kind in kinds)


def test_the_drawing_names_every_error() -> None:
    drawing = errors.__doc__ or ""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ApiError)]
    assert len(kinds) == 15
    assert [kind.__name__ for kind in kinds if f" {kind.__name__} " not in drawing] == []


def test_an_invalid_object_tells_the_causes_field_by_field() -> None:
    cause = {"reason": "FieldValueInvalid", "message": "must be at least 1", "field": "spec.vid"}
    error = error_of(422, body(422, "Invalid", causes=[cause]))
    assert [(c.reason, c.message, c.field) for c in error.causes] == [
        ("FieldValueInvalid", "must be at least 1", "spec.vid")
    ]


def test_a_proxys_error_page_is_an_error_by_its_code_with_an_excerpt() -> None:
    error = error_of(502, b"<html>\n  <h1>Bad   Gateway</h1>" + b"x" * 5000)
    assert isinstance(error, errors.Unavailable)
    assert error.message.startswith("HTTP 502: <html> <h1>Bad Gateway</h1>xxx")
    assert len(error.message) < 250


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b'"no"', b'{"kind": "Pod"}', b'{"code": "x"}', b"\xff"]
)
def test_a_body_that_is_no_status_still_makes_an_error(text: bytes) -> None:
    error = error_of(404, text)
    assert isinstance(error, errors.NotFound)
    assert error.message.startswith("HTTP 404: ")


def test_the_wait_that_the_status_asks_for_is_kept_unless_the_header_says_otherwise() -> None:
    told = body(429, "TooManyRequests", retryAfterSeconds=7)
    assert error_of(429, told).retry_after == 7
    assert error_of(429, told, retry_after=2).retry_after == 2
