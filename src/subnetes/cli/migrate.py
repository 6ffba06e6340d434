"""`subnetes migrate`: brings NodeNetworkConfigs from v1alpha to v1beta1, or says how far that is.

One update of the CRD, once the webhook was seen to convert and every NNC can be (migration_check.py); DNC-RC
then rewrites what is stored. The rules are api/migration.py's, the operator's page is docs/migration.md.
"""

import argparse
import asyncio
import re
import time
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from subnetes.api import migration
from subnetes.api.core import ConfigMap, Secret
from subnetes.api.crd import WebhookConversion
from subnetes.api.customresourcedefinition import CustomResourceDefinition, ServiceReference
from subnetes.api.migration import CONVERT_PATH, HTTPS, HUB, NAME, OLD, Stage, Standing
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.resource import Resource
from subnetes.cli import connection, migration_check
from subnetes.cli.connection import CannotGoOn
from subnetes.cli.webhook_probe import NotConverting, check_certificate, named, probe
from subnetes.controllers import migration_progress
from subnetes.controllers.migration_progress import Progress
from subnetes.controllers.status import timestamp
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from subnetes.webhook.authority import SECRET
from subnetes.webhook.certificates import BUNDLE

CRDS = CustomResourceDefinition.resource
TRIES = 5  # of an update that others come between
PATIENCE = 60.0  # seconds for the API server to serve both versions
_SERVICE = re.compile(r"([a-z0-9-]+)/([a-z0-9.-]+)(?::(\d{1,5}))?")

Crd = dict[str, Any]


def add_to(commands: Any) -> None:
    command = commands.add_parser(
        "migrate", help=f"bring NodeNetworkConfigs from {OLD} to {HUB}, or say how far that is"
    )
    command.add_argument(
        "what",
        nargs="?",
        choices=("status", "rollback"),
        help=f"say how far it is, or have objects stored in {OLD} again; default: go on to {HUB}",
    )
    connection.add_kubeconfig(command)
    where = command.add_mutually_exclusive_group()
    where.add_argument("--webhook-url", metavar="URL", type=_url, help=f"https://HOST[:PORT]{CONVERT_PATH}")
    where.add_argument(
        "--webhook-service",
        metavar="NAMESPACE/NAME[:PORT]",
        type=_service,
        help=f"default port: {HTTPS}; default: what the CRD names already",
    )
    command.add_argument(
        "--ca-file",
        type=Path,
        help=f"PEM of the webhook's authority; default: from the Secret {NAMESPACE}/{SECRET}",
    )
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    command.add_argument(
        "--repair", action="store_true", help="also where objects were relabelled without a conversion"
    )
    command.set_defaults(run=run)


def _url(text: str) -> str:
    if not text.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r}: API servers ask webhooks at https:// only")
    return text


def _service(text: str) -> ServiceReference:
    found = _SERVICE.fullmatch(text)
    if found is None or not 1 <= int(found[3] or HTTPS) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAMESPACE/NAME or NAMESPACE/NAME:PORT")
    namespace, name, port = found.groups()
    return ServiceReference(namespace=namespace, name=name, port=int(port or HTTPS), path=CONVERT_PATH)


def run(options: argparse.Namespace) -> int:
    work = {None: _forward, "status": _status, "rollback": _back}[options.what]
    return connection.run("migrate", options, work)


async def _forward(client: Client, options: argparse.Namespace) -> None:
    crd = await _crd(client)
    _check(migration.standing(crd), repair=options.repair)
    conversion = await _conversion(client, options, crd)
    await _ask(client, conversion)
    written = await _written(client, conversion, options)
    if options.dry_run:
        print(f"then: {await _rest(client, crd)}")
        print("dry run: nothing was written")
        return
    await _served(client, HUB, OLD)
    print("both versions are served" if written else "nothing to do for the CRD")
    print(f"next: {_next(await _crd(client))}")


async def _written(client: Client, conversion: WebhookConversion, options: argparse.Namespace) -> bool:
    """Whether the one update was needed; others may write the CRD at the same time."""
    for _ in range(TRIES):
        crd = await _crd(client)
        now = migration.standing(crd)
        _check(now, repair=options.repair)
        wanted = migration.target(crd, conversion)
        if not migration.differ(crd, wanted):
            print(f"CRD: {now}, as it should be")
            return False
        await migration_check.check(client, crd, wanted)
        print(f"CRD: {now} -> {_shown(wanted)}, in one {'creation' if crd is None else 'update'}")
        if options.dry_run or await _put(client, crd, wanted):
            return True
    raise CannotGoOn(f"others wrote the CRD {NAME} at the same time, {TRIES} times: try again")


async def _put(client: Client, crd: Crd | None, wanted: Crd) -> bool:
    try:
        if crd is None:
            await client.create(wanted, resource=CRDS)
        else:
            await client.update(wanted, resource=CRDS)
    except (Conflict, AlreadyExists):
        return False
    return True


async def _back(client: Client, options: argparse.Namespace) -> None:
    for _ in range(TRIES):
        crd = await _crd(client)
        now = migration.standing(crd)
        if crd is None or now.stage is not Stage.CONVERTED:
            raise CannotGoOn(f"there is nothing to roll back: the CRD is {now}. {now.why}".rstrip())
        if now.storage == OLD:
            print(f"CRD: {now}, as it should be\nnext: {_next(crd)}")
            return
        await _ask(client, named(migration.client_config(crd) or {}))
        wanted = migration.rolled_back(crd)
        print(f"CRD: {now} -> {_shown(wanted)}, in one update")
        if options.dry_run:
            print("dry run: nothing was written")
            return
        if await _put(client, crd, wanted):
            await _served(client, OLD)  # an NNC that has no v1beta1 form is a reason to roll back
            print(f"{OLD} is served\nnext: {_next(await _crd(client))}")
            return
    raise CannotGoOn(f"others wrote the CRD {NAME} at the same time, {TRIES} times: try again")


def _check(now: Standing, *, repair: bool) -> None:
    if now.stage is Stage.UNKNOWN or (now.stage is Stage.RELABELLED and not repair):
        raise CannotGoOn(f"the CRD {NAME} is {now}. {now.why}")


async def _crd(client: Client) -> Crd | None:
    try:
        return await client.get(CRDS, NAME)
    except NotFound:
        return None


async def _conversion(client: Client, options: argparse.Namespace, crd: Crd | None) -> WebhookConversion:
    given: str | ServiceReference | None = options.webhook_url or options.webhook_service
    if given is None:
        config = migration.client_config(crd)
        if config is None:
            raise CannotGoOn("where is the webhook? Give --webhook-url or --webhook-service")
        known = named(config)
        return replace(known, ca_bundle=_file(options.ca_file)) if options.ca_file else known
    if options.ca_file is not None:
        return WebhookConversion(given, _file(options.ca_file))
    data = await _kept(client)
    if isinstance(given, ServiceReference):
        _check_kept(data, f"{given.name}.{given.namespace}.svc")
    return WebhookConversion(given, data[BUNDLE])


async def _kept(client: Client) -> dict[str, bytes]:
    """The webhook's own certificates."""
    try:
        data = (await client.get(Secret, SECRET, NAMESPACE)).data or {}
    except NotFound:
        data = {}
    if BUNDLE not in data:
        why = f"the Secret {NAMESPACE}/{SECRET} has no {BUNDLE}"
        raise CannotGoOn(f"{why}: is the webhook running? Else give --ca-file")
    return data


def _check_kept(data: dict[str, bytes], host: str) -> None:
    """A URL is asked as the API server asks it; for a service, this is what the proxy does not look at."""
    try:
        check_certificate(data, host, datetime.now(UTC))
    except NotConverting as problem:
        why = f"the API server would not trust the webhook: in the Secret {NAMESPACE}/{SECRET}, {problem}"
        raise CannotGoOn(f"{why}; the CRD stays as it is") from None
    print(f"certificate: the Secret {NAMESPACE}/{SECRET} has one for {host}, signed by its {BUNDLE}")


def _file(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as problem:
        raise CannotGoOn(f"--ca-file: {problem}") from None


async def _ask(client: Client, conversion: WebhookConversion) -> None:
    try:
        how = await probe(client, conversion)
    except NotConverting as problem:
        raise CannotGoOn(f"the webhook does not convert: {problem}; the CRD stays as it is") from None
    print(f"webhook: {place(conversion)} converts both ways ({how})")


async def _served(client: Client, *versions: str) -> None:
    """Wait until reads in these versions work. Before that an API server answers 404 or 429 for a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            for version in versions:
                await _first_page(client, version)
        except ApiError as problem:
            if time.monotonic() > deadline:
                raise CannotGoOn(
                    f"the CRD is written, but its objects cannot be read: {problem}; mend the webhook (its"
                    " certificate?), or see docs/migration.md, rolling back"
                ) from None
            await asyncio.sleep(0.2)
        else:
            return


async def _first_page(client: Client, version: str) -> None:
    async with aclosing(client.pages(_resource(version), page_size=1)) as pages:
        async for _ in pages:
            return


def _resource(version: str) -> Resource:
    return replace(NodeNetworkConfig.resource, version=version)


async def _rest(client: Client, crd: Crd | None) -> str:
    now = migration.standing(crd)
    if set(now.stored) <= {HUB}:
        return "no object is stored in another version: nothing to rewrite"
    version = OLD if now.stage is Stage.OLD_ONLY else HUB
    count = len((await client.list(_resource(version))).items)
    return f"DNC-RC rewrites {count} NNCs to {HUB}, then takes {OLD} out of status.storedVersions"


async def _status(client: Client, _: argparse.Namespace) -> None:
    crd = await _crd(client)
    now = migration.standing(crd)
    wrong = [now.why] if now.why else []
    progress = await _progress(client)
    print(f"CRD         {now}")
    if crd is not None:
        print(f"stored in   {', '.join(now.stored) or 'nothing yet'}")
    if progress is not None:
        print(f"rewriting   {_told(progress, crd)}")
        if progress.problem and _concerns(progress, crd):
            wrong.append(f"NNCs cannot be rewritten, {progress.problem}")
    config = migration.client_config(crd)
    if config is not None:
        conversion = named(config)
        try:
            print(f"webhook     {place(conversion)} converts both ways ({await probe(client, conversion)})")
        except NotConverting as problem:
            print(f"webhook     {place(conversion)} does not convert: {problem}")
            wrong.append(f"the webhook does not convert: {problem}")
    print(f"next        {_next(crd)}")
    if wrong:
        raise CannotGoOn("; ".join(wrong))


async def _progress(client: Client) -> Progress | None:
    try:
        found = await client.get(ConfigMap, migration_progress.CONFIG_MAP, NAMESPACE)
    except NotFound:
        return None
    return migration_progress.read(found)


def _concerns(progress: Progress, crd: Crd | None) -> bool:
    work = migration.rewriting(crd)
    return work is not None and progress.of(work)


def _told(progress: Progress, crd: Crd | None) -> str:
    when = f"begun {timestamp(progress.begun)}, noted {timestamp(progress.written)} by {progress.by}"
    counts = f"{progress.done} of {progress.total} NNCs to {progress.to}"
    if progress.state == migration_progress.WAITING:
        counts = f"to {progress.to} as soon as all API servers follow the CRD"
    current = (
        "" if progress.state == migration_progress.DONE or _concerns(progress, crd) else ", of a former CRD"
    )
    return f"{progress.state}: {counts}; {when}{current}"


def _next(crd: Crd | None) -> str:
    now, work = migration.standing(crd), migration.rewriting(crd)
    if work is not None:
        other = ", ".join(sorted(set(now.stored) - {work.to}))
        return f"DNC-RC rewrites stored NNCs to {work.to}, then takes {other} out of status.storedVersions"
    if now.stage is Stage.CONVERTED:
        return f"nothing: every NNC is stored in {now.storage}"
    if now.stage is Stage.HUB_ONLY:
        return f"nothing, unless clients of {OLD} are to be served: then `subnetes migrate`"
    return now.why or "start the webhook, then `subnetes migrate`"


def _shown(crd: Crd) -> str:
    now = migration.standing(crd)
    return f"{now} at {place(named(migration.client_config(crd) or {}))}"


def place(conversion: WebhookConversion) -> str:
    where = conversion.target
    if isinstance(where, str):
        return where
    return f"service {where.namespace}/{where.name}:{where.port or HTTPS}"
