"""Server-side apply through the conversion: managers of v1alpha and of v1beta1 write one object in turn.

Whoever owned what before owns it afterwards, conflicts are those that somebody caused, and the annotation
that carries what the other version cannot say belongs to nobody.
"""

import random
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from subnetes.api.names import CONVERSION
from tests.harness.control_plane import ControlPlane
from tests.harness.old_nncs import collection, owned, paths
from tests.harness.two_versions import HUB, OLD, real_with_both
from tests.harness.wire import Reply, Wire

pytestmark = [pytest.mark.real, pytest.mark.slow]

Dict = dict[str, Any]
FIRST, SECOND = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with real_with_both(assets, tmp_path_factory.mktemp("webhook")) as made:
        yield made


@pytest.fixture
async def wire(plane: ControlPlane) -> AsyncIterator[Wire]:
    async with Wire(plane) as made:
        yield made


class Nnc:
    """One NNC, and those who write it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.name = f"n-{uuid.uuid4().hex[:8]}"

    def _path(self, version: str, part: str = "") -> str:
        return f"{collection(version)}/{self.name}{part}"

    async def create(self, containers: list[Dict] | None = None, spec: Dict | None = None) -> None:
        body = self._body(OLD, spec or {})
        (await self._wire.post(collection(OLD), body, fieldManager="creator")).ok()
        if containers is not None:
            status = {"status": {"networkContainers": containers, "status": "Updated"}}
            (await self._wire.merge(self._path(OLD, "/status"), status, fieldManager="granter")).ok()

    def _body(self, version: str, spec: Dict, **metadata: Any) -> Dict:
        return {
            "apiVersion": f"acn.azure.com/{version}",
            "kind": "NodeNetworkConfig",
            "metadata": {"name": self.name, "namespace": "kube-system"} | metadata,
            "spec": spec,
        }

    async def read(self, version: str) -> Dict:
        found: Dict = (await self._wire.get(self._path(version))).ok()
        return found

    async def try_apply(self, version: str, manager: str, spec: Dict, *, force: bool = False) -> Reply:
        return await self._wire.apply(self._path(version), self._body(version, spec), manager, force=force)

    async def apply(self, version: str, manager: str, spec: Dict, *, force: bool = False) -> Dict:
        found: Dict = (await self.try_apply(version, manager, spec, force=force)).ok()
        return found

    async def merge(self, version: str, document: Dict, manager: str, part: str = "") -> Dict:
        found: Dict = (await self._wire.merge(self._path(version, part), document, fieldManager=manager)).ok()
        return found

    async def put(self, version: str, document: Dict) -> Dict:
        found: Dict = (await self._wire.put(self._path(version), document, fieldManager="writer")).ok()
        return found


def container(nc: str, ips: int) -> Dict:
    granted = [{"name": f"{nc}-{n}", "ip": f"10.1.{nc[-1]}.{n + 10}"} for n in range(ips)]
    return {"id": nc, "subnetName": "s", "subnetID": "s", "version": 1, "ipAssignments": granted}


@pytest.fixture
async def nnc(wire: Wire) -> Nnc:
    made = Nnc(wire)
    await made.create([container(FIRST, 4), container(SECOND, 2)], {"requestedIPCount": 6})
    return made


def sound(obj: Dict) -> None:
    """Every entry names fields of a version that exists; the carrying annotation is in none."""
    for manager, operation, version, _, owns in owned(obj):
        assert version in (f"acn.azure.com/{OLD}", f"acn.azure.com/{HUB}"), (manager, operation)
        assert owns, (manager, operation)
        assert not any(CONVERSION in path for path in owns), (manager, owns)


async def all_sound(nnc: Nnc) -> None:
    """The same entries in both versions, and what a version's entries name is there in that version."""
    old, hub = await nnc.read(OLD), await nnc.read(HUB)
    assert owned(old) == owned(hub)
    sound(old)
    for obj in (old, hub):
        mine = [e for e in obj["metadata"]["managedFields"] if e["apiVersion"] == obj["apiVersion"]]
        for entry in mine:
            missing = [path for path in paths(entry["fieldsV1"]) if not exists(obj, path)]
            assert not missing, (entry["manager"], entry["operation"], missing)


def exists(obj: Dict, path: str) -> bool:
    here: Any = obj
    for step in path.split(".f:"):
        name = re.split(r"\.[kv]:|\.\.$", step.removeprefix("f:"))[0]
        if not isinstance(here, dict) or name not in here:
            return False
        here = here[name]
    return True


def managers(obj: Dict, path: str) -> set[tuple[str, str]]:
    """Who owns a field: (manager, version)."""
    return {
        (manager, version.rpartition("/")[2]) for manager, _, version, _, owns in owned(obj) if path in owns
    }


def split(hub: Dict) -> dict[str, int]:
    found: dict[str, int] = hub["spec"]["secondaryIPs"]
    return found


async def test_an_apply_in_v1alpha_owns_the_number_and_no_part_of_the_map(nnc: Nnc) -> None:
    await nnc.apply(OLD, "azure-cns", {"requestedIPCount": 6}, force=True)
    hub = await nnc.read(HUB)
    assert split(hub) == {FIRST: 4, SECOND: 2}
    assert ("azure-cns", OLD) in managers(hub, "f:spec.f:requestedIPCount")
    assert managers(hub, "f:spec.f:secondaryIPs") == set()
    await all_sound(nnc)


async def test_both_versions_own_their_own_field_and_see_each_others_change(nnc: Nnc) -> None:
    await nnc.apply(OLD, "old", {"requestedIPCount": 20}, force=True)
    assert split(await nnc.read(HUB)) == {FIRST: 18, SECOND: 2}
    await nnc.apply(HUB, "new", {"secondaryIPs": {FIRST: 5, SECOND: 9}}, force=True)
    assert (await nnc.read(OLD))["spec"]["requestedIPCount"] == 14
    await all_sound(nnc)


async def test_a_split_of_the_same_sum_is_nobodys_conflict(nnc: Nnc) -> None:
    await nnc.apply(OLD, "old", {"requestedIPCount": 12}, force=True)
    await nnc.apply(HUB, "new", {"secondaryIPs": {FIRST: 6, SECOND: 6}})
    assert split(await nnc.read(HUB)) == {FIRST: 6, SECOND: 6}
    await all_sound(nnc)


async def test_another_sum_is_the_conflict_that_its_writer_caused(nnc: Nnc) -> None:
    await nnc.apply(OLD, "old", {"requestedIPCount": 12}, force=True)
    refused = await nnc.try_apply(HUB, "new", {"secondaryIPs": {FIRST: 6, SECOND: 7}})
    assert refused.code == 409
    causes = refused.body["details"]["causes"]
    assert {cause["reason"] for cause in causes} == {"FieldManagerConflict"}
    assert all('"old"' in cause["message"] for cause in causes)
    assert split(await nnc.read(HUB)) != {FIRST: 6, SECOND: 7}
    await nnc.apply(HUB, "new", {"secondaryIPs": {FIRST: 6, SECOND: 7}}, force=True)
    await all_sound(nnc)


async def test_the_same_manager_in_both_versions_needs_no_force_against_itself(nnc: Nnc) -> None:
    for turn in range(4):
        count = 8 + turn
        await nnc.apply(OLD, "agent", {"requestedIPCount": count}, force=True)
        spread = {FIRST: 1, SECOND: count - 1}
        await nnc.apply(HUB, "agent", {"secondaryIPs": spread})
        assert split(await nnc.read(HUB)) == spread
        again = await nnc.apply(OLD, "agent", {"requestedIPCount": count})
        assert again["spec"]["requestedIPCount"] == count
        assert split(await nnc.read(HUB)) == spread
    await all_sound(nnc)


async def test_what_is_applied_again_changes_nothing(nnc: Nnc) -> None:
    await nnc.apply(OLD, "old", {"requestedIPCount": 9, "ipsNotInUse": [f"{FIRST}-0"]}, force=True)
    hub = await nnc.apply(HUB, "new", {"secondaryIPs": {FIRST: 3, SECOND: 6}, "releasedIPs": [f"{FIRST}-0"]})
    for _ in range(3):
        await nnc.apply(OLD, "old", {"requestedIPCount": 9, "ipsNotInUse": [f"{FIRST}-0"]})
        await nnc.apply(HUB, "new", {"secondaryIPs": {FIRST: 3, SECOND: 6}, "releasedIPs": [f"{FIRST}-0"]})
    now = await nnc.read(HUB)
    assert now["metadata"]["resourceVersion"] == hub["metadata"]["resourceVersion"]
    assert owned(now) == owned(hub)


async def test_what_a_manager_no_longer_applies_goes_and_what_another_has_stays(nnc: Nnc) -> None:
    released = [f"{FIRST}-0", f"{SECOND}-1"]
    await nnc.apply(OLD, "old", {"requestedIPCount": 4, "ipsNotInUse": released}, force=True)
    assert (await nnc.read(HUB))["spec"]["releasedIPs"] == released
    await nnc.apply(OLD, "old", {"requestedIPCount": 4}, force=True)
    assert "releasedIPs" not in (await nnc.read(HUB))["spec"]
    await nnc.apply(OLD, "old", {"requestedIPCount": 4, "ipsNotInUse": released}, force=True)
    await nnc.apply(HUB, "new", {"releasedIPs": released})
    await nnc.apply(OLD, "old", {"requestedIPCount": 4}, force=True)
    assert (await nnc.read(OLD))["spec"]["ipsNotInUse"] == released
    await all_sound(nnc)


async def test_a_number_without_a_network_container_stays_its_managers(wire: Wire) -> None:
    nnc = Nnc(wire)
    await nnc.create()
    await nnc.apply(OLD, "azure-cns", {"requestedIPCount": 16}, force=True)
    hub = await nnc.read(HUB)
    assert "secondaryIPs" not in hub["spec"]
    assert ("azure-cns", OLD) in managers(hub, "f:spec.f:requestedIPCount")
    await nnc.merge(HUB, {"metadata": {"labels": {"seen": "yes"}}}, "new")
    again = await nnc.apply(OLD, "azure-cns", {"requestedIPCount": 16})
    assert again["spec"] == {"requestedIPCount": 16}
    assert (await nnc.read(HUB))["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    await all_sound(nnc)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_managers_of_both_versions_in_any_order_get_what_they_wrote(wire: Wire, seed: int) -> None:
    """A hundred random writes by three managers, two of which speak both versions; see `Model`."""
    dice = random.Random(seed)
    ncs = [FIRST, SECOND, str(uuid.UUID(int=3))][:seed]
    nnc = Nnc(wire)
    await nnc.create([container(nc, dice.randrange(5)) for nc in ncs], {"requestedIPCount": 6})
    model = Model(nnc, dice, ncs)
    for _ in range(100):
        await model.step()


class Model:
    """What must be true after each write, from what was true before it.

    To the API server a name is one applier, in whichever version it applies: what it applied last counts.
    """

    def __init__(self, nnc: Nnc, dice: random.Random, ncs: list[str]) -> None:
        self.nnc, self.dice, self.ncs = nnc, dice, ncs
        self.applied: dict[str, tuple[str, Dict]] = {}  # manager → the version and what it applied last

    async def step(self) -> None:
        before = await self.nnc.read(HUB)
        act = self.dice.choice(
            [self._old, self._old, self._hub, self._hub, self._again, self._label, self._status, self._put]
        )
        await act(before)
        await all_sound(self.nnc)

    def _manager(self) -> str:
        return self.dice.choice(["azure-cns", "subnetes-agent", "somebody"])

    def _released(self, hub: Dict) -> list[str]:
        """Sometimes what is there already, so that managers come to share it."""
        there: list[str] = hub["spec"].get("releasedIPs") or []
        return there if there and self.dice.random() < 0.4 else [f"{self.ncs[0]}-{self.dice.randrange(4)}"]

    async def _old(self, hub: Dict) -> None:
        manager, total = self._manager(), sum(split(hub).values())
        count = self.dice.choice([total, total + 3, max(0, total - 2), self.dice.randrange(30)])
        spec: Dict = {"requestedIPCount": count}
        if self.dice.random() < 0.5:
            spec["ipsNotInUse"] = self._released(hub)
        done = await self.nnc.apply(OLD, manager, spec, force=True)
        self.applied[manager] = OLD, spec
        assert done["spec"]["requestedIPCount"] == count
        await self._lists(hub, manager, spec.get("ipsNotInUse"))
        self._divided(split(hub), split(await self.nnc.read(HUB)), count)

    def _divided(self, before: dict[str, int], after: dict[str, int], count: int) -> None:
        assert sum(after.values()) == count
        if count == sum(before.values()):
            assert after == before
        elif count > sum(before.values()):
            assert {nc: after.get(nc, 0) for nc in self.ncs[1:]} == {
                nc: before.get(nc, 0) for nc in self.ncs[1:]
            }
        else:
            assert all(0 <= after[nc] <= before[nc] for nc in after)

    async def _hub(self, hub: Dict) -> None:
        manager = self._manager()
        named = self.dice.sample(self.ncs, self.dice.randrange(1, len(self.ncs) + 1))
        spec: Dict = {"secondaryIPs": {nc: self.dice.randrange(12) for nc in named}}
        if self.dice.random() < 0.5:
            spec["releasedIPs"] = self._released(hub)
        done = await self.nnc.apply(HUB, manager, spec, force=True)
        self.applied[manager] = HUB, spec
        assert done["spec"]["secondaryIPs"] == spec["secondaryIPs"]
        await self._lists(hub, manager, spec.get("releasedIPs"))
        assert (await self.nnc.read(OLD))["spec"]["requestedIPCount"] == sum(spec["secondaryIPs"].values())

    async def _lists(self, before: Dict, manager: str, written: list[str] | None) -> None:
        """A list that is written is there; one that its only owner no longer applies goes."""
        after = await self.nnc.read(HUB)
        either = managers(before, "f:spec.f:ipsNotInUse") | managers(before, "f:spec.f:releasedIPs")
        if written is None and {name for name, _ in either} == {manager}:
            assert "releasedIPs" not in after["spec"]
        else:
            assert after["spec"].get("releasedIPs") == (written or before["spec"].get("releasedIPs"))

    async def _again(self, before: Dict) -> None:
        """Nobody's business: what stands is applied once more, without force."""
        if not self.applied:
            return
        manager, (version, spec) = self.dice.choice(sorted(self.applied.items()))
        now = (await self.nnc.read(version))["spec"]
        if any(now.get(key) != value for key, value in spec.items()):
            return  # somebody changed it since: that would be a conflict, and a deserved one
        await self.nnc.apply(version, manager, spec)
        after = await self.nnc.read(HUB)
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])
        stands = await self.nnc.apply(version, manager, spec)
        assert stands["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]

    async def _label(self, before: Dict) -> None:
        version = self.dice.choice([OLD, HUB])
        label = {"metadata": {"labels": {"x": str(self.dice.randrange(5))}}}
        await self.nnc.merge(version, label, "labeller")
        after = await self.nnc.read(HUB)
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])

    async def _status(self, before: Dict) -> None:
        """The control plane of either version grants, and the request stays what it is."""
        version = self.dice.choice([OLD, HUB])
        read = await self.nnc.read(version)
        containers = read["status"]["networkContainers"]
        containers[0]["version"] = containers[0].get("version", 0) + 1
        await self.nnc.merge(version, {"status": {"networkContainers": containers}}, "granter", "/status")
        after = await self.nnc.read(HUB)
        assert after["spec"] == before["spec"]
        assert after["metadata"].get("generation") == before["metadata"].get("generation")

    async def _put(self, before: Dict) -> None:
        """Somebody writes back what was read, in either version: nothing changes."""
        version = self.dice.choice([OLD, HUB])
        read = await self.nnc.read(version)
        written = await self.nnc.put(version, read)
        assert written["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
