"""How long a lower target has stood: pools grow at once, and shrink only when it is sure to last. Pure."""

from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Standing:
    """The targets of one NC that still count, highest first, each with the time at which a lower followed."""

    past: list[tuple[int, float]] = field(default_factory=list)

    def note(self, target: int, now: float) -> None:
        """From now on the target is this."""
        if self.past and self.past[-1] == (target, inf):
            return
        if self.past and self.past[-1][1] == inf:
            self.past[-1] = (self.past[-1][0], now)
        while self.past and self.past[-1][0] <= target:
            self.past.pop()
        self.past.append((target, inf))

    def highest(self, now: float, within: float) -> int:
        """The highest target that held at any time in the last `within` seconds."""
        while self.past and self.past[0][1] + within <= now:
            self.past.pop(0)
        return self.past[0][0] if self.past else 0

    def falls_at(self, within: float) -> float:
        """When `highest` becomes lower, if nothing changes."""
        return self.past[0][1] + within if self.past else inf

    def forget(self) -> None:
        """Of the past nothing counts any more: the subnet is short of IPs."""
        del self.past[:-1]
