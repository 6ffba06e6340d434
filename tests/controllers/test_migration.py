"""DNC-RC rewrites stored NNCs: what it writes, what stops it, and where the next leader goes on."""

from __future__ import annotations

import asyncio
import base64
import copy
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from subnetes.api import migration as rules
from subnetes.api.conversion import convert
from subnetes.api.core import ConfigMap
from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.nodenetworkconfig_v1alpha import NodeNetworkConfig as OldNnc
from subnetes.apiserver.server import Config, Server
from subnetes.controllers import migration
from subnetes.controllers.migration import Migration, NotAll, Pace
from subnetes.controllers.migration_progress import CONFIG_MAP, DONE, Progress, read
from subnetes.controllers.process import Settings, dnc_rc, in_memory
from subnetes.controllers.term import NotLeading, Term
from subnetes.kube.backoff import Backoff
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    Temporary,
    TooManyRequests,
    Unavailable,
)
from subnetes.kube.services import run
from subnetes.kube.sources import from_kubeconfig
from tests.harness.clients import eventually
from tests.harness.old_crds import field_crd
from tests.harness.old_nncs import field_nncs
from tests.harness.processes import Child, start
from tests.harness.stored import in_sqlite
from tests.harness.webhook import ConversionWebhook, converting

pytestmark = pytest.mark.slow

CRDS = CustomResourceDefinition.resource
COUNT = 20
QUICK = Pace(rate=10_000.0, settle=0.0, look_every=0.05, note_objects=3)
OLD, HUB = OldNnc.resource.api_version, NodeNetworkConfig.resource.api_version


class Killed(BaseException):
    """The replica's process ended here."""


class Watched(Client):
    """The client, with its writes recorded, and a word to be said before each of an NNC."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(from_kubeconfig(kubeconfig))
        self.patched: list[str] = []
        self.writes: Counter[str] = Counter()
        self.before: Callable[[str, int], object] = lambda _name, _number: None

    async def patch(self, kind: Any, name: str, patch: Any, *place: Any, **more: Any) -> Any:
        if name != rules.NAME:
            word = self.before(name, len(self.patched))
            if asyncio.iscoroutine(word):
                await word
            self.patched.append(name)
        self.writes[name if name == rules.NAME else "nnc"] += 1
        return await super().patch(kind, name, patch, *place, **more)

    async def create(self, obj: Any, **more: Any) -> Any:
        self.writes["create"] += 1
        return await super().create(obj, **more)

    async def update(self, obj: Any, **more: Any) -> Any:
        self.writes["update"] += 1
        return await super().update(obj, **more)


class Field:
    """A cluster that another control plane set up, and its conversion webhook."""

    def __init__(self, client: Watched, data: Path, kubeconfig: Path, webhook: ConversionWebhook) -> None:
        self.client, self.data, self.kubeconfig = client, data, kubeconfig
        config = webhook.crd_conversion()["webhook"]["clientConfig"]
        self.webhook = webhook
        self.conversion = WebhookConversion(config["url"], base64.b64decode(config["caBundle"]))
        self.leads = True
        self.clock = 0.0

    async def plant(self, count: int = COUNT) -> None:
        for each in field_nncs(count):
            body = copy.deepcopy(each.document)
            body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace", "labels")}
            made = await self.client.create(body, resource=OldNnc.resource)
            if each.status is not None:
                await self.client.update_status(made | {"status": each.status}, resource=OldNnc.resource)

    async def upgrade(self) -> None:
        await self.client.update(rules.target(await self.crd(), self.conversion), resource=CRDS)

    async def edit(self, **spec: Any) -> None:
        crd = await self.crd()
        crd["spec"]["names"] |= spec
        await self.client.update(crd, resource=CRDS)

    async def crd(self) -> dict[str, Any]:
        return await self.client.get(CRDS, rules.NAME)

    async def stored_versions(self) -> list[str]:
        found: list[str] = (await self.crd())["status"]["storedVersions"]
        return found

    def stored(self) -> Counter[str]:
        return in_sqlite(self.data, rules.NAME)

    async def seen(self) -> dict[str, Any]:
        """Every NNC as clients of v1alpha see it, without what a write changes."""
        items = (await self.client.list(OldNnc.resource)).items
        for each in items:
            del each["metadata"]["resourceVersion"]
            each["metadata"].pop("annotations", None)
        return {each["metadata"]["name"]: each for each in items}

    async def names(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await self.client.list(OldNnc.resource)).items)

    def replica(self, identity: str = "one", pace: Pace = QUICK, skew: float = 0.0) -> Migration:
        self.client.patched.clear()
        self.client.writes.clear()
        term = Term("local", NAMESPACE, identity, lambda: self.leads, now=lambda: time.time() + skew)
        return Migration(term, self.client, pace, clock=lambda: self.clock)

    async def progress(self) -> Progress:
        found = read(await self.client.get(ConfigMap, CONFIG_MAP, NAMESPACE))
        assert found is not None
        return found


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    with ConversionWebhook(tmp_path / "webhook", converting(convert)) as webhook:
        others = [each for each in crds() if each["metadata"]["name"] != rules.NAME]
        config = Config(data=tmp_path / "data", crds=[field_crd(), *others])
        async with Server(config) as server, Watched(server.kubeconfig) as client:
            yield Field(client, tmp_path / "data", server.kubeconfig, webhook)


@pytest.fixture
async def upgraded(field: Field) -> Field:
    await field.plant()
    await field.upgrade()
    assert field.stored() == {OLD: COUNT}
    return field


async def test_every_nnc_is_stored_anew_once_in_order_and_v1alpha_leaves_last(upgraded: Field) -> None:
    before = await upgraded.seen()
    stored_at_patch: list[list[str]] = []

    async def look(_name: str, _number: int) -> None:
        stored_at_patch.append(await upgraded.stored_versions())

    one = upgraded.replica()
    upgraded.client.before = look
    await one.look()
    assert upgraded.client.patched == await upgraded.names()
    assert stored_at_patch == [["v1alpha", "v1beta1"]] * COUNT
    assert upgraded.stored() == {HUB: COUNT}
    assert await upgraded.stored_versions() == ["v1beta1"]
    assert await upgraded.seen() == before
    done = await upgraded.progress()
    assert (done.state, done.done, done.total, done.by) == (DONE, COUNT, COUNT, "one")


async def test_nothing_is_written_when_all_is_done(upgraded: Field) -> None:
    await upgraded.replica().look()
    assert await upgraded.replica("two").look() == QUICK.look_every
    assert upgraded.client.writes == {}


async def test_an_empty_patch_of_what_is_stored_anew_is_no_write(upgraded: Field) -> None:
    await upgraded.replica().look()
    before = [
        each.metadata.resource_version for each in (await upgraded.client.list(NodeNetworkConfig)).items
    ]
    for name in await upgraded.names():
        await upgraded.client.patch(NodeNetworkConfig, name, migration._EMPTY, NAMESPACE)
    after = [each.metadata.resource_version for each in (await upgraded.client.list(NodeNetworkConfig)).items]
    assert after == before


async def test_who_is_killed_in_the_middle_is_gone_on_for(upgraded: Field) -> None:
    def die(_name: str, number: int) -> None:
        if number == 10:
            raise Killed

    one = upgraded.replica("one")
    upgraded.client.before = die
    with pytest.raises(Killed):
        await one.look()
    assert upgraded.stored() == {OLD: COUNT - 10, HUB: 10}
    assert (await upgraded.progress()).done == 9, "noted after every third"
    two = upgraded.replica("two")
    upgraded.client.before = lambda _name, _number: None
    await two.look()
    assert upgraded.client.patched == (await upgraded.names())[9:]
    assert upgraded.stored() == {HUB: COUNT}
    done = await upgraded.progress()
    assert (done.by, done.done, done.total) == ("two", COUNT, COUNT)


async def test_who_no_longer_leads_writes_nothing_more(upgraded: Field) -> None:
    def lose(_name: str, number: int) -> None:
        upgraded.leads = number < 6

    one = upgraded.replica()
    upgraded.client.before = lose
    with pytest.raises(NotLeading):
        await one.look()
    assert upgraded.client.patched == (await upgraded.names())[:7], "the one under way was in time"
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    upgraded.leads = True
    two = upgraded.replica("two")
    upgraded.client.before = lambda _name, _number: None
    await two.look()
    assert upgraded.client.patched == (await upgraded.names())[6:]
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_a_former_leaders_progress_overwrites_nothing(upgraded: Field) -> None:
    one, two = upgraded.replica("one", QUICK), upgraded.replica("two")

    async def overtake(_name: str, number: int) -> None:
        if number == 1:
            upgraded.client.before = lambda _name, _number: None
            await two.look()

    upgraded.client.before = overtake
    with pytest.raises(Conflict):
        await one.look()
    assert (await upgraded.progress()).by == "two"


async def test_troubles_on_the_way_are_tried_again(upgraded: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    troubles: dict[int, list[ApiError]] = {
        2: [TooManyRequests("slow", code=429)],
        5: [Conflict("changed", code=409), Conflict("changed", code=409)],
        9: [Unavailable("internal", code=500), TooManyRequests("slow", code=429)],
    }

    def trouble(_name: str, number: int) -> None:
        if troubles.get(number):
            raise troubles[number].pop()

    one = upgraded.replica()
    upgraded.client.before = trouble
    await one.look()
    assert not any(troubles.values())
    assert upgraded.client.patched == await upgraded.names()
    assert upgraded.stored() == {HUB: COUNT}
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_a_trouble_that_lasts_ends_the_look_not_the_progress(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))

    def down(_name: str, number: int) -> None:
        if number == 8:
            raise Unavailable("down", code=503)

    one = upgraded.replica()
    upgraded.client.before = down
    with pytest.raises(Unavailable):
        await one.look()
    assert (await upgraded.progress()).done == 8
    upgraded.client.before = lambda _name, _number: None
    await one.look()
    assert upgraded.client.patched == await upgraded.names()
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_a_crd_that_is_edited_in_the_middle_means_to_begin_again(upgraded: Field) -> None:
    async def edit(_name: str, number: int) -> None:
        if number == 5:
            await upgraded.edit(categories=["edited"])

    one = upgraded.replica()
    upgraded.client.before = edit
    assert await one.look() == 0.0
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    upgraded.client.before = lambda _name, _number: None
    await one.look()
    assert upgraded.client.patched == await upgraded.names() * 2
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_rolled_back_in_the_middle_all_are_stored_in_v1alpha_again(upgraded: Field) -> None:
    before = await upgraded.seen()

    async def roll_back(_name: str, number: int) -> None:
        if number == 5:
            await upgraded.client.update(rules.rolled_back(await upgraded.crd()), resource=CRDS)

    one = upgraded.replica()
    upgraded.client.before = roll_back
    await one.look()
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    await one.look()
    assert upgraded.stored() == {OLD: COUNT}
    assert await upgraded.stored_versions() == ["v1alpha"]
    assert await one.look() == QUICK.look_every, "and not forward again"
    assert await upgraded.seen() == before


async def test_nothing_happens_before_the_api_servers_can_have_followed(upgraded: Field) -> None:
    pace = Pace(rate=10_000.0, settle=60.0, look_every=1000.0)
    one = upgraded.replica(pace=pace)
    assert await one.look() == 60.0
    upgraded.clock = 40.0
    assert await one.look() == 20.0
    await upgraded.edit(categories=["edited"])
    assert await one.look() == 60.0, "another CRD to follow"
    upgraded.clock = 99.0
    assert await one.look() == 1.0
    assert upgraded.client.patched == []
    upgraded.clock = 100.0
    await one.look()
    assert await upgraded.stored_versions() == ["v1beta1"]


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
async def test_a_new_leader_waits_by_its_own_clock(upgraded: Field, skew: float) -> None:
    pace = Pace(rate=10_000.0, settle=60.0, look_every=1000.0)
    assert await upgraded.replica("one", pace).look() == 60.0
    upgraded.clock = 40.0
    two = upgraded.replica("two", pace, skew)
    assert await two.look() == 60.0
    assert upgraded.client.patched == []
    upgraded.clock = 100.0
    await two.look()
    assert await upgraded.stored_versions() == ["v1beta1"]


@pytest.mark.parametrize("refused", [False, True])
async def test_who_goes_on_with_a_rewriting_need_not_wait(upgraded: Field, refused: bool) -> None:
    def die(_name: str, number: int) -> None:
        if refused and number == 2:
            upgraded.client.patched.append("refused")
            raise Invalid("no", code=422)
        if number == 10:
            raise Killed

    one = upgraded.replica("one")
    upgraded.client.before = die
    with pytest.raises(Killed):
        await one.look()
    upgraded.client.before = lambda _name, _number: None
    await upgraded.replica("two", Pace(rate=10_000.0, settle=60.0)).look()
    assert await upgraded.stored_versions() == ["v1beta1"]


@pytest.mark.parametrize("crd", ["none", "v1alpha", "v1beta1", "relabelled"])
async def test_other_crds_are_left_alone(tmp_path: Path, crd: str) -> None:
    ours = [each for each in crds() if each["metadata"]["name"] == rules.NAME]
    relabelled = rules.target(None, WebhookConversion("https://127.0.0.1:1/convert"))
    relabelled["spec"]["conversion"] = {"strategy": "None"}
    found = {"none": [], "v1alpha": [field_crd()], "v1beta1": ours, "relabelled": [relabelled]}[crd]
    async with Server(Config(data=None, crds=found)) as server, Watched(server.kubeconfig) as client:
        term = Term("local", NAMESPACE, "one", lambda: True)
        assert await Migration(term, client, QUICK).look() == QUICK.look_every
        assert client.writes == {}


async def test_an_nnc_that_vanishes_and_one_that_comes_are_no_matter(upgraded: Field) -> None:
    names = await upgraded.names()

    async def change(_name: str, number: int) -> None:
        if number == 3:
            await upgraded.client.delete(NodeNetworkConfig, names[12], NAMESPACE)
            metadata = {"name": "aaa", "namespace": NAMESPACE}
            body = {"apiVersion": OLD, "kind": "NodeNetworkConfig", "metadata": metadata}
            await upgraded.client.create(body, resource=OldNnc.resource)

    one = upgraded.replica()
    upgraded.client.before = change
    await one.look()
    assert upgraded.stored() == {HUB: COUNT}
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_nncs_of_other_namespaces_are_stored_anew_too(field: Field) -> None:
    metadata = {"name": "a", "namespace": "default"}
    body = {"apiVersion": OLD, "kind": "NodeNetworkConfig", "metadata": metadata}
    await field.client.create(body, resource=OldNnc.resource)
    await field.upgrade()
    await field.replica().look()
    assert field.stored() == {HUB: 1}


async def test_a_kind_that_is_not_served_for_a_moment_is_no_vanished_nnc(upgraded: Field) -> None:
    def unserved(_name: str, number: int) -> None:
        if number == 4:
            raise NotFound("the server could not find the requested resource", code=404)

    one = upgraded.replica()
    upgraded.client.before = unserved
    with pytest.raises(Temporary):
        await one.look()
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]


async def test_one_that_is_refused_holds_up_the_end_and_nothing_else(upgraded: Field) -> None:
    refused = (await upgraded.names())[4]

    def refuse(name: str, _number: int) -> None:
        if name == refused:
            raise Invalid("spec is wrong", code=422)

    one = upgraded.replica()
    upgraded.client.before = refuse
    with pytest.raises(NotAll, match="1 NNCs"):
        await one.look()
    assert upgraded.stored() == {HUB: COUNT - 1, OLD: 1}
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    assert f"{refused}: spec is wrong" in (await upgraded.progress()).problem
    upgraded.client.before = lambda _name, _number: None
    await upgraded.replica("two").look()
    assert upgraded.stored() == {HUB: COUNT}
    assert await upgraded.stored_versions() == ["v1beta1"]
    assert (await upgraded.progress()).problem == ""


async def test_a_refusal_is_not_forgotten_by_the_next_leader(upgraded: Field) -> None:
    """The first is killed behind the refused one, with its progress noted."""
    refused = (await upgraded.names())[4]

    def refuse_then_die(name: str, number: int) -> None:
        if name == refused:
            raise Invalid("spec is wrong", code=422)
        if number == 14:
            raise Killed

    one = upgraded.replica()
    upgraded.client.before = refuse_then_die
    with pytest.raises(Killed):
        await one.look()
    assert (await upgraded.progress()).last > f"{NAMESPACE}/{refused}"
    two = upgraded.replica("two")
    upgraded.client.before = lambda _name, _number: None
    await two.look()
    assert upgraded.stored() == {HUB: COUNT}


async def test_with_the_webhook_down_nothing_is_dropped(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    upgraded.webhook.behaviour = lambda _review: None
    with pytest.raises(Unavailable):
        await upgraded.replica().look()
    assert upgraded.stored() == {OLD: COUNT}
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    upgraded.webhook.behaviour = converting(convert)
    await upgraded.replica().look()
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_with_the_webhook_down_what_is_stored_anew_is_left_alone(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server would let the patch pass, and wipe managedFields."""
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    for name in await upgraded.names():
        await upgraded.client.patch(NodeNetworkConfig, name, migration._EMPTY, NAMESPACE)
    before = await upgraded.seen()
    assert upgraded.stored() == {HUB: COUNT}
    upgraded.webhook.behaviour = lambda _review: None
    with pytest.raises(Unavailable):
        await upgraded.replica().look()
    assert upgraded.client.patched == []
    upgraded.webhook.behaviour = converting(convert)
    assert await upgraded.seen() == before
    await upgraded.replica().look()
    assert await upgraded.stored_versions() == ["v1beta1"]
    assert await upgraded.seen() == before


def failing_for(*names: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    def converted(obj: dict[str, Any], to: str) -> dict[str, Any]:
        if obj["metadata"]["name"] in names:
            raise ValueError("not this one")
        return convert(obj, to)

    return converted


@pytest.mark.parametrize("place", [0, 4, COUNT - 1])
async def test_one_that_cannot_be_converted_does_not_stop_the_others(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    bad = (await upgraded.names())[place]
    upgraded.webhook.behaviour = converting(failing_for(bad))
    with pytest.raises(NotAll, match="1 NNCs"):
        await upgraded.replica().look()
    assert upgraded.stored() == {HUB: COUNT - 1, OLD: 1}
    assert await upgraded.stored_versions() == ["v1alpha", "v1beta1"]
    noted = await upgraded.progress()
    assert f"{NAMESPACE}/{bad}: " in noted.problem
    assert (noted.done, noted.total) == (COUNT - 1, COUNT)
    upgraded.webhook.behaviour = converting(convert)
    await upgraded.replica("two").look()
    assert upgraded.stored() == {HUB: COUNT}
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_one_that_cannot_be_converted_back_does_not_stop_a_roll_back(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    await upgraded.replica().look()
    bad = (await upgraded.names())[4]
    await upgraded.client.update(rules.rolled_back(await upgraded.crd()), resource=CRDS)
    upgraded.webhook.behaviour = converting(failing_for(bad))
    with pytest.raises(NotAll, match="1 NNCs"):
        await upgraded.replica().look()
    assert upgraded.stored() == {OLD: COUNT - 1, HUB: 1}
    assert f"{NAMESPACE}/{bad}: " in (await upgraded.progress()).problem


async def test_two_in_a_row_mean_that_the_webhook_is_down(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migration, "_AGAIN", Backoff(first=0.001, cap=0.001))
    names = await upgraded.names()
    upgraded.webhook.behaviour = converting(failing_for(*names[7:9]))
    with pytest.raises(Unavailable):
        await upgraded.replica().look()
    assert set(upgraded.client.patched) <= set(names[:9]), "none after the second"
    assert names[8] in caplog.text
    noted = await upgraded.progress()
    assert (noted.done, noted.problem) == (7, ""), "and the next goes on where the first one failed"
    upgraded.webhook.behaviour = converting(convert)
    await upgraded.replica("two").look()
    assert upgraded.client.patched == names[7:]
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_no_error_ends_the_service(
    upgraded: Field, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migration, "_RETRY", Backoff(first=0.001, cap=0.001))
    errors: list[Exception] = [RuntimeError("a mistake of ours"), Invalid("no", code=422), NotLeading("no")]

    def fail(_name: str, _number: int) -> None:
        if errors:
            raise errors.pop(0)

    one = upgraded.replica()
    upgraded.client.before = fail
    caplog.set_level(logging.INFO, migration.__name__)
    running = asyncio.create_task(one.run())
    await eventually(lambda: "and in nothing else" in caplog.text)
    one.stop()
    await running
    assert errors == []
    assert f"of {COUNT} NNCs are stored in v1beta1" in caplog.text, "a line of progress"
    assert await upgraded.stored_versions() == ["v1beta1"]


async def test_the_rate_is_kept(upgraded: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    one = upgraded.replica(pace=Pace(rate=0.5, settle=0.0))
    monkeypatch.setattr(asyncio, "sleep", note)
    await one.look()
    waits = [each for each in slept if each > 1]
    assert len(waits) == COUNT - 1
    assert max(waits) > 2 * (COUNT - 2), "nobody slept, so the last is due so much later"


async def test_the_whole_of_dnc_rc_migrates(upgraded: Field) -> None:
    stop = asyncio.Event()
    settings = Settings(identity="test", terms=Terms(3, 2.0, 0.2), migration=QUICK)
    async with Client(from_kubeconfig(upgraded.kubeconfig)) as client:
        running = asyncio.create_task(run(dnc_rc(client, in_memory, settings), stop=stop))
        try:
            async with asyncio.timeout(60):
                while await upgraded.stored_versions() != ["v1beta1"]:
                    await asyncio.sleep(0.05)
        finally:
            stop.set()
            await running
    assert set(upgraded.stored()) == {HUB}


def replica(field: Field, name: str, folder: Path, rate: float) -> Child:
    return start(
        [
            *(sys.executable, "-m", "subnetes.cli.main", "controller"),
            *("--kubeconfig", str(field.kubeconfig), "--identity", name),
            *("--lease-duration", "3", "--retry-period", "0.3"),
            *("--migration-settle", "0", "--migration-rate", f"{rate:g}"),
        ],
        folder / f"{name}.log",
    )


@pytest.mark.slow
async def test_another_process_goes_on_for_one_that_was_killed(upgraded: Field, tmp_path: Path) -> None:
    before = await upgraded.seen()
    children = [replica(upgraded, "one", tmp_path, rate=0.5)]
    try:
        async with asyncio.timeout(60):
            while not await begun(upgraded):
                await asyncio.sleep(0.05)
        children[0].kill()
        first = await upgraded.progress()
        children.append(replica(upgraded, "two", tmp_path, rate=100.0))
        async with asyncio.timeout(60):
            while await upgraded.stored_versions() != ["v1beta1"]:
                await asyncio.sleep(0.05)
            while (done := await upgraded.progress()).state != DONE:
                await asyncio.sleep(0.05)
    finally:
        for each in children:
            each.kill()
    assert (first.by.partition("_")[0], done.by.partition("_")[0]) == ("one", "two")
    assert (done.begun, done.done, done.total) == (first.begun, COUNT, COUNT)
    assert set(upgraded.stored()) == {HUB}
    assert "NNCs are stored in v1beta1, and in nothing else" in children[1].tail(100_000)
    assert set(await upgraded.seen()) == set(before)


async def begun(field: Field) -> bool:
    try:
        return 0 < (await field.progress()).done < COUNT
    except NotFound:
        return False
