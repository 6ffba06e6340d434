"""The plugin's door: a Unix socket that only root and the agent's own user may use, one request a
connection.

What goes over it is drawn in cni/subnetes-ipam.c. Everything is bounded: the size of a request, the time to
send it, and how many may be open. Whatever else is sent is answered by a CNI error and the connection
closed.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import select
import socket as sockets
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from subnetes.cns import invocation as cni
from subnetes.cns import queue
from subnetes.cns.errors import CnsError
from subnetes.cns.invocation import Failure, Invocation
from subnetes.cns.metrics import Metrics
from subnetes.cns.verbs import FAILED, Attachments, Verbs

log = logging.getLogger(__name__)

LONGEST_PATH = 100  # of the kernel's 108; the plugin accepts no longer one
MOST_OPEN = 1024
SLOWEST_REQUEST = 10.0  # seconds until all of it must be there
TEND_EVERY = 5.0  # seconds, while somebody waits
LOOK_EVERY = 120.0  # seconds, while nobody does: a node rests most of the time, and so should its agent
ACCEPTED_IN_A_TURN = 64
_PIECE = 64 << 10
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED
_ADD = b"CNI_COMMAND=ADD\0"


class EndpointError(Exception):
    """The socket cannot be served; the text says why."""


class Busy(EndpointError):
    """Another agent serves this socket."""


@asynccontextmanager
async def serve(ipam: Attachments, socket: Path, metrics: Metrics | None = None) -> AsyncIterator[None]:
    """Answer on this socket; DELs that were queued meanwhile are done before the first request."""
    path = _prepared(socket)
    with _only_agent(path), _listening(path) as listener:
        door = _Door(ipam, Verbs(ipam, metrics), queue.folder_of(path), listener)
        door.tend()
        listener.listen(MOST_OPEN)
        door.open_to_all()
        tending = asyncio.create_task(door.tend_for_ever(), name=f"tend {path}")
        try:
            yield
        finally:
            await door.close(tending)


def _prepared(socket: Path) -> Path:
    path = socket.absolute()
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise EndpointError(f"{path} is longer than {LONGEST_PATH} bytes: choose a shorter --socket")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


@contextmanager
def _only_agent(path: Path) -> Iterator[None]:
    """A lock of the kernel's: it goes with the process, however that ends, and a hung agent still has it."""
    with path.with_name(f"{path.name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise Busy(
                f"another agent (pid {owner}) serves {path}: stop it, or choose another --socket"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextmanager
def _listening(path: Path) -> Iterator[sockets.socket]:
    """The socket, in place of one that a killed agent left behind."""
    path.unlink(missing_ok=True)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


class _Door:
    """What the connections share, and where they come in.

    Plain sockets, without asyncio's transports: a request is mostly there when its connection is accepted,
    and is then read and answered within that turn of the loop instead of six. Only what has to wait, for the
    rest of a request or for an IP, is watched or gets a task.
    """

    def __init__(self, ipam: Attachments, verbs: Verbs, folder: Path, listener: sockets.socket) -> None:
        self.verbs = verbs
        self.open: set[_Connection] = set()
        self.allowed = {0, os.geteuid()}
        self.loop = asyncio.get_running_loop()
        self.occupied = asyncio.Event()
        self._ipam = ipam
        self._folder = folder
        self._listener = listener

    def open_to_all(self) -> None:
        if self._listener.fileno() >= 0:
            self.loop.add_reader(self._listener, self._accept)

    def catch_up(self) -> None:
        """Do the DELs that were queued."""
        try:
            self._replay()
        except (CnsError, OSError) as problem:
            log.error("queued DELs cannot be done and are kept: %s", problem)

    def check_nothing_waits(self) -> None:
        """Before an ADD: a DEL of the same attachment, done after it, would take a living pod's IP."""
        try:
            self._replay()
        except (CnsError, OSError) as problem:
            raise Failure(cni.IO_FAILURE, "DELs of earlier sandboxes cannot be done", str(problem)) from None

    def _replay(self) -> None:
        done = queue.replay(self._ipam, self._folder)
        if done:
            log.info("%d queued DELs were done", done)

    def tend(self) -> None:
        self.catch_up()
        oldest = self.loop.time() - SLOWEST_REQUEST
        for each in list(self.open):
            if each.is_abandoned() or (each.refused and each.began < oldest):
                each.hang_up()
            elif each.task is None and each.began < oldest:
                each.refuse(Failure(cni.IO_FAILURE, "the request did not come in time"))

    async def tend_for_ever(self) -> None:
        while True:
            if not self.open:
                self.occupied.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self.occupied.wait()
            if self.occupied.is_set():
                await asyncio.sleep(TEND_EVERY)
            self.tend()

    async def close(self, tending: asyncio.Task[None]) -> None:
        """Those that wait get no answer, which the plugin takes for what it is: no agent."""
        self.loop.remove_reader(self._listener)
        tasks = [tending, *(each.task for each in self.open if each.task)]
        for each in list(self.open):
            each.hang_up()
        tending.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        try:
            for _ in range(ACCEPTED_IN_A_TURN):
                _Connection(self, self._listener.accept()[0]).begin()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as problem:  # out of files: asked at once again, it would be as bad
            log.error("no connection can be accepted for a second: %s", problem)
            self.loop.remove_reader(self._listener)
            self.loop.call_later(1.0, self.open_to_all)


class _Connection:
    def __init__(self, door: _Door, socket: sockets.socket) -> None:
        self.task: asyncio.Task[None] | None = None
        self.began = door.loop.time()
        self.refused = False
        self._watched = False
        self._door = door
        self._socket = socket
        self._request = bytearray()

    def begin(self) -> None:
        self._socket.setblocking(False)
        user = _user(self._socket)
        if user not in self._door.allowed:
            self.refuse(Failure(cni.NOT_ALLOWED, f"uid {user} may not use the agent's socket, only root may"))
        elif len(self._door.open) >= MOST_OPEN:
            self.refuse(Failure(cni.TRY_AGAIN, f"the agent has {MOST_OPEN} requests in hand"))
        self._door.open.add(self)
        self._read()
        if self in self._door.open:
            self._door.occupied.set()
            if self.task is None:
                self._watched = True
                self._door.loop.add_reader(self._socket, self._read)

    def is_abandoned(self) -> bool:
        """Whether the plugin was killed: nothing watches the connection while its request is in hand."""
        watch = select.poll()
        watch.register(self._socket, 0)
        return bool(watch.poll(0))

    def refuse(self, failure: Failure) -> None:
        """Say so at once, and read on to the end of the request: closed before, the answer would be lost."""
        self.refused = True
        self._request.clear()
        with contextlib.suppress(OSError):  # it may be gone already; reading will tell
            self._socket.send(FAILED + cni.error(failure, cni.NEWEST))
            self._socket.shutdown(sockets.SHUT_WR)

    def hang_up(self) -> None:
        """An ADD must not go on waiting for nobody."""
        if self in self._door.open:
            self._door.open.discard(self)
            self._unwatch()
            self._socket.close()
        if self.task is not None:
            self.task.cancel()

    def _read(self) -> None:
        try:
            while data := self._socket.recv(_PIECE):
                self._take(data)
        except BlockingIOError:
            return
        except OSError:
            self.hang_up()
            return
        if self.refused:
            self.hang_up()
        else:
            self._unwatch()
            self._answer()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._door.loop.remove_reader(self._socket)

    def _take(self, data: bytes) -> None:
        if self.refused:
            return
        self._request += data
        announced = int.from_bytes(self._request[:4], "big") if len(self._request) >= 4 else 0
        if len(self._request) > cni.MOST_REQUEST or announced > cni.MOST_ENVIRONMENT:
            self.refuse(cni.no_request())

    def _answer(self) -> None:
        try:
            answer = self._performed(bytes(self._request))
        except BaseException:
            self.hang_up()  # a fault of ours must not keep the plugin waiting
            raise
        if isinstance(answer, bytes):
            answer = self._unsent(answer)
        if answer:
            self.task = self._door.loop.create_task(self._answer_later(answer))
        else:
            self.hang_up()

    def _performed(self, request: bytes) -> bytes | Invocation:
        if _ADD in request[: 4 + int.from_bytes(request[:4], "big")]:
            try:
                self._door.check_nothing_waits()
            except Failure as failure:
                return FAILED + cni.error(failure, cni.NEWEST)
        return self._door.verbs.answer_now(request)

    def _unsent(self, answer: bytes) -> bytes:
        """What the socket has no room for at once; mostly it takes all."""
        try:
            return answer[self._socket.send(answer) :]
        except BlockingIOError:
            return answer
        except OSError as problem:
            log.debug("a plugin went away before its answer: %s", problem)
            return b""

    async def _answer_later(self, answer: bytes | Invocation) -> None:
        try:
            if isinstance(answer, Invocation):
                answer = await self._door.verbs.answer_waiting(answer)
            await self._door.loop.sock_sendall(self._socket, answer)
        except OSError as problem:
            log.debug("a plugin went away before its answer: %s", problem)
        finally:
            self.task = None
            self.hang_up()


def _user(peer: sockets.socket) -> int:
    said = peer.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(said)[1])
