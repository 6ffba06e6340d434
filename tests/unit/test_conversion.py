"""NodeNetworkConfig between its two versions: each case of docs/conversion.md, by name."""

import copy
import json
from typing import Any

import pytest

from subnetes.api.carrying import carried_count, carried_scaler
from subnetes.api.conversion import HUB, OLD, ConversionError, convert
from subnetes.api.names import CONVERSION, SCALER
from subnetes.api.nodenetworkconfig_v1alpha import Scaler

Dict = dict[str, Any]
DEEP: Any = None
for _ in range(5000):
    DEEP = [DEEP]
SHOWN = '{"batchSize":16,"maxIPCount":250,"releaseThresholdPercent":150,"requestThresholdPercent":50}'


def old(spec: Dict | None = None, status: Dict | None = None, **annotations: str) -> Dict:
    return _nnc(OLD, spec, status, annotations)


def hub(spec: Dict | None = None, status: Dict | None = None, **annotations: str) -> Dict:
    return _nnc(HUB, spec, status, annotations)


def _nnc(version: str, spec: Dict | None, status: Dict | None, annotations: Dict) -> Dict:
    metadata: Dict = {"name": "n1", "namespace": "kube-system", "uid": "u1", "generation": 3}
    if annotations:
        metadata["annotations"] = annotations
    made: Dict = {"apiVersion": version, "kind": "NodeNetworkConfig", "metadata": metadata}
    return made | ({} if spec is None else {"spec": spec}) | ({} if status is None else {"status": status})


def old_nc(name: str, *ips: str, **more: Any) -> Dict:
    return {"id": name, "ipAssignments": [{"name": each, "ip": f"10.0.0.{each[1:]}"} for each in ips], **more}


def hub_nc(name: str, *ips: str, **more: Any) -> Dict:
    addresses = [{"id": each, "address": f"10.0.0.{each[1:]}"} for each in ips]
    return {"id": name, "secondaryIPCount": len(ips), "secondaryIPs": addresses, **more}


def carried(obj: Dict) -> Dict:
    text = obj["metadata"].get("annotations", {}).get(CONVERSION, "{}")
    found: Dict = json.loads(text)
    return found


def up(obj: Dict) -> Dict:
    return convert(obj, HUB)


def down(obj: Dict) -> Dict:
    return convert(obj, OLD)


def bare(obj: Dict) -> Dict:
    """Without the annotation that carries."""
    rest = copy.deepcopy(obj)
    annotations = rest["metadata"].get("annotations", {})
    annotations.pop(CONVERSION, None)
    if not annotations:
        rest["metadata"].pop("annotations", None)
    return rest


def test_the_seeds_example_goes_up_and_comes_down() -> None:
    same = {
        "assignmentMode": "dynamic",
        "defaultGateway": "10.241.0.1",
        "id": "abc-nc-123-guid",
        "nodeIP": "10.240.0.5",
        "primaryIP": "10.241.0.38",
        "resourceGroupID": "rg-id",
        "subcriptionID": "abc-sub-123-guid",
        "subnetAddressSpace": "10.241.0.0/16",
        "subnetName": "podnet",
        "type": "vnet",
        "version": 49,
        "vnetID": "vnet-id",
    }
    before = old(
        {"requestedIPCount": 16, "ipsNotInUse": ["abc-ip-123-guid"]},
        {
            "assignedIPCount": 1,
            "networkContainers": [
                same
                | {"subnetID": "podnet", "ipAssignments": [{"ip": "10.241.0.2", "name": "abc-ip-123-guid"}]}
            ],
            "scaler": json.loads(SHOWN),
            "status": "Updating",
        },
        **{SCALER: SHOWN},
    )
    after = hub(
        {"releasedIPs": ["abc-ip-123-guid"], "secondaryIPs": {"abc-nc-123-guid": 16}},
        {
            "networkContainers": [
                same
                | {
                    "secondaryIPCount": 1,
                    "secondaryIPs": [{"address": "10.241.0.2", "id": "abc-ip-123-guid"}],
                }
            ],
            "status": "Updating",
        },
        **{SCALER: SHOWN},
    )
    assert up(before) == after
    assert bare(down(after)) == before


def test_fields_that_the_seed_does_not_show_are_the_same_in_both() -> None:
    more = {"primaryIPV6": "fd00::2", "defaultGatewayV6": "fd00::1", "subnetAddressSpaceV6": "fd00::/64"}
    more |= {"macAddress": "00:11:22:33:44:55", "status": "NCUpdateSubnetFullError"}
    before = old({"availabilityZone": 2}, {"networkContainers": [old_nc("nc", **more)]})
    shown = up(before)
    assert shown["spec"] == {"availabilityZone": 2}
    assert shown["status"]["networkContainers"][0] == hub_nc("nc", **more)
    assert bare(down(shown)) == before


class TestCount:
    """One number for several network containers."""

    def test_without_a_network_container_it_is_carried_and_comes_back(self) -> None:
        shown = up(old({"requestedIPCount": 16}))
        assert shown["spec"] == {}
        assert carried(shown) == {"requestedIPCount": 16}
        assert carried_count(shown["metadata"]["annotations"]) == 16
        assert down(shown) == old({"requestedIPCount": 16})

    def test_it_goes_to_the_network_container_that_appears_with_the_next_old_write(self) -> None:
        waiting = up(old({"requestedIPCount": 16}))
        granted = down(waiting | {"status": {"networkContainers": [hub_nc("nc")]}})
        assert granted["spec"] == {"requestedIPCount": 16}
        resolved = up(granted)
        assert resolved["spec"] == {"secondaryIPs": {"nc": 16}}
        assert carried(resolved) == {}

    def test_what_the_hub_says_wins_over_a_carried_count_even_if_it_is_empty(self) -> None:
        waiting = up(old({"requestedIPCount": 16}))
        shown = down(waiting | {"spec": {"secondaryIPs": {}}})
        assert shown["spec"] == {"requestedIPCount": 0}
        assert up(shown)["spec"] == {"secondaryIPs": {}}

    def test_with_one_network_container_it_is_its_target(self) -> None:
        before = old({"requestedIPCount": 32}, {"networkContainers": [old_nc("nc", "i1")]})
        assert up(before)["spec"] == {"secondaryIPs": {"nc": 32}}

    def test_written_back_it_changes_nothing(self) -> None:
        targets = {"b": 7, "a": 16, "gone": 3}
        shown = down(hub({"secondaryIPs": targets}, {"networkContainers": [hub_nc("a"), hub_nc("b")]}))
        assert shown["spec"] == {"requestedIPCount": 26}
        assert up(shown)["spec"] == {"secondaryIPs": targets}

    def test_without_known_targets_what_each_has_is_the_base(self) -> None:
        containers = [old_nc("a", "i1", "i2"), old_nc("b", "i3")]
        for count, targets in ((3, {"a": 2, "b": 1}), (10, {"a": 9, "b": 1}), (1, {"a": 0, "b": 1})):
            before = old({"requestedIPCount": count}, {"networkContainers": containers})
            assert up(before)["spec"]["secondaryIPs"] == targets

    @pytest.mark.parametrize(
        ("count", "targets"),
        [
            (40, {"a": 24, "b": 16}),  # more goes to the first
            (24, {"a": 8, "b": 16}),  # less comes from the first,
            (8, {"a": 0, "b": 8}),  # then from the next,
            (0, {"a": 0, "b": 0}),  # none below 0
        ],
    )
    def test_a_difference_goes_to_the_first_then_to_the_next(self, count: int, targets: Dict) -> None:
        a, b = (hub_nc(nc, *(f"{nc}{n}" for n in range(16))) for nc in "ab")
        shown = down(hub({"secondaryIPs": {"a": 16, "b": 16}}, {"networkContainers": [a, b]}))
        shown["spec"]["requestedIPCount"] = count
        assert up(shown)["spec"]["secondaryIPs"] == targets

    def test_less_comes_first_from_where_ips_are_let_go(self) -> None:
        a, b = hub_nc("a", "i1", "i2"), hub_nc("b", "i3", "i4")
        shown = down(hub({"secondaryIPs": {"a": 2, "b": 2}}, {"networkContainers": [a, b]}))
        shown["spec"] |= {"requestedIPCount": 2, "ipsNotInUse": ["i3", "i4"]}
        assert up(shown)["spec"] == {"secondaryIPs": {"a": 2, "b": 0}, "releasedIPs": ["i3", "i4"]}

    def test_less_comes_first_from_what_was_not_granted(self) -> None:
        a, b = hub_nc("a", "i1", "i2"), hub_nc("b", "i3")
        shown = down(hub({"secondaryIPs": {"a": 2, "b": 5}}, {"networkContainers": [a, b]}))
        shown["spec"]["requestedIPCount"] = 4
        assert up(shown)["spec"]["secondaryIPs"] == {"a": 2, "b": 2}

    def test_a_new_number_leaves_out_network_containers_that_are_gone(self) -> None:
        shown = down(hub({"secondaryIPs": {"gone": 16}}, {"networkContainers": [hub_nc("new")]}))
        shown["spec"]["requestedIPCount"] = 20
        assert up(shown)["spec"]["secondaryIPs"] == {"new": 20}

    def test_no_number_is_no_request(self) -> None:
        shown = down(hub({"secondaryIPs": {"a": 5}}, {"networkContainers": [hub_nc("a")]}))
        del shown["spec"]["requestedIPCount"]
        assert up(shown)["spec"] == {}


class TestScaler:
    def test_readers_of_v1alpha_see_the_values_that_the_controller_wrote(self) -> None:
        assert down(hub({}, {"status": "Updated"}, **{SCALER: SHOWN}))["status"]["scaler"] == json.loads(
            SHOWN
        )

    def test_values_of_an_old_control_plane_are_carried(self) -> None:
        before = old({}, {"scaler": {"batchSize": 8}})
        shown = up(before)
        assert "scaler" not in shown["status"]
        assert carried_scaler(shown["metadata"]["annotations"]) == Scaler(batch_size=8)
        assert down(shown) == before

    def test_and_are_out_of_date_once_the_controller_wrote_its_own(self) -> None:
        shown = up(old({}, {"scaler": {"batchSize": 8}}))
        shown["metadata"]["annotations"][SCALER] = SHOWN
        assert carried_scaler(shown["metadata"]["annotations"]) is None
        assert down(shown)["status"]["scaler"] == json.loads(SHOWN)

    def test_a_late_status_write_of_an_old_client_is_shown_to_it_until_the_controller_writes(self) -> None:
        late = old({}, {"scaler": {"batchSize": 99}}, **{SCALER: SHOWN})
        shown = up(late)
        assert bare(down(shown)) == late
        shown["metadata"]["annotations"][SCALER] = SHOWN.replace("16", "32")
        assert down(shown)["status"]["scaler"]["batchSize"] == 32


def test_assigned_is_the_sum_and_carried_where_it_is_not() -> None:
    containers = [old_nc("a", "i1", "i2"), old_nc("b", "i3")]
    right, wrong, none = (
        old({}, {"networkContainers": containers} | said)
        for said in ({"assignedIPCount": 3}, {"assignedIPCount": 1}, {})
    )
    for each in (right, wrong, none):
        assert bare(down(up(each))) == each
    assert carried(up(right)) == {}
    stale = up(wrong)
    stale["status"]["networkContainers"].pop()
    stale["status"]["networkContainers"][0]["secondaryIPCount"] = 2
    assert down(stale)["status"]["assignedIPCount"] == 2


def test_subnet_id_is_the_subnets_name_and_carried_by_network_container_where_it_is_not() -> None:
    containers = [old_nc("a", subnetName="s", subnetID="s"), old_nc("b", subnetName="s", subnetID="other")]
    shown = up(old({}, {"networkContainers": containers}))
    assert carried(shown)["subnetIDs"] == {"b": {"beside": "s", "value": "other"}}
    shown["status"]["networkContainers"].reverse()
    assert [each["subnetID"] for each in down(shown)["status"]["networkContainers"]] == ["other", "s"]
    shown["status"]["networkContainers"][0]["subnetName"] = "renamed"
    assert down(shown)["status"]["networkContainers"][0]["subnetID"] == "renamed"


def test_a_count_that_is_not_the_number_of_addresses_survives_v1alpha() -> None:
    before = hub({}, {"networkContainers": [hub_nc("a", "i1") | {"secondaryIPCount": 9}]})
    assert up(down(before)) == before
    assert down(before)["status"]["assignedIPCount"] == 9


def test_network_containers_without_ids_or_with_the_same_are_told_apart() -> None:
    ids = ("", "", "a", "a#2", "a", "a")
    containers = [{"id": each, "subnetID": str(number)} for number, each in enumerate(ids)]
    before = old({}, {"networkContainers": containers})
    assert bare(down(up(before))) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"secondaryIPs": {"a": -1}}',
        '{"scaler": {"value": {"batchSize": "x"}}}',
        "\ud800",
    ],
)
def test_what_others_write_into_the_annotation_is_nothing(text: str) -> None:
    before = hub({"secondaryIPs": {"a": 1}}, {}, **{CONVERSION: text, "other": "stays"})
    shown = down(before)
    assert shown["spec"] == {"requestedIPCount": 1}
    assert up(shown)["metadata"]["annotations"] == {"other": "stays"}


def test_what_one_node_asks_for_can_always_be_shown() -> None:
    """One object that could not be would keep an API server from listing all the others."""
    most = 2**63 - 1
    container = hub_nc("a") | {"secondaryIPCount": most}
    before = hub(
        {"secondaryIPs": {"a": most, "b": most}}, {"networkContainers": [container, container | {"id": "b"}]}
    )
    shown = down(before)
    assert (shown["spec"]["requestedIPCount"], shown["status"]["assignedIPCount"]) == (most, most)
    assert up(shown) == before
    shown["spec"]["requestedIPCount"] = 3
    assert up(shown)["spec"] == {"secondaryIPs": {"a": 0, "b": 3}}


@pytest.mark.parametrize(
    "text", ['{"batchSize": 99999999999999999999}', "[" * 5000, '{"batchSize": "x"}', "?"]
)
def test_scaling_values_that_are_none_are_not_shown(text: str) -> None:
    assert down(hub({}, {"status": "Updated"}, **{SCALER: text}))["status"] == {"status": "Updated"}


def test_less_than_nothing_is_nothing() -> None:
    assert up(old({"requestedIPCount": -5}, {"networkContainers": [old_nc("a")]}))["spec"] == {
        "secondaryIPs": {"a": 0}
    }


def test_the_same_version_is_the_same_object_and_nothing_is_changed_in_place() -> None:
    before = hub({"secondaryIPs": {"a": 1}}, {"networkContainers": [hub_nc("a", "i1")]}, **{SCALER: SHOWN})
    again = copy.deepcopy(before)
    assert convert(before, HUB) == again
    convert(convert(before, OLD), HUB)
    assert before == again


def test_a_null_is_an_absent_field() -> None:
    """The API server shows such objects to a webhook in the midst of an apply."""
    containers = [old_nc("a", "i1"), {"id": "b", "ipAssignments": None, "subnetName": None}]
    before = old({"requestedIPCount": None, "ipsNotInUse": None}, {"networkContainers": containers})
    shown = up(before)
    assert shown["spec"] == {"releasedIPs": None}
    assert down(hub({"secondaryIPs": {"a": None, "b": 2}}))["spec"] == {"requestedIPCount": 2}
    assert [each["id"] for each in shown["status"]["networkContainers"]] == ["a", "b"]
    assert up(old() | {"spec": None, "status": None}) == hub() | {"spec": None, "status": None}
    assert down(hub() | {"spec": None, "status": None}) == old() | {"spec": None, "status": None}


@pytest.mark.parametrize(
    ("obj", "target", "why"),
    [
        ("text", HUB, "it is no object"),
        (old() | {"kind": "Pod"}, HUB, "Pod of acn.azure.com/v1alpha is not known"),
        (old() | {"apiVersion": "acn.azure.com/v9"}, HUB, "acn.azure.com/v9 is not known"),
        (old(), "acn.azure.com/v9", "there is no version acn.azure.com/v9"),
        (old() | {"metadata": 5}, HUB, "it has no metadata"),
        (old() | {"metadata": {"annotations": {"a": 1}}}, HUB, "annotations is not a map of texts"),
        (old() | {"apiVersion": [OLD]}, HUB, "is not known"),
        (
            old({"requestedIPCount": 1.5}),
            HUB,
            "Expected `int | null`, got `float` - at `spec.requestedIPCount`",
        ),
        (old({"ipsNotInUse": "all"}), HUB, "Expected `array | null`, got `str` - at `spec.ipsNotInUse`"),
        (hub({"secondaryIPs": {"a": "1"}}), OLD, "Expected `int`, got `str` - at `spec.secondaryIPs[...]`"),
        (hub({"releasedIPs": [1]}), OLD, "Expected `str`, got `int` - at `spec.releasedIPs[0]`"),
        (hub({}, {"networkContainers": [5]}), OLD, "Expected `object`, got `int`"),
        (hub({"x": DEEP, "releasedIPs": [1]}), OLD, "spec is nested too deeply"),
        (hub() | {"spec": []}, OLD, "Expected `object`, got `array` - at `spec`"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_reason(obj: Any, target: str, why: str) -> None:
    with pytest.raises(ConversionError) as refused:
        convert(obj, target)
    assert why in str(refused.value)
