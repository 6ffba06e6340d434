"""Which token is which cluster's: lines `token,cluster` of a file, `#` begins a comment. Read at the start.

A cluster may have several tokens, so that one can be changed without a gap.
"""

import hashlib
from pathlib import Path

from subnetes.dnc.checks import is_name

_SHORTEST = 16  # characters


class InvalidTokens(Exception):
    """Which line of which file, and why; never the token."""


class Tokens:
    def __init__(self, clusters: dict[str, str]) -> None:
        # Hashed, so that how long a look-up takes says nothing about a token.
        self._clusters = {_digest(token): cluster for token, cluster in clusters.items()}

    def cluster_of(self, token: str) -> str | None:
        return self._clusters.get(_digest(token))


def read_tokens(path: Path) -> Tokens:
    """InvalidTokens, OSError."""
    clusters: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        token, _, cluster = (part.strip() for part in text.partition(","))
        if len(token) < _SHORTEST or not is_name(cluster):
            raise InvalidTokens(
                f"{path}, line {number}: write token,cluster with a token of at least {_SHORTEST} characters"
            )
        if clusters.setdefault(token, cluster) != cluster:
            raise InvalidTokens(f"{path}, line {number}: this token is another cluster's above")
    if not clusters:
        raise InvalidTokens(f"{path} has no token: write one line token,cluster for each cluster")
    return Tokens(clusters)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
