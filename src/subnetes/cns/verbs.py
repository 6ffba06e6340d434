"""What ADD, DEL, CHECK, GC and STATUS do to the node's pool. `endpoint.py` brings requests and takes the
answers.

Operations on one (container id, interface) cannot interleave: all are done when `answer_now` returns, but an
ADD that waits for an IP, which holds nothing, and a DEL ends the wait of its ADD (ipam.py). So a late DEL of
an old sandbox, known by its own container id, cannot touch a new one's IP.
"""

import logging
import time
from collections.abc import Iterable
from typing import Protocol

from subnetes.cns import invocation as cni
from subnetes.cns.errors import CnsError, JournalError, Mismatch, NotReady, UnknownAttachment
from subnetes.cns.invocation import Failure, Invocation
from subnetes.cns.ipam import Assigned
from subnetes.cns.metrics import Metrics
from subnetes.ipam.pool import Holder

log = logging.getLogger(__name__)

OK, FAILED = b"\0", b"\1"


class Attachments(Protocol):
    """What of the pool (`Ipam`) is needed here."""

    def add_now(self, holder: Holder, subnet: str | None = None) -> list[Assigned] | None: ...
    async def add(
        self, holder: Holder, subnet: str | None = None, wait: float | None = None
    ) -> list[Assigned]: ...
    def delete(
        self, container_id: str, ifname: str, pod_uid: str = "", addresses: Iterable[str] = ()
    ) -> list[str]: ...
    def check(self, container_id: str, ifname: str, addresses: list[str]) -> None: ...
    def gc(self, network: str, valid: set[tuple[str, str]]) -> int: ...
    def ready(self) -> None: ...


class Verbs:
    def __init__(self, ipam: Attachments, metrics: Metrics | None = None) -> None:
        self._ipam = ipam
        self._metrics = metrics or Metrics()

    async def answer(self, request: bytes) -> bytes:
        """The exit code and the output of the plugin, whatever was sent."""
        answer = self.answer_now(request)
        return await self.answer_waiting(answer) if isinstance(answer, Invocation) else answer

    def answer_now(self, request: bytes) -> bytes | Invocation:
        """The same without a turn of the loop; or the ADD that has to wait, for `answer_waiting`."""
        version = cni.NEWEST
        try:
            found, text = cni.variables(request)
            read = cni.config(text)
            version = read.cni_version
            if found.get("CNI_COMMAND") == "VERSION":
                return OK + cni.versions(version)
            call = cni.invocation(found, read)
            output = self._perform(call)
            return call if output is None else OK + output
        except Failure as failure:
            return FAILED + cni.error(failure, version)

    async def answer_waiting(self, call: Invocation) -> bytes:
        began = time.perf_counter()
        try:
            assigned = await self._ipam.add(cni.holder(call), _subnet(call))
            return OK + self._added(call, assigned, began)
        except Exception as problem:
            return FAILED + cni.error(_failure(problem, call), call.config.cni_version)

    def _perform(self, call: Invocation) -> bytes | None:
        """None: not yet."""
        try:
            if call.command == "ADD":
                return self._add(call)
            self._dispatch(call)
        except Failure:
            raise
        except Exception as problem:
            raise _failure(problem, call) from problem
        return b""

    def _dispatch(self, call: Invocation) -> None:
        if call.command == "DEL":
            uid, addresses = cni.pod_uid(call.variables), cni.previous(call.config)
            self._ipam.delete(call.container_id, call.ifname, uid, addresses)
        elif call.command == "CHECK":
            self._ipam.check(call.container_id, call.ifname, cni.expected(call))
        elif call.command == "GC":
            self._ipam.gc(call.config.name, cni.valid_attachments(call))
        else:
            self._ipam.ready()

    def _add(self, call: Invocation) -> bytes | None:
        began = time.perf_counter()
        assigned = self._ipam.add_now(cni.holder(call), _subnet(call))
        return None if assigned is None else self._added(call, assigned, began)

    def _added(self, call: Invocation, assigned: list[Assigned], began: float) -> bytes:
        self._metrics.assignment_seconds.observe(time.perf_counter() - began)
        return cni.result(call, assigned)


def _subnet(call: Invocation) -> str | None:
    section = call.config.ipam
    return (section.subnet_name if section else "") or None


def _failure(problem: Exception, call: Invocation) -> Failure:
    """Whatever it is, a runtime must get an answer in CNI's terms."""
    if isinstance(problem, CnsError):
        return as_failure(problem, call.command)
    if isinstance(problem, OSError):
        return Failure(cni.IO_FAILURE, f"the agent failed: {problem}", "see the agent's log")
    log.error("%s of %s failed", call.command, call.variables.get("CNI_CONTAINERID", ""), exc_info=problem)
    return Failure(cni.INTERNAL, f"the agent failed: {problem!r}", "see the agent's log")


def as_failure(problem: CnsError, command: str) -> Failure:
    """The pool's errors in CNI's terms. What clears up by itself is 'try again later'."""
    if isinstance(problem, NotReady):
        return Failure(cni.UNAVAILABLE if command == "STATUS" else cni.TRY_AGAIN, str(problem))
    if isinstance(problem, UnknownAttachment | Mismatch):
        return Failure(cni.NOT_AS_RECORDED, str(problem))
    if isinstance(problem, JournalError):
        return Failure(cni.IO_FAILURE, str(problem))
    return Failure(cni.TRY_AGAIN, str(problem))
