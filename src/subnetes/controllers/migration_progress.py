"""How far the rewriting of stored NNCs has come, as a ConfigMap that the next leader goes on from.

Pure. `controllers/migration.py` writes it now and then, `subnetes migrate status` shows it.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

import msgspec

from subnetes.api.core import ConfigMap
from subnetes.api.meta import ObjectMeta
from subnetes.api.migration import Rewriting
from subnetes.controllers.status import seconds, timestamp

CONFIG_MAP = "subnetes-nnc-migration"
_TIMES, _COUNTS = ("begun", "written"), ("done", "total")
WAITING, REWRITING, DONE = "waiting", "rewriting", "done"


@dataclass(frozen=True, slots=True)
class Progress:
    work: str  # the Rewriting that it is of
    to: str
    by: str  # the replica's identity in its term
    begun: float
    written: float
    state: str = WAITING
    last: str = ""  # namespace/name of the last one that was rewritten; the order is that of these texts
    done: int = 0
    total: int = 0
    problem: str = ""

    def of(self, work: Rewriting) -> bool:
        return self.work == str(work)


def begin(work: Rewriting, by: str, now: float) -> Progress:
    return Progress(str(work), work.to, by, begun=now, written=now)


def resumed(found: Progress | None, work: Rewriting, by: str, now: float) -> Progress:
    """Where to go on: where somebody stopped, if that was the same work, else at the beginning.

    Where one could not be rewritten, all are gone through again: most are not written a second time. Who is
    REWRITING has seen every API server follow the CRD, by no clock but its own.
    """
    if found is None or not found.of(work) or found.state == DONE:
        return begin(work, by, now)
    begun = min(found.begun, now)  # by another replica's clock
    if found.problem:
        return replace(begin(work, by, now), begun=begun, state=found.state)
    return replace(found, by=by, begun=begun, written=now)


def remaining(progress: Progress, keys: Iterable[str]) -> list[str]:
    """What comes after the last one, in order; what was made since is in the new version already."""
    return sorted(key for key in keys if key > progress.last)


def config_map(progress: Progress, namespace: str, old: ConfigMap | None) -> ConfigMap:
    """With the resourceVersion of the one that was read, so that who no longer leads overwrites nothing."""
    data = {key: timestamp(value) if key in _TIMES else str(value) for key, value in asdict(progress).items()}
    if old is not None:
        return msgspec.structs.replace(old, data=data)
    return ConfigMap(metadata=ObjectMeta(name=CONFIG_MAP, namespace=namespace), data=data)


def read(found: ConfigMap | None) -> Progress | None:
    """None: it is not what we write."""
    data = (found.data if found is not None else None) or {}
    try:
        times = {key: seconds(data[key]) for key in _TIMES}
        counts = {key: int(data[key]) for key in _COUNTS}
        texts = {each.name: data[each.name] for each in fields(Progress) if each.type is str}
        return Progress(**texts, **times, **counts)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        return None
