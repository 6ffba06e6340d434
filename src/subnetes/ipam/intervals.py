"""Sets of whole numbers that come in runs: what an address space never gives, which of its pages are full.

Kept as sorted, disjoint, never touching runs, both ends included, so that a question costs one bisection,
however long the runs are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Run = tuple[int, int]


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same numbers in as few runs as possible."""
    result: list[Run] = []
    for first, last in sorted(runs):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


class Intervals:
    """A set of numbers; `runs` must be merged."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        runs = tuple(runs)
        self._firsts = [first for first, _ in runs]
        self._lasts = [last for _, last in runs]

    def run_of(self, number: int) -> Run | None:
        """The run that holds the number."""
        at = bisect_right(self._firsts, number) - 1
        return (self._firsts[at], self._lasts[at]) if at >= 0 and number <= self._lasts[at] else None

    def first_beyond(self, number: int) -> int:
        """The lowest number from this one on that is not in the set."""
        run = self.run_of(number)
        return number if run is None else run[1] + 1

    def within(self, first: int, last: int) -> list[Run]:
        """The parts of the runs between two numbers."""
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        parts = zip(self._firsts[low:high], self._lasts[low:high], strict=True)
        return [(max(start, first), min(end, last)) for start, end in parts]

    def add(self, number: int) -> None:
        at = bisect_right(self._firsts, number)
        if at and number <= self._lasts[at - 1]:
            return
        joins_left = at > 0 and self._lasts[at - 1] == number - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == number + 1
        if joins_left and joins_right:
            self._lasts[at - 1 : at + 1] = [self._lasts[at]]
            del self._firsts[at]
        elif joins_left:
            self._lasts[at - 1] = number
        elif joins_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)

    def discard(self, number: int) -> None:
        run = self.run_of(number)
        if run is None:
            return
        at = bisect_left(self._firsts, run[0])
        left = [(run[0], number - 1)] if run[0] < number else []
        right = [(number + 1, run[1])] if number < run[1] else []
        self._firsts[at : at + 1] = [first for first, _ in left + right]
        self._lasts[at : at + 1] = [last for _, last in left + right]
