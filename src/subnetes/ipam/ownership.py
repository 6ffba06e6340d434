"""Who owns an address, by everybody who says so, and where they contradict each other.

An owner is a grant: an NC and the id of the IP in it, or the NC's primary. DNC's record, an NNC's status and
a journal may all name the same one. What a node has let go of is its own until its NNC's status no longer
shows it; its journal may still know of it then, as PendingRelease, which claims nothing. Nor does the journal
of a node without an NNC: the control plane waited for that node and then gave its addresses away, rightly.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from subnetes.ipam.moves import IP, State
from subnetes.ipam.snapshot import Container, NodeConfig, NodePool, PodRecord, Snapshot, Violation

Place = tuple[str, str]  # network, address


@dataclass(frozen=True, slots=True)
class Claim:
    nc: str
    id: str  # empty: the primary
    node: str
    source: str

    @property
    def owner(self) -> tuple[str, str]:
        return self.nc, self.id

    def __str__(self) -> str:
        what = f"as {self.id}" if self.id else "as its primary"
        return f"NC {self.nc} of node {self.node} {what} ({self.source})"


def two_owners(snapshot: Snapshot) -> Iterator[Violation]:
    """1, of grants: one address under two of them, or one id for two addresses."""
    by_place: dict[Place, dict[tuple[str, str], Claim]] = defaultdict(dict)
    by_id: dict[str, dict[Place, Claim]] = defaultdict(dict)
    for place, claim in _claims(snapshot):
        by_place[place].setdefault(claim.owner, claim)
        if claim.id:
            by_id[claim.id].setdefault(place, claim)
    for (_, address), owners in by_place.items():
        if len(owners) > 1:
            named = "; and ".join(map(str, owners.values()))
            yield Violation(1, address, f"{address} has {len(owners)} owners: {named}")
    for ip_id, places in by_id.items():
        if len(places) > 1:
            named = "; and ".join(f"{address} of {claim}" for (_, address), claim in places.items())
            yield Violation(1, ip_id, f"the id {ip_id} stands for {len(places)} addresses: {named}")


def two_pods(snapshot: Snapshot) -> Iterator[Violation]:
    """1, of pods: one address in two of them, or in another than the journal says."""
    held = ((pool.node, ip) for pool, _ in pools_of_nodes(snapshot) for ip in pool.journal if ip.holder)
    holders = {(node, plain(ip.address)): ip for node, ip in held}
    seen: dict[Place, PodRecord] = {}
    for pod, address, nc in pods_with_addresses(snapshot):
        first = seen.setdefault((nc.network, address), pod)
        if first.uid != pod.uid:
            text = f"{address} is in two pods: {first} on node {first.node}; and {pod} on node {pod.node}"
            yield Violation(1, f"{address} in pods", text)
        ip = holders.get((pod.node, address))
        if ip and ip.holder and ip.holder.pod_uid not in ("", pod.uid):
            text = (
                f"{address} is in {pod} ({pod.uid}), but the journal of node {pod.node} says: {held_by(ip)}"
            )
            yield Violation(1, f"{address} in pods", text)


def _claims(snapshot: Snapshot) -> Iterator[tuple[Place, Claim]]:
    networks = {nc.id: nc.network for nc in (*snapshot.statuses(), *(snapshot.dnc or ()))}  # DNC knows better
    for nc in snapshot.dnc or ():
        yield from _of_container(nc, nc.network, "DNC's record")
    for config in snapshot.configs:
        for nc in config.containers:
            yield from _of_container(nc, networks[nc.id], f"status of NNC {config.node}")
    for pool, _ in pools_of_nodes(snapshot):
        source = f"journal of {pool.node}"
        for ip in pool.journal:
            if ip.state is not State.PENDING_RELEASE:
                place = networks.get(ip.nc, ""), plain(ip.address)
                yield place, Claim(ip.nc, ip.id, pool.node, source)


def _of_container(nc: Container, network: str, source: str) -> Iterator[tuple[Place, Claim]]:
    if nc.primary:
        yield (network, plain(nc.primary)), Claim(nc.id, "", nc.node, source)
    for grant in (*nc.secondary, *nc.leaving):
        yield (network, plain(grant.address)), Claim(nc.id, grant.id, nc.node, source)


def pools_of_nodes(snapshot: Snapshot) -> Iterator[tuple[NodePool, NodeConfig]]:
    """The pools whose nodes still have an NNC, each with it."""
    known = {config.node: config for config in snapshot.configs}
    return ((pool, known[pool.node]) for pool in snapshot.pools if pool.node in known)


def pods_with_addresses(snapshot: Snapshot) -> Iterator[tuple[PodRecord, str, Container]]:
    """The live pods' addresses that are of some NC of their node; others are none of our business."""
    subnets = {config.node: _networks(config.containers) for config in snapshot.configs}
    for pod in snapshot.pods or ():
        for address in map(plain, pod.addresses if pod.lives else ()):
            for network, nc in subnets.get(pod.node, {}).items():
                if _within(address, network):
                    yield pod, address, nc


def _networks(containers: Iterable[Container]) -> Mapping[IPv4Network | IPv6Network, Container]:
    found = {}
    for nc in containers:
        with suppress(ValueError):  # another control plane's, or none at all
            found[ip_network(nc.cidr, strict=False)] = nc
    return found


def _within(address: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return parsed.version == network.version and parsed in network


def plain(address: str) -> str:
    """An address without a prefix length, written the one way that compares."""
    bare = address.partition("/")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return bare


def held_by(ip: IP) -> str:
    """Whom an IP was given to, for people."""
    if ip.holder is None:
        return "nobody"
    sandbox = f"sandbox {ip.holder.container_id[:13]} ({ip.holder.ifname})"
    named = ip.holder.pod_name and f" of pod {ip.holder.pod_namespace}/{ip.holder.pod_name}"
    return f"{sandbox}{named}"
