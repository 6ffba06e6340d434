"""Our own client for a test's server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from subnetes.kube.client import Client
from subnetes.kube.sources import from_kubeconfig


class Known(Protocol):
    kubeconfig: Path


def client_of(server: Known, deadline: float = 30.0) -> Client:
    """An async context manager, as the server's admin."""
    return Client(from_kubeconfig(server.kubeconfig), deadline=deadline)


async def eventually(question: Callable[[], bool], patience: float = 60.0) -> None:
    """Return once the answer is yes."""
    async with asyncio.timeout(patience):
        while not question():
            await asyncio.sleep(0.02)
