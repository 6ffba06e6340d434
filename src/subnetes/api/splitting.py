"""One number of IPs (v1alpha) for several network containers (the hub): pure.

An old client that writes back what it read changes nothing; one that wants more or less gets it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

LARGEST = 2**63 - 1  # that every reader of JSON has a number for


@dataclass(frozen=True, slots=True)
class Holding:
    """A network container and the ids of the IPs that it has."""

    id: str
    assigned: Collection[str]


def split(
    count: int, known: Mapping[str, int] | None, holdings: Sequence[Holding], released: Collection[str]
) -> dict[str, int] | None:
    """The targets that add up to `count`; None: there is no network container to ask for it.

    `known` are the targets that the number was the sum of. If it still is, they stand. Otherwise those of
    network containers that are gone are left out, and the difference is made where `_less` and `_more` say.
    Where no targets are known, what each network container has is what it is taken to have asked for.
    """
    if known is not None and total(known.values()) == count:
        return dict(known)
    present = {each.id: len(each.assigned) for each in reversed(holdings) if each.id}
    if not present and not known:
        return None
    targets = dict(known if known is not None else present)
    if present:
        targets = {nc: target for nc, target in targets.items() if nc in present}
    order = [
        *dict.fromkeys(each.id for each in holdings if each.id),
        *sorted(targets.keys() - present.keys()),
    ]
    missing = count - sum(targets.values())
    if missing >= 0:
        return _more(targets, order[0], missing)
    return _less(targets, order, -missing, _spare(targets, holdings, set(released)))


def total(counts: Iterable[int]) -> int:
    """The sum, or the largest number that can be said: no object may be one that cannot be shown."""
    return min(sum(counts), LARGEST)


def _more(targets: dict[str, int], first: str, missing: int) -> dict[str, int]:
    return targets | {first: targets.get(first, 0) + missing} if missing else targets


def _less(targets: dict[str, int], order: list[str], over: int, spare: dict[str, int]) -> dict[str, int]:
    """First where IPs are let go, for it is these that the number went down by; then in order."""
    left = dict(targets)
    for limit in (spare, targets):
        for nc in order:
            taken = min(over, limit.get(nc, 0), left.get(nc, 0))
            if taken:
                left[nc] -= taken
                over -= taken
    return left


def _spare(targets: dict[str, int], holdings: Sequence[Holding], released: set[str]) -> dict[str, int]:
    """By how much each target is above what its network container keeps."""
    keeps = {each.id: len(each.assigned) - len(released.intersection(each.assigned)) for each in holdings}
    return {nc: max(0, target - keeps.get(nc, 0)) for nc, target in targets.items()}
