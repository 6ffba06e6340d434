"""How many IPs each network container of the node needs. Pure.

The union of the live pods (scheduled here, not on the host's network, not finished), of the attachments that
still hold an IP, and of the ADDs in line, joined by the pod's uid: a finished pod whose IP is not back yet
counts: a roll-over of ten pods needs twenty, and a pod whose sandbox is made anew needs two for a while.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subnetes.api.core import Pod
from subnetes.cns.containers import Container, serving
from subnetes.ipam.pool import Holder, Pool, State

_FINISHED = ("Succeeded", "Failed")
# A static pod is known to its kubelet, and so to the CNI, by another uid than its mirror in the API has.
_MIRRORED = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class Asking:
    """An ADD in line, and the subnet that it asked for; None is the default network's."""

    holder: Holder
    subnet: str | None


def uid_of(pod: Pod) -> str:
    """The uid under which the pod's sandboxes name it."""
    return (pod.metadata.annotations or {}).get(_MIRRORED) or pod.metadata.uid or pod.metadata.name


def needs_ip(pod: Pod) -> bool:
    return not pod.spec.host_network and pod.status.phase not in _FINISHED


def live_pods(pods: Iterable[Pod]) -> dict[tuple[str, str], str]:
    """Namespace and name of each pod that needs an IP, and its uid."""
    return {(pod.metadata.namespace or "", pod.metadata.name): uid_of(pod) for pod in pods if needs_ip(pod)}


def demand(
    containers: Sequence[Container],
    pods: dict[tuple[str, str], str],
    pool: Pool,
    asking: Iterable[Asking],
) -> dict[str, int]:
    """NC id → how many IPs are needed of it."""
    units: dict[str, Counter[str]] = {nc.id: Counter() for nc in containers}
    for nc, counted in units.items():
        counted.update(_owner(ip.holder, pods) for ip in pool.in_state(nc, State.ASSIGNED) if ip.holder)
    in_line = {each.holder.key: each for each in asking if not pool.by_key(each.holder.key)}
    for each in in_line.values():
        for container in serving(containers, each.subnet):
            units[container.id][_owner(each.holder, pods)] += 1
    for container in serving(containers):
        units[container.id] |= Counter(dict.fromkeys(pods.values(), 1))
    return {nc: counted.total() for nc, counted in units.items()}


def _owner(holder: Holder, pods: dict[tuple[str, str], str]) -> str:
    """The pod's uid; who does not say it (azure-ipam) is found by name, which here frees nothing."""
    named = pods.get((holder.pod_namespace, holder.pod_name))
    return holder.pod_uid or named or f"container {holder.container_id}"
