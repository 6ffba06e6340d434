"""Chunks of a watch's body become its lines, whatever the chunks' boundaries and the lines' lengths. Pure.

aiohttp's own line iteration refuses lines beyond its buffer, and one Kubernetes object may have megabytes.
"""

from collections.abc import Iterator


class Lines:
    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> Iterator[bytes]:
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = self.rest + complete[0]
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return (line for line in complete if line.strip())
