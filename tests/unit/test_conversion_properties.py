"""Conversion of arbitrary valid NodeNetworkConfigs: nothing is lost, and one edit changes one thing."""

import copy
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from subnetes.api.conversion import HUB, OLD, convert
from subnetes.api.names import SCALER
from subnetes.api.splitting import Holding, split, total
from tests.unit.test_conversion import SHOWN, Dict, bare, down, hub, old, up

FEW = st.integers(0, 300)
COUNTS = FEW | st.just(2**63 - 1)
WORDS = st.sampled_from(["", "a", "b", "c", "podnet", "10.0.0.1", "Ω"])
IDS = st.sampled_from(["i1", "i2", "i3", "i4", "i5", "i6"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Dict]:
    """Each field may be absent."""
    return st.fixed_dictionaries({}, optional=fields)


PLACES = ("id", "nodeIP", "primaryIP", "primaryIPV6", "macAddress", "defaultGateway", "defaultGatewayV6")
SUBNETS = ("subnetName", "subnetAddressSpace", "subnetAddressSpaceV6", "subcriptionID", "vnetID")
SAME = dict.fromkeys((*PLACES, *SUBNETS, "assignmentMode", "status", "type"), WORDS)
OLD_NC = some(
    **SAME, version=COUNTS, subnetID=WORDS, ipAssignments=st.lists(some(name=IDS, ip=WORDS), max_size=4)
)
HUB_NC = some(
    **SAME,
    version=COUNTS,
    secondaryIPCount=COUNTS,
    secondaryIPs=st.lists(some(id=IDS, address=WORDS), max_size=4),
)
STATES = st.sampled_from(["Updating", "Updated", "Error"])
SCALERS = some(batchSize=COUNTS, maxIPCount=COUNTS, requestThresholdPercent=COUNTS)
OLD_SPEC = some(availabilityZone=COUNTS, requestedIPCount=COUNTS, ipsNotInUse=st.lists(IDS, max_size=4))
OLD_STATUS = some(
    assignedIPCount=COUNTS, networkContainers=st.lists(OLD_NC, max_size=3), scaler=SCALERS, status=STATES
)
HUB_SPEC = some(
    availabilityZone=COUNTS,
    secondaryIPs=st.dictionaries(WORDS, COUNTS, max_size=3),
    releasedIPs=st.lists(IDS, max_size=4),
)
HUB_STATUS = some(networkContainers=st.lists(HUB_NC, max_size=3), status=STATES)
ANNOTATIONS = st.fixed_dictionaries({}, optional={"mine": WORDS, SCALER: st.sampled_from([SHOWN, "{}", "?"])})


def objects(version: str, spec: st.SearchStrategy[Dict], status: st.SearchStrategy[Dict]) -> Any:
    make = old if version == OLD else hub
    return st.builds(
        lambda spec, status, annotations: make(spec, status, **annotations),
        st.none() | spec,
        st.none() | status,
        ANNOTATIONS,
    )


OLDS = objects(OLD, OLD_SPEC, OLD_STATUS)
HUBS = objects(HUB, HUB_SPEC, HUB_STATUS)
WHOLE = st.builds(hub, HUB_SPEC, HUB_STATUS)
patient = settings(deadline=None)  # other work on the machine is no failure


@patient
@given(OLDS)
def test_down_of_up_is_what_it_was(before: Dict) -> None:
    assert bare(down(up(before))) == before


@patient
@given(HUBS)
def test_up_of_down_is_what_it_was(before: Dict) -> None:
    assert up(down(before)) == before


@patient
@given(OLDS)
def test_what_is_carried_settles_at_once(before: Dict) -> None:
    """Or an apply that changes nothing would write each time."""
    stored = up(before)
    assert up(down(stored)) == stored
    assert down(up(down(stored))) == down(stored)


@patient
@given(OLDS, st.data())
def test_an_old_edit_of_the_count_changes_the_targets_alone(before: Dict, data: st.DataObject) -> None:
    stored = up(before)
    seen = down(stored)
    count = data.draw(COUNTS)
    seen["spec"] = seen.get("spec", {}) | {"requestedIPCount": count}
    edited = up(seen)
    assert down(edited)["spec"]["requestedIPCount"] == count
    for obj in (edited, stored):
        obj.setdefault("spec", {}).pop("secondaryIPs", None)
    assert bare(edited) == bare(stored)


@patient
@given(WHOLE, st.data())
def test_an_old_edit_of_anything_else_leaves_the_targets(before: Dict, data: st.DataObject) -> None:
    seen = copy.deepcopy(down(before))
    spec, status = seen["spec"], seen["status"]
    part, field, value = data.draw(
        st.sampled_from(
            [
                (spec, "availabilityZone", 3),
                (spec, "ipsNotInUse", ["i1", "i6"]),
                (status, "status", "Error"),
                (status, "assignedIPCount", 77),
                (status, "networkContainers", []),
            ]
        )
    )
    part[field] = value
    assert up(seen)["spec"].get("secondaryIPs") == before["spec"].get("secondaryIPs")


@patient
@given(WHOLE, st.sampled_from(["availabilityZone", "secondaryIPs", "releasedIPs"]), st.data())
def test_a_new_edit_of_the_spec_changes_one_old_field(before: Dict, field: str, data: st.DataObject) -> None:
    values = {
        "availabilityZone": COUNTS,
        "releasedIPs": st.lists(IDS),
        "secondaryIPs": st.dictionaries(WORDS, COUNTS),
    }
    edited = copy.deepcopy(before)
    edited["spec"][field] = data.draw(values[field])
    shown = {"secondaryIPs": "requestedIPCount", "releasedIPs": "ipsNotInUse"}.get(field, field)
    one, other = bare(down(before)), bare(down(edited))
    for obj in (one, other):
        obj["spec"].pop(shown, None)
    assert one == other


@patient
@given(HUBS | OLDS)
def test_metadata_is_the_same_but_for_one_annotation(before: Dict) -> None:
    after = convert(before, OLD if before["apiVersion"] == HUB else HUB)
    assert bare(after)["metadata"] == before["metadata"]


HOLDINGS = st.lists(st.builds(Holding, st.sampled_from("abc"), st.lists(IDS, unique=True)), max_size=3)
KNOWN = st.none() | st.dictionaries(st.sampled_from("abcd"), COUNTS)


@patient
@given(COUNTS, KNOWN, HOLDINGS, st.lists(IDS))
def test_a_split_adds_up_and_nothing_is_below_0(
    count: int, known: dict[str, int] | None, holdings: list[Holding], released: list[str]
) -> None:
    found = split(count, known, holdings, released)
    if found is None:
        assert not known
        assert not holdings
    else:
        assert total(found.values()) == count
        assert min(found.values(), default=0) >= 0


@patient
@given(FEW, FEW, st.none() | st.dictionaries(st.sampled_from("abcd"), FEW), HOLDINGS)
@example(0, 1, {}, [])
def test_more_takes_from_no_network_container_that_is_there(
    count: int, more: int, known: dict[str, int] | None, holdings: list[Holding]
) -> None:
    found = split(count, known, holdings, [])
    assume(found is not None)
    assert found is not None
    after = split(count + more, found, holdings, [])
    if after is None:
        assert not found
        assert not holdings, "there is one to ask"
        return
    there = {each.id for each in holdings} or found.keys()
    assert all(after.get(nc, 0) >= target for nc, target in found.items() if nc in there)
