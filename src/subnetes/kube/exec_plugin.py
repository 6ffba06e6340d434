"""Credential plugins: programs that a kubeconfig names and that print who we are.

`identity.py` runs one when it has no credential or an expired one. The plugin never gets our standard input:
agents and controllers have nobody to ask.
"""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from subnetes.kube.credentials import ClientCertificate, ExecPlugin
from subnetes.kube.errors import CredentialsError

PATIENCE = 60.0  # seconds: some plugins ask a cloud's identity service several times
_EXCERPT = 500


@dataclass(frozen=True, slots=True)
class ExecCredential:
    token: str | None = field(default=None, repr=False)
    client: ClientCertificate | None = field(default=None, repr=False)
    expires: datetime | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    status: _Status | None = None


async def run_plugin(plugin: ExecPlugin) -> ExecCredential:
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": exec_info(plugin)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as problem:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise CredentialsError(f"{plugin.command} cannot be run: {problem}{hint}") from problem
    output, complaints = await _finished(process, plugin)
    if process.returncode:
        text = complaints.decode(errors="replace").strip()[-_EXCERPT:]
        raise CredentialsError(f"{plugin.command} failed with exit code {process.returncode}: {text}")
    return parse_answer(plugin, output)


async def _finished(process: asyncio.subprocess.Process, plugin: ExecPlugin) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await process.communicate()
    except TimeoutError as problem:
        raise CredentialsError(f"{plugin.command} did not finish within {PATIENCE:g} s") from problem
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def exec_info(plugin: ExecPlugin) -> str:
    """What the plugin is told about the caller and, when its kubeconfig wants that, about the cluster."""
    cluster = {} if plugin.cluster_info is None else {"cluster": plugin.cluster_info}
    spec = {"interactive": False, **cluster}
    return msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    ).decode()


def parse_answer(plugin: ExecPlugin, output: bytes) -> ExecCredential:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.MsgspecError as problem:
        raise CredentialsError(f"{plugin.command} printed no ExecCredential: {problem}") from problem
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        printed, wanted = f"{answer.api_version} {answer.kind}", f"{plugin.api_version} ExecCredential"
        raise CredentialsError(f"{plugin.command} printed {printed}, not {wanted}")
    return _credential(plugin, answer.status or _Status())


def _credential(plugin: ExecPlugin, status: _Status) -> ExecCredential:
    certificate, key = status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        raise CredentialsError(f"{plugin.command} printed a certificate without its key, or the reverse")
    if not status.token and not certificate:
        raise CredentialsError(f"{plugin.command} printed neither a token nor a certificate")
    client = ClientCertificate(certificate.encode(), key.encode()) if certificate and key else None
    return ExecCredential(status.token, client, status.expiration_timestamp)
