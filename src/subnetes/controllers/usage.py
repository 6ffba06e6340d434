"""Whether what a node lets go is a live pod's after all: the last look before DNC gives it to others.

An agent never lists an IP in use, so this only finds what somebody else wrote into spec.releasedIPs, or a
faulty agent. Asked only when something is let go; pods that end or have ended have nothing to lose.
"""

from collections.abc import Mapping, Sequence

from subnetes.api.core import Pod
from subnetes.controllers.requests import Request
from subnetes.controllers.term import Api
from subnetes.dnc.types import NC

FINISHED = ("Succeeded", "Failed")

Users = Mapping[str, str]  # an IP's id -> the pod that has it


async def users(api: Api, node: str, ncs: Sequence[NC], request: Request) -> Users:
    """Of what the node lets go: what its live pods have."""
    leaving = {
        ip.address: ip.id for nc in ncs for ip in nc.secondary if ip.id in request.asks[nc.id].released
    }
    if not leaving:
        return {}
    pods = await api.list(Pod, field_selector=f"spec.nodeName={node}")
    return {
        leaving[address]: f"{address} of pod {pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods.items
        if _lives(pod)
        for address in _addresses(pod)
        if address in leaving
    }


def _lives(pod: Pod) -> bool:
    going = pod.metadata.deletion_timestamp is not None
    return not (going or pod.spec.host_network or pod.status.phase in FINISHED)


def _addresses(pod: Pod) -> set[str]:
    return {pod.status.pod_ip, *(each.ip for each in pod.status.pod_ips or ())} - {""}
