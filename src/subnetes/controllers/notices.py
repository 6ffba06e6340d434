"""What a node's user is told of its NNC, in events: each thing once, when it begins.

The NNC controller calls; nothing here decides what is granted.
"""

from collections.abc import Iterable, Mapping

from subnetes.api import names
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.memory import Said
from subnetes.controllers.requests import Request
from subnetes.controllers.term import Events
from subnetes.controllers.usage import Users
from subnetes.dnc.types import SubnetKey
from subnetes.kube.key import Key, key_of


class Notices:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._said = Said()
        self._dropped: dict[Key, set[str]] = {}

    def forget(self, key: Key) -> None:
        self._said.forget(key)
        self._dropped.pop(key, None)

    def dropped(self, nnc: NodeNetworkConfig, nc: str) -> None:
        """The NC has gone; the agent may name it until it has seen that."""
        self._dropped.setdefault(key_of(nnc), set()).add(nc)

    def returned(self, nnc: NodeNetworkConfig) -> None:
        self._events.normal(nnc, "NodeReturned", "the node is back in time: its IPs are its own again")

    def refused(self, nnc: NodeNetworkConfig, nc: str, ips: tuple[str, ...]) -> None:
        if self._said.is_news(key_of(nnc), f"refused {nc}", ips):
            said = (
                f"spec.releasedIPs names {', '.join(ips)}: held by another node, and not freed; take it out"
            )
            self._events.warning(nnc, "ReleaseRefused", said)

    def used(self, nnc: NodeNetworkConfig, used: Users) -> None:
        """What live pods have is not taken from them, whoever listed it."""
        if self._said.is_news(key_of(nnc), "used", tuple(sorted(used))):
            said = f"spec.releasedIPs names {', '.join(sorted(used.values()))}: in use, and not freed"
            self._events.warning(nnc, "ReleaseRefused", said)

    def short(self, nnc: NodeNetworkConfig, full: Iterable[str], lacking: Mapping[SubnetKey, str]) -> None:
        """`full`: subnets that gave less than was asked for; `lacking`: that gave no primary, and why."""
        for name in full:
            said = f"subnet {name} has fewer IPs left than asked for; they come as others let go"
            self._events.warning(nnc, "SubnetFull", said)
        if self._said.is_news(key_of(nnc), "lacking", tuple(lacking)):
            said = f"no network container yet: {'; '.join(lacking.values())}"
            self._events.warning(nnc, "SubnetFull", said)

    def strange(self, nnc: NodeNetworkConfig, request: Request) -> None:
        """What of the request makes no sense."""
        dropped = self._dropped.get(key_of(nnc), set())
        unknown = tuple(each for each in request.unknown if each not in dropped)
        if self._said.is_news(key_of(nnc), "unknown", unknown):
            said = (
                f"spec.secondaryIPs names {', '.join(unknown)}, no network container of this node: ignored;"
                " status.networkContainers has the ids"
            )
            self._events.warning(nnc, "UnknownNetworkContainer", said)
        if self._said.is_news(key_of(nnc), "cut", request.cut):
            said = (
                f"spec.secondaryIPs asks for {request.cut} IPs more than the node may have"
                f" (annotation {names.MAX_IPS} of the Node, 250 unless given): they are not granted"
            )
            self._events.warning(nnc, "AboveMaximum", said)
