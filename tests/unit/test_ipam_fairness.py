"""Who gets the last IPs of a subnet."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from subnetes.ipam.fairness import Waiting, order, share

WAITING = st.lists(
    st.builds(Waiting, st.uuids().map(str), st.integers(0, 9), st.integers(0, 20), st.booleans()), max_size=8
)


@pytest.mark.parametrize(
    ("free", "asks", "older", "gets"),
    [
        (20, 16, [], 16),
        (5, 16, [], 5),
        (0, 16, [], 0),
        (5, 0, [], 0),
        (20, 16, [8], 12),
        (20, 16, [8, 8], 4),
        (20, 16, [30], 0),
    ],
)
def test_a_grant_may_be_partial_and_keeps_back_what_older_requests_want(
    free: int, asks: int, older: list[int], gets: int
) -> None:
    assert share(free, asks, [Waiting(f"nc-{i}", i, wants) for i, wants in enumerate(older)]) == gets


def test_primaries_first_then_the_oldest_then_by_id() -> None:
    old, older = Waiting("b", 2.0, 4), Waiting("z", 1.0, 4)
    twin = Waiting("a", 2.0, 4)
    primary = Waiting("node-9", 3.0, 1, primary=True)
    assert order([old, primary, older, twin]) == [primary, older, twin, old]


@given(st.integers(0, 60), WAITING)
@settings(deadline=None)
def test_served_in_any_order_the_free_ips_go_to_the_oldest(free: int, waiting: list[Waiting]) -> None:
    """Each asks once, whoever comes first: what each gets is what serving them one after the other gives."""
    queue, left = order(waiting), free
    for place, one in enumerate(queue):
        expected = min(one.wants, left)
        assert share(free, one.wants, queue[:place]) == expected
        left -= expected
