"""What was said last about an object: an event is for what changed, not for every look at it."""

from collections.abc import Hashable


class Said:
    """Lost with the term, at worst something is said once more."""

    def __init__(self) -> None:
        self._last: dict[Hashable, dict[str, Hashable]] = {}

    def is_news(self, about: Hashable, reason: str, what: Hashable) -> bool:
        """Whether this differs from what was said last; a false `what` (empty, 0) is never news."""
        said = self._last.setdefault(about, {})
        if said.get(reason) == what:
            return False
        said[reason] = what
        return bool(what)

    def forget(self, about: Hashable) -> None:
        self._last.pop(about, None)
