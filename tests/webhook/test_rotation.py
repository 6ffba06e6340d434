"""Authorities that live for seconds, under a client that trusts what the CRD shows at each moment.

Two replicas are processes and share a Secret; one is killed in the middle of a rotation.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.apiserver.server import Config, Server
from subnetes.kube.client import Client
from subnetes.webhook import trust
from tests.harness.clients import client_of
from tests.webhook.world import NAME, Webhook, old_nnc, post, response_of, review, trusting, webhook

LIVES = ("--ca-lifetime=18", "--cert-lifetime=4", "--ca-overlap=2")
TARGET = WebhookConversion(f"https://{NAME}:9443/convert")


class Caller:
    """As an API server: the bundle of now, a new connection for each review, each replica in turn."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.replicas: list[Webhook] = []
        self.answered = 0
        self.bundle: list[bytes] = []
        self.authorities: list[bytes] = []  # all that were ever trusted, in order
        self.over = False

    async def run(self) -> None:
        """Any failure ends the test."""
        while not self.over:
            for replica in list(self.replicas):
                trusted = await self._trusted()
                if replica in self.replicas:
                    await self._call(replica, trusted)

    async def _trusted(self) -> ssl.SSLContext:
        crd = await self._client.get(CustomResourceDefinition, trust.CRD)
        text = trust.published(crd, [NAME])
        assert text
        self.bundle = [str(each.serial_number).encode() for each in x509.load_pem_x509_certificates(text)]
        self.authorities += [each for each in self.bundle if each not in self.authorities]
        return trusting(text)

    async def _call(self, replica: Webhook, trusted: ssl.SSLContext) -> None:
        connector = aiohttp.TCPConnector(ssl=trusted, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                status, body = await post(session, replica.url, review([old_nnc()]))
            except aiohttp.ClientError:
                if replica not in self.replicas:  # the test killed it meanwhile
                    return
                raise
        assert status == 200
        assert response_of(body)["result"]["status"] == "Success"
        self.answered += 1

    async def until(self, question: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not question():
                await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_two_rotations_of_the_authority_fail_no_request(tmp_path: Path) -> None:
    async with Server(Config(data=None, crds=crds(TARGET))) as server, client_of(server) as client:
        words = (f"--kubeconfig={server.kubeconfig}", f"--hosts={NAME}", "--drain=0", *LIVES)
        with ExitStack() as stack:
            first, second = [
                await asyncio.to_thread(stack.enter_context, webhook(tmp_path, *words, name=name))
                for name in ("first", "second")
            ]
            caller = Caller(client)
            caller.replicas = [first, second]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(caller.run())
                await caller.until(lambda: len(caller.authorities) == 2)
                caller.replicas.remove(second)
                second.child.kill()
                await caller.until(lambda: caller.answered > 0 and len(caller.bundle) == 2)
                third = await asyncio.to_thread(stack.enter_context, webhook(tmp_path, *words, name="third"))
                caller.replicas.append(third)
                await caller.until(lambda: len(caller.authorities) == 3)
                caller.replicas.remove(first)
                first.child.kill()
                await caller.until(lambda: caller.authorities[1] not in caller.bundle)
                caller.over = True
            assert caller.answered > 100
            assert len(caller.bundle) <= 2
            assert "Traceback" not in first.child.tail(10**6) + third.child.tail(10**6)
