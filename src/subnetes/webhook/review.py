"""A ConversionReview answered: bytes in, bytes out, whatever the bytes are. For server.py and bulk.py.

The API lets a review succeed or fail as a whole: an object that cannot be converted fails it, the message
says which and why, and no object is returned. What is no review at all gets such a failure too, with an HTTP
status that says so.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from subnetes.api.conversion import HUB, OLD, ConversionError, convert
from subnetes.api.conversion import KIND as CONVERTED

log = logging.getLogger(__name__)

API_VERSION, KIND = "apiextensions.k8s.io/v1", "ConversionReview"
VERSIONS = (HUB, OLD)
NONE = f"the body is no {KIND} of {API_VERSION} with a request"
NO_LIST = "request.objects is no list"
_LONGEST_NAME = 253
_LONGEST_MESSAGE = 2000  # what a user is shown of it


class Answer(NamedTuple):
    status: int
    """Of HTTP: 200 for every review, 400 for what is none."""
    body: bytes
    result: str
    """Success or Failure."""
    objects: int = 0
    """How many were converted."""


class Refused(Exception):
    """Why the review fails; the text is for the user of the API server."""


class NoReview(Refused):
    """It is none."""


def answer(body: bytes) -> Answer:
    """Never raises."""
    uid = ""
    try:
        review = _parsed(body)
        request = review.get("request") if isinstance(review, dict) else None
        if not isinstance(request, dict) or not is_review(review.get("apiVersion"), review.get("kind")):
            raise NoReview(NONE)
        uid = checked_uid(request.get("uid", ""))
        objects = request.get("objects")
        objects = [] if objects is None else objects
        if not isinstance(objects, list):
            raise Refused(NO_LIST)
        converted = list(conversions(objects, request.get("desiredAPIVersion")))
        return Answer(200, _success(uid, converted), "Success", len(converted))
    except NoReview as problem:
        return failure(uid, str(problem), 400)
    except Refused as problem:
        return failure(uid, str(problem))


def failure(uid: str, message: str, status: int = 200) -> Answer:
    result = {"status": "Failure", "message": message[:_LONGEST_MESSAGE]}
    return Answer(status, _review({"uid": uid, "result": result, "convertedObjects": []}), "Failure")


def conversions(objects: Iterable[Any], target: Any) -> Iterator[dict[str, Any]]:
    """Each object in the target version, in order; Refused at the first that cannot be."""
    if target not in VERSIONS:
        raise Refused(f"cannot convert to {_shown(target)}: the versions are {' and '.join(VERSIONS)}")
    for number, obj in enumerate(objects):
        yield _converted(obj, target, number)


def is_review(api_version: Any, kind: Any) -> bool:
    return bool(api_version == API_VERSION and kind == KIND)


def checked_uid(uid: Any) -> str:
    if not isinstance(uid, str):
        raise Refused("request.uid is no string")
    return uid


def encoded(obj: dict[str, Any], number: int) -> bytes:
    """One converted object; Refused if it is more than JSON can say."""
    try:
        return orjson.dumps(obj)
    except TypeError as problem:
        raise Refused(f"{described(obj, number)}: cannot be written as JSON: {problem}") from None


def described(obj: Any, number: int) -> str:
    """How a message names an object: kind, namespace, name, and its place in the review."""
    if not isinstance(obj, dict):
        return f"objects[{number}]"
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    names = [metadata.get(key) for key in ("namespace", "name")]
    where = "/".join(name[:_LONGEST_NAME] for name in names if isinstance(name, str) and name)
    return f"{_shown(obj.get('kind'))} {where or '(unnamed)'} (objects[{number}])"


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise NoReview(f"the body is no JSON: {problem}") from None


def _converted(obj: Any, target: str, number: int) -> dict[str, Any]:
    if not isinstance(obj, dict):
        raise Refused(f"objects[{number}] is no object")
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if kind != CONVERTED or version not in VERSIONS:
        ours = f"{CONVERTED} of {' and '.join(VERSIONS)}"
        raise Refused(f"{described(obj, number)} of {_shown(version)}: only {ours} is converted here")
    try:
        return convert(obj, target)
    except ConversionError as problem:
        raise Refused(f"{described(obj, number)}: {problem}") from None
    except Exception as problem:
        log.exception("%s: the conversion has a mistake", described(obj, number))
        raise Refused(f"{described(obj, number)}: internal error: {type(problem).__name__}") from None


def _success(uid: str, converted: list[dict[str, Any]]) -> bytes:
    try:
        return _review({"uid": uid, "result": {"status": "Success"}, "convertedObjects": converted})
    except TypeError:
        for number, obj in enumerate(converted):
            encoded(obj, number)
        raise Refused("the objects are too deep together") from None


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _shown(value: Any) -> str:
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else "(nothing)"
