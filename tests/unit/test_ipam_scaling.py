"""The pool's target: the rule of the design by examples, and what must hold for all numbers."""

from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from subnetes.ipam.scaling import DEFAULT, EXHAUSTED, InvalidScaler, Need, Scaler, target, targets

SCALERS = st.builds(
    Scaler.of, st.integers(1, 300), st.decimals(0, 10, places=3, allow_nan=False, allow_infinity=False)
)
COUNTS = st.integers(0, 1000)
NEEDS = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(Need, st.integers(0, 300), st.integers(0, 120), SCALERS, st.booleans()),
    max_size=4,
)


@pytest.mark.parametrize(
    ("batch", "buffer", "demand", "secondary"),
    [
        (16, "0.5", 0, 15),
        (16, "0.5", 8, 15),  # 8 + 8 = 16, the primary included
        (16, "0.5", 9, 31),
        (16, "0.5", 24, 31),
        (16, "0.5", 110, 127),
        (16, 0, 15, 15),
        (16, 0, 16, 31),  # a multiple less the primary would be short
        (16, 0, 0, 15),
        (1, 0, 7, 7),
        (1, 1, 0, 0),
        (1, 1, 7, 7),
        (10, 0.1, 9, 9),
        (10, "0.1", 10, 19),
        (10, 0.7, 3, 9),  # 0.7 + 3/10 is 1 exactly; in binary a little more or less
        (3, "0.1", 0, 2),
        (250, 10, 1, 2749),
    ],
)
def test_the_target_by_examples(batch: int, buffer: str | float, demand: int, secondary: int) -> None:
    assert target(Scaler.of(batch, buffer), demand) == secondary


@pytest.mark.parametrize("tenths", range(11))
def test_tenths_of_a_batch_of_ten_are_exact(tenths: int) -> None:
    """With batch 10, tenths of buffer and the rest as demand make one batch, never two."""
    assert target(Scaler.of(10, tenths / 10), 10 - tenths if tenths else 9) == 9


def test_a_buffer_is_the_decimal_that_was_written() -> None:
    tenth = Scaler(16, Fraction(1, 10))
    assert Scaler.of(16, 0.1) == Scaler.of(16, "0.1") == Scaler.of(16, Decimal("0.1")) == tenth
    assert Scaler.of(16, 1e-7).buffer == Fraction(1, 10_000_000)


@pytest.mark.parametrize(
    ("batch", "buffer", "says"),
    [
        (0, 1, "at least 1 IP, not 0"),
        (-1, 1, "at least 1 IP, not -1"),
        (16, -1, "at least 0 batches, not -1"),
        (16, float("nan"), "nan is no number"),
        (16, float("inf"), "inf is no number"),
        (16, "much", "'much' is no number"),
    ],
)
def test_a_scaler_that_cannot_scale_is_refused(batch: int, buffer: float | str, says: str) -> None:
    with pytest.raises(InvalidScaler, match=says):
        Scaler.of(batch, buffer)


@given(SCALERS, COUNTS)
@settings(deadline=None)
def test_with_the_primary_a_multiple_of_the_batch_and_never_below_demand(scaler: Scaler, demand: int) -> None:
    secondary = target(scaler, demand)
    assert (secondary + 1) % scaler.batch == 0
    assert secondary >= demand
    assert secondary + 1 >= scaler.buffer * scaler.batch + demand
    assert secondary + 1 - 2 * scaler.batch < scaler.buffer * scaler.batch + demand  # and no more than needed


@given(SCALERS, COUNTS, COUNTS)
@settings(deadline=None)
def test_more_demand_never_means_a_lower_target(scaler: Scaler, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert target(scaler, low) <= target(scaler, high)


@given(COUNTS)
@settings(deadline=None)
def test_exhausted_is_exactly_the_demand(demand: int) -> None:
    assert target(EXHAUSTED, demand) == demand


@given(NEEDS, st.integers(0, 600))
@settings(deadline=None)
def test_the_node_s_maximum_holds_over_all_its_containers(needs: dict[str, Need], maximum: int) -> None:
    given_ = targets(needs, maximum)
    assert given_.keys() == needs.keys()
    assert sum(given_.values()) <= max(maximum, sum(need.assigned for need in needs.values()))
    for name, need in needs.items():
        assert given_[name] >= need.assigned


@given(NEEDS, st.integers(0, 600))
@settings(deadline=None)
def test_nothing_is_clamped_that_fits(needs: dict[str, Need], maximum: int) -> None:
    wants = {
        name: need.assigned if need.draining else max(target(need.scaler, need.demand), need.assigned)
        for name, need in needs.items()
    }
    given_ = targets(needs, maximum)
    if sum(wants.values()) <= maximum:
        assert given_ == wants
    elif sum(need.assigned for need in needs.values()) <= maximum:
        assert sum(given_.values()) == maximum


@given(NEEDS, st.integers(0, 600))
@settings(deadline=None)
def test_demand_is_met_before_buffers(needs: dict[str, Need], maximum: int) -> None:
    given_ = targets(needs, maximum)
    serving = {name: need for name, need in needs.items() if not need.draining}
    short = [name for name, need in serving.items() if given_[name] < need.demand]
    buffered = [name for name, need in serving.items() if given_[name] > max(need.demand, need.assigned)]
    assert not (short and buffered)


@given(NEEDS, st.integers(0, 600))
@settings(deadline=None)
def test_the_target_does_not_depend_on_the_one_before(needs: dict[str, Need], maximum: int) -> None:
    """Once all that was asked for is held and assigned as far as there is demand, the same is asked for."""
    first = targets(needs, maximum)
    settled = {
        name: Need(need.demand, max(need.assigned, min(need.demand, first[name])), need.scaler, False)
        for name, need in needs.items()
        if not need.draining
    }
    settled |= {name: need for name, need in needs.items() if need.draining}
    assert targets(settled, maximum) == first


@given(NEEDS, st.integers(0, 600), st.data())
@settings(deadline=None)
def test_more_demand_never_lowers_a_container_s_own_target(
    needs: dict[str, Need], maximum: int, data: st.DataObject
) -> None:
    if not needs:
        return
    name = data.draw(st.sampled_from(sorted(needs)))
    need = needs[name]
    more = Need(need.demand + data.draw(st.integers(1, 50)), need.assigned, need.scaler, need.draining)
    assert targets({**needs, name: more}, maximum)[name] >= targets(needs, maximum)[name]


def test_both_families_of_a_full_node_get_the_same() -> None:
    need = Need(200, 0, DEFAULT)
    assert targets({"v4": need, "v6": need}, 250) == {"v4": 125, "v6": 125}


def test_a_draining_container_keeps_what_is_assigned_and_no_more() -> None:
    assert targets({"old": Need(0, 7, DEFAULT, draining=True), "new": Need(9, 0, DEFAULT)}, 250) == {
        "old": 7,
        "new": 31,
    }


def test_what_is_assigned_stays_above_the_maximum() -> None:
    assert targets({"nc": Need(30, 20, DEFAULT)}, 10) == {"nc": 20}
    assert targets({"nc": Need(300, 20, DEFAULT)}, 250) == {"nc": 250}
