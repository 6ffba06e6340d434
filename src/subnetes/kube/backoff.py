"""How long to wait before trying again: pure, so that the caller brings its own dice."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first` seconds after the first failure, doubling up to `cap`, less up to `jitter` of it by chance.

    Jitter only shortens: the cap is a promise, but agents that lost one server must not return to it in step.
    """

    first: float
    cap: float
    jitter: float = 0.5

    def delay(self, failures: int, chance: float) -> float:
        """The wait after so many failures in a row (1, 2, …), for a chance in [0, 1)."""
        doublings = min(failures - 1, 64)  # far past any cap, far below what a float can hold
        return min(self.first * 2.0**doublings, self.cap) * (1 - self.jitter * chance)

    def draw(self, failures: int) -> float:
        return self.delay(failures, random.random())
