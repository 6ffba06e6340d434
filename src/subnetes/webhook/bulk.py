"""A huge review, converted by a process of its own, so that it neither delays the small ones nor leaves its
memory with the server.

The server spools the body into a file; `Bulk.converted` has `python -m subnetes.webhook.bulk` turn that one
into another. Both files have no name, so that nothing is left of them however we end. The process looks at
one object at a time: its memory is the body's, and not the tenfold of it that all decoded objects would take.
"""

import asyncio
import io
import logging
import mmap
import os
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import IO, Any, TypeVar

import msgspec
import orjson

from subnetes.webhook.review import (
    API_VERSION,
    KIND,
    NO_LIST,
    NONE,
    NoReview,
    Refused,
    checked_uid,
    conversions,
    encoded,
    failure,
    is_review,
)

log = logging.getLogger(__name__)

AT_ONCE = 2
NICENESS = 5
MOST_MEMORY = 4 << 30  # bytes of address space, for one hostile object
_NO_REVIEW = 3  # exit code: what Python itself exits with is 1 or 2
_STATUSES = {0: 200, _NO_REVIEW: 400}


class NoRoom(Exception):
    """A large review cannot be put aside; the text says why."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(f"a large review cannot be put aside: {problem}")


def spool() -> IO[bytes]:
    """A file without a name, and without a buffer that could fail later; NoRoom if there can be none."""
    try:
        return tempfile.TemporaryFile(prefix="subnetes-review-", buffering=0)
    except OSError as problem:
        raise NoRoom(problem) from problem


class Bulk:
    """Converts files, a few at a time; the others wait."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def converted(self, body: IO[bytes]) -> AsyncIterator[tuple[int, IO[bytes]]]:
        """The HTTP status and the answer; the process is gone when this is left."""
        with spool() as answer:
            async with self._turns:
                status = await _run(body, answer)
            if status == 500:
                failed = failure("", "the process that converts large reviews failed")
                yield status, io.BytesIO(failed.body)
            else:
                yield status, answer


async def _run(body: IO[bytes], answer: IO[bytes]) -> int:
    words = (sys.executable, "-m", "subnetes.webhook.bulk", str(os.getpid()))
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=body, stdout=answer)
    except OSError as problem:
        log.error("no process for a large review can be started: %s", problem)
        return 500
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code not in _STATUSES:
        log.error("the process that converts large reviews ended with %s", code)
    return _STATUSES.get(code, 500)


S = TypeVar("S", bound=msgspec.Struct)


class _Review(msgspec.Struct):
    api_version: Any = msgspec.field(name="apiVersion", default=None)
    kind: Any = None
    request: msgspec.Raw = msgspec.Raw()


class _Words(msgspec.Struct):
    uid: Any = ""
    desired: Any = msgspec.field(name="desiredAPIVersion", default=None)


class _Objects(msgspec.Struct):
    objects: list[msgspec.Raw] | None = None


def convert_file(body: mmap.mmap | bytes, answer: IO[bytes], parent: int) -> int:
    """The exit code; `answer` is a whole review, unless the process that asked is gone."""
    uid = ""
    try:
        review = _decoded(body, _Review)
        if not is_review(review.api_version, review.kind):
            raise NoReview(NONE)
        words = _decoded(review.request, _Words)
        uid = checked_uid(words.uid)
        _write_success(answer, uid, _encoded(_objects(review.request), words.desired, parent))
    except Refused as problem:
        answer.seek(0)
        answer.truncate()
        answer.write(failure(uid, str(problem)).body)
        return _NO_REVIEW if isinstance(problem, NoReview) else 0
    return 0


def _write_success(answer: IO[bytes], uid: str, objects: Iterator[bytes]) -> None:
    head = orjson.dumps({"uid": uid, "result": {"status": "Success"}, "convertedObjects": []})
    review = orjson.dumps({"apiVersion": API_VERSION, "kind": KIND})
    answer.write(review[:-1] + b',"response":' + head[:-2])
    for number, each in enumerate(objects):
        answer.write(b"," + each if number else each)
    answer.write(b"]}}")


def _objects(request: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(request, type=_Objects).objects or []
    except msgspec.ValidationError:
        raise Refused(NO_LIST) from None


def _encoded(objects: list[msgspec.Raw], target: Any, parent: int) -> Iterator[bytes]:
    for number, obj in enumerate(conversions(map(_loaded, objects, range(len(objects))), target)):
        if os.getppid() != parent:
            os._exit(1)  # whoever asked is gone
        yield encoded(obj, number)


def _loaded(raw: msgspec.Raw, number: int) -> Any:
    try:
        return orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError as problem:
        raise Refused(f"objects[{number}] is no JSON: {problem}") from None


def _decoded(data: mmap.mmap | bytes | msgspec.Raw, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise NoReview(NONE) from None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise NoReview(f"the body is no JSON: {problem}") from None


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    body = mmap.mmap(sys.stdin.fileno(), 0, access=mmap.ACCESS_READ)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=1 << 20) as answer:
        code = convert_file(body, answer, int(sys.argv[1]))
    os._exit(code)  # there are still views of the body, which cannot be closed before them


if __name__ == "__main__":
    main()
