"""Which attachments each pod has, so that an ADD finds its pod's former sandboxes without a look at all IPs.

`Ipam` keeps it beside the pool, and has it follow every move.
"""

from collections.abc import Iterable

from subnetes.ipam.pool import Assigned, Freed, Holder, Key, Move, Pool


class HoldersByPod:
    def __init__(self, pool: Pool) -> None:
        self._holders: dict[Key, Holder] = {}
        self._of_pod: dict[str, set[Key]] = {}
        for ip in pool:
            if ip.holder is not None:
                self._add(ip.holder)

    def of(self, pod_uid: str) -> list[Holder]:
        """Those that say they are of this pod; who does not say it is of none."""
        return [self._holders[key] for key in self._of_pod.get(pod_uid, ())]

    def follow(self, moves: Iterable[Move]) -> None:
        for move in moves:
            if isinstance(move, Assigned):
                self._add(move.holder)
            elif isinstance(move, Freed):
                self._remove(move.key)

    def _add(self, holder: Holder) -> None:
        self._holders[holder.key] = holder
        if holder.pod_uid:
            self._of_pod.setdefault(holder.pod_uid, set()).add(holder.key)

    def _remove(self, key: Key) -> None:
        uid = self._holders.pop(key).pod_uid
        keys = self._of_pod.get(uid)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._of_pod[uid]
