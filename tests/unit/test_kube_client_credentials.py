"""Credentials in use: rotated files, refused tokens, plugins, certificates and proxies."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.credentials import (
    Basic,
    ClientCertificate,
    Credentials,
    ExecPlugin,
    Proxy,
    Tls,
    Token,
    TokenFile,
)
from subnetes.kube.errors import CredentialsError, Unauthorized, Unavailable
from subnetes.kube.identity import Identity
from tests.harness.certificates import Authority
from tests.harness.scripted import Scripted, answer, failing, scripted

pytestmark = pytest.mark.slow

NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
GOOD = answer(200, {"metadata": {"name": "n"}})
REFUSED = failing(401, "Unauthorized")


def rewrite(path: Path, text: str) -> None:
    """As a kubelet rotates a file: another one takes its place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def plugin(folder: Path, *statuses: dict[str, Any], api: str = "v1", exit_code: int = 0) -> ExecPlugin:
    """A credential plugin that prints these one after the other, and keeps what it was told."""
    api_version = f"client.authentication.k8s.io/{api}"
    for number, each in enumerate(statuses):
        body = {"apiVersion": api_version, "kind": "ExecCredential", "status": each}
        (folder / f"answer-{number}").write_text(json.dumps(body))
    script = folder / "plugin"
    script.write_text(
        f"""#!/bin/sh
cd {folder}
runs=$(cat runs 2>/dev/null || echo 0)
echo $((runs + 1)) > runs
echo "$KUBERNETES_EXEC_INFO" > info
echo "$1 $GREETING" > arguments
[ {exit_code} -eq 0 ] || {{ echo "no identity today" >&2; exit {exit_code}; }}
cat answer-$runs
"""
    )
    script.chmod(0o755)
    environment = {"GREETING": "hello"}
    return ExecPlugin(str(script), ("argument",), environment, api_version, {"server": "https://x"})


def runs(folder: Path) -> int:
    return int((folder / "runs").read_text())


class TestTokens:
    async def test_a_token_and_a_password_are_sent(self) -> None:
        async with scripted(GOOD) as server:
            for authentication in (Token("secret"), Basic("user", "päss"), None):
                async with Client(server.credentials(authentication)) as client:
                    await client.get(NODE, "n")
        assert server.sent("Authorization") == ["Bearer secret", "Basic dXNlcjpww6Rzcw==", None]

    async def test_impersonation_is_sent_group_by_group(self) -> None:
        headers = (("Impersonate-User", "u"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
        async with scripted(GOOD) as server, Client(Credentials(server.url, impersonation=headers)) as client:
            await client.get(NODE, "n")
        assert server.requests[0].headers.getall("Impersonate-Group") == ["a", "b"]
        assert server.sent("Impersonate-User") == ["u"]

    async def test_a_refused_token_is_read_again_from_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old\n")
        async with (
            scripted(GOOD, REFUSED, GOOD) as server,
            Client(server.credentials(TokenFile(path))) as client,
        ):
            await client.get(NODE, "n")
            rewrite(path, "new\n")
            await client.get(NODE, "n")
        assert server.sent("Authorization") == ["Bearer old", "Bearer old", "Bearer new"]

    async def test_a_rotated_token_is_noticed_without_a_refusal(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old")
        identity = Identity(Credentials("http://x", TokenFile(path)), "test")
        assert b"Bearer old" in (await identity.current()).head
        rewrite(path, "new")
        async with asyncio.timeout(10):
            while b"Bearer new" not in (await identity.current()).head:
                await asyncio.sleep(0.05)

    async def test_a_token_that_stays_refused_is_unauthorized_after_one_more_try(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "token"
        path.write_text("bad")
        async with scripted(REFUSED) as server, Client(server.credentials(TokenFile(path))) as client:
            with pytest.raises(Unauthorized):
                await client.get(NODE, "n")
        assert len(server.requests) == 2

    async def test_a_token_that_cannot_change_is_not_tried_twice(self) -> None:
        async with scripted(REFUSED) as server, Client(server.credentials(Token("bad"))) as client:
            with pytest.raises(Unauthorized):
                await client.get(NODE, "n")
        assert len(server.requests) == 1

    @pytest.mark.parametrize("content", [None, "", "two\nlines"])
    async def test_a_token_file_without_a_token_is_said(self, tmp_path: Path, content: str | None) -> None:
        path = tmp_path / "token"
        if content is not None:
            path.write_text(content)
        async with scripted(GOOD) as server, Client(server.credentials(TokenFile(path))) as client:
            with pytest.raises(CredentialsError):
                await client.get(NODE, "n")
        assert server.requests == []

    def test_secrets_are_not_in_what_is_printed(self) -> None:
        shown = repr(Credentials("http://x", Token("hush"), proxy=Proxy("http://p", "hush")))
        assert "hush" not in shown + repr(Basic("u", "hush"))


class TestPlugins:
    @pytest.mark.parametrize("api", ["v1", "v1beta1"])
    async def test_a_plugin_is_told_about_the_cluster_and_gives_the_token(
        self, tmp_path: Path, api: str
    ) -> None:
        exec_plugin = plugin(tmp_path, {"token": "t"}, api=api)
        async with scripted(GOOD) as server, Client(server.credentials(exec_plugin)) as client:
            await asyncio.gather(*(client.get(NODE, "n") for _ in range(5)))
        assert server.sent("Authorization") == ["Bearer t"] * 5
        assert runs(tmp_path) == 1
        assert (tmp_path / "arguments").read_text() == "argument hello\n"
        assert json.loads((tmp_path / "info").read_text()) == {
            "apiVersion": f"client.authentication.k8s.io/{api}",
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://x"}},
        }

    async def test_a_plugin_runs_again_when_its_credential_expires(self, tmp_path: Path) -> None:
        first = {"token": "1", "expirationTimestamp": "2030-01-01T00:00:00Z"}
        now = datetime(2029, 12, 31, tzinfo=UTC)
        exec_plugin = plugin(tmp_path, first, {"token": "2"})
        identity = Identity(Credentials("http://x", exec_plugin), "test", lambda: now)
        for _ in range(2):
            assert b"Bearer 1\r\n" in (await identity.current()).head
        now += timedelta(days=1)
        for _ in range(2):
            assert b"Bearer 2\r\n" in (await identity.current()).head
        assert runs(tmp_path) == 2

    async def test_a_plugin_runs_again_once_when_its_token_is_refused(self, tmp_path: Path) -> None:
        exec_plugin = plugin(tmp_path, {"token": "1"}, {"token": "2"})
        async with scripted(REFUSED, GOOD) as server, Client(server.credentials(exec_plugin)) as client:
            await client.get(NODE, "n")
        assert server.sent("Authorization") == ["Bearer 1", "Bearer 2"]

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            ({}, "neither a token nor a certificate"),
            ({"clientCertificateData": "x"}, "without its key"),
            ({"token": 3}, "no ExecCredential"),
        ],
    )
    async def test_what_a_plugin_prints_must_be_a_credential(
        self, tmp_path: Path, status: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(CredentialsError, match=message):
            await Identity(Credentials("http://x", plugin(tmp_path, status)), "test").current()

    async def test_a_failing_plugin_is_quoted(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError, match="exit code 3: no identity today"):
            await Identity(Credentials("http://x", plugin(tmp_path, exit_code=3)), "test").current()

    async def test_a_missing_plugin_comes_with_its_install_hint(self) -> None:
        missing = ExecPlugin("/nowhere/plugin", install_hint="get it at the desk")
        with pytest.raises(CredentialsError, match="get it at the desk"):
            await Identity(Credentials("http://x", missing), "test").current()

    async def test_a_plugin_that_is_slower_than_a_call_serves_the_next_one(self, tmp_path: Path) -> None:
        exec_plugin = plugin(tmp_path, {"token": "late"})
        script = Path(exec_plugin.command)
        script.write_text(script.read_text().replace("cat answer", "sleep 1\ncat answer"))
        slow = scripted(GOOD)
        async with slow as server, Client(server.credentials(exec_plugin), deadline=0.4) as client:
            refusals = 0
            while not server.requests:
                try:
                    await client.get(NODE, "n")
                except Unavailable:
                    refusals += 1
        assert refusals > 0
        assert server.sent("Authorization") == ["Bearer late"]
        assert runs(tmp_path) == 1

    async def test_a_plugin_is_killed_with_the_client_that_wanted_it(self, tmp_path: Path) -> None:
        script = tmp_path / "plugin"
        script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
        script.chmod(0o755)
        async with Client(Credentials("http://x", ExecPlugin(str(script))), deadline=0.5) as client:
            with pytest.raises(Unavailable, match="no answer within"):
                await client.get(NODE, "n")
        pid = (tmp_path / "pid").read_text().strip()
        assert not Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def https(authority: Authority, *, client_certificates: bool = False) -> AsyncIterator[Scripted]:
    """A TLS server that answers with the common name of the client's certificate."""
    pair = authority.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(pair.certificate, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED if client_certificates else ssl.CERT_NONE

    async def whoami(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        names = [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
        return web.json_response({"metadata": {"name": "".join(names) or "nobody"}})

    async with scripted(whoami, tls=context) as server:
        yield server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority")


async def whoami(credentials: Credentials) -> str:
    async with Client(credentials) as client:
        name: str = (await client.get(NODE, "me"))["metadata"]["name"]
        return name


class TestTls:
    async def test_a_server_of_the_authority_is_trusted_and_no_other(
        self, authority: Authority, tmp_path: Path
    ) -> None:
        stranger = Authority.create(tmp_path / "stranger")
        async with https(authority) as server:
            trusting = Credentials(server.url, tls=Tls(authority.file.read_bytes()))
            assert await whoami(trusting) == "nobody"
            with pytest.raises(CredentialsError, match="CERTIFICATE_VERIFY_FAILED"):
                await whoami(Credentials(server.url, tls=Tls(stranger.file)))
            assert await whoami(Credentials(server.url, tls=Tls(verify=False))) == "nobody"

    async def test_the_server_name_is_checked_instead_of_the_host(self, authority: Authority) -> None:
        async with https(authority) as server:
            right = Credentials(server.url, tls=Tls(authority.file, server_name="localhost"))
            assert await whoami(right) == "nobody"
            wrong = Credentials(server.url, tls=Tls(authority.file, server_name="example.com"))
            with pytest.raises(CredentialsError, match=r"example\.com"):
                await whoami(wrong)

    async def test_a_client_certificate_comes_from_files_or_from_memory(self, authority: Authority) -> None:
        pair = authority.issue("alice")
        in_files = ClientCertificate(pair.certificate, pair.key)
        in_memory = ClientCertificate(pair.certificate.read_bytes(), pair.key.read_bytes())
        async with https(authority, client_certificates=True) as server:
            for client in (in_files, in_memory):
                assert await whoami(Credentials(server.url, tls=Tls(authority.file, client))) == "alice"

    async def test_a_plugin_may_give_a_certificate(self, authority: Authority, tmp_path: Path) -> None:
        pair = authority.issue("robot")
        printed = {
            "clientCertificateData": pair.certificate.read_text(),
            "clientKeyData": pair.key.read_text(),
        }
        async with https(authority, client_certificates=True) as server:
            credentials = Credentials(server.url, plugin(tmp_path, printed), Tls(authority.file))
            assert await whoami(credentials) == "robot"

    async def test_a_rotated_certificate_is_used_for_new_connections(self, authority: Authority) -> None:
        alice, bob = authority.issue("alice"), authority.issue("bob")
        credentials = Credentials(
            "https://x", tls=Tls(authority.file, ClientCertificate(alice.certificate, alice.key))
        )
        identity = Identity(credentials, "test")
        before = await identity.current()
        rewrite(alice.key, bob.key.read_text())
        rewrite(alice.certificate, bob.certificate.read_text())
        async with asyncio.timeout(10):
            while (await identity.current()) is before:
                await asyncio.sleep(0.05)
        assert (await identity.current()).ssl is not before.ssl

    async def test_a_broken_certificate_is_said(self, authority: Authority) -> None:
        broken = Tls(authority.file, ClientCertificate(b"not", b"pem"))
        with pytest.raises(CredentialsError, match="cannot be used"):
            await whoami(Credentials("https://127.0.0.1:1", tls=broken))


@asynccontextmanager
async def connect_proxy(seen: list[bytes]) -> AsyncIterator[str]:
    """A proxy that tunnels CONNECT and forwards nothing else; what it was asked is in `seen`."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        host, port = head.split(b" ")[1].decode().rsplit(":", 1)
        upstream_reader, upstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, upstream), pump(upstream_reader, writer))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"http://{host}:{port}"


class TestProxies:
    async def test_a_tls_server_is_reached_through_a_tunnel(self, authority: Authority) -> None:
        seen: list[bytes] = []
        async with https(authority) as server, connect_proxy(seen) as proxy:
            through = Credentials(server.url, tls=Tls(authority.file), proxy=Proxy(proxy, "Basic c2VjcmV0"))
            assert await whoami(through) == "nobody"
        (head,) = seen
        assert head.startswith(f"CONNECT {server.url.removeprefix('https://')} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic c2VjcmV0\r\n" in head
        assert "Proxy-Authorization" not in server.requests[0].headers

    async def test_a_plain_server_is_asked_for_by_its_whole_url(self) -> None:
        async with scripted(GOOD) as proxy:
            credentials = Credentials("http://api.example:8080/prefix", proxy=Proxy(proxy.url))
            assert await whoami(credentials) == "n"
        (request,) = proxy.requests
        assert request.raw_path == "http://api.example:8080/prefix/api/v1/nodes/me"
        assert request.headers["Host"] == "api.example:8080"

    async def test_a_proxy_that_refuses_is_unavailable(self, authority: Authority) -> None:
        async with scripted(answer(403, b"no")) as proxy:
            credentials = Credentials("https://127.0.0.1:1", tls=Tls(authority.file), proxy=Proxy(proxy.url))
            with pytest.raises(Unavailable):
                await whoami(credentials)
