"""Whether what nodes use is theirs to use, and all that is theirs is somewhere: rules 2, 3, 4, 5 and 7.

`invariants.py` calls these; who owns an address is `ownership.py`'s question.
"""

from collections.abc import Iterable, Iterator, Mapping

from subnetes.ipam.moves import IP, Key, State
from subnetes.ipam.ownership import held_by, plain, pods_with_addresses, pools_of_nodes
from subnetes.ipam.snapshot import Container, NodeConfig, NodePool, Snapshot, Violation

Entry = tuple[str, str, str]  # NC, id (empty: the primary), address
SHOWN = 3  # of many alike, how many are named


def used_but_free(snapshot: Snapshot) -> Iterator[Violation]:
    """2: a pod uses what DNC thinks is free, or what its node has already let go."""
    record, source = snapshot.record()
    known = {entry for nc in record for entry in entries(nc)}
    for pool, config in pools_of_nodes(snapshot):
        for ip in pool.journal:
            if ip.state is not State.ASSIGNED:
                continue
            user = f"{ip.address} is in use by {held_by(ip)} on node {pool.node}"
            if (ip.nc, ip.id, plain(ip.address)) not in known:
                text = f"{user}, but {source} does not have it as {ip.id} of NC {ip.nc}"
                yield Violation(2, ip.address, text)
            elif ip.id in config.released:
                text = f"{user}, but spec.releasedIPs of NNC {pool.node} lists {ip.id}"
                yield Violation(2, ip.address, text)
    yield from _pods_on_free_addresses(snapshot)


def _pods_on_free_addresses(snapshot: Snapshot) -> Iterator[Violation]:
    record, source = snapshot.record()
    held = {(nc.node, address) for nc in record for _, ip_id, address in entries(nc) if ip_id}
    for pod, address, nc in pods_with_addresses(snapshot):
        if (pod.node, address) not in held:
            text = f"{address} is in use by {pod} on node {pod.node}, but not granted to it in {source}"
            yield Violation(2, address, f"{text}; its subnet there is {nc.subnet} (NC {nc.id})")


def leaked(snapshot: Snapshot) -> Iterator[Violation]:
    """3, once the dust has settled: DNC, the statuses and the pools agree, and every user of an IP lives."""
    if snapshot.dnc is not None:
        yield from _dnc_beside_statuses(snapshot.dnc, snapshot)
    for config in snapshot.configs:
        granted = {grant.id for nc in config.containers for grant in nc.secondary}
        for ip_id in config.released:
            if ip_id in granted:
                text = (
                    f"{ip_id} was let go in spec.releasedIPs of NNC {config.node}, and is still in its status"
                )
                yield Violation(3, ip_id, text)
    for pool, config in pools_of_nodes(snapshot):
        yield from _pool_beside_status(pool, config)
        yield from _users_that_are_gone(pool, snapshot)


def _dnc_beside_statuses(dnc: Iterable[Container], snapshot: Snapshot) -> Iterator[Violation]:
    for each in dnc:
        for grant in each.leaving:
            text = (
                f"{grant.address} ({grant.id}) left NC {each.id} of node {each.node}, and is still reserved"
            )
            yield Violation(3, grant.id, text)
    recorded = {nc.id: nc for nc in dnc}
    shown = {nc.id: nc for nc in snapshot.statuses()}
    for nc_id in recorded.keys() | shown.keys():
        ours, theirs = recorded.get(nc_id), shown.get(nc_id)
        if ours is None or theirs is None:
            nc = ours or theirs
            assert nc is not None
            where = (
                "DNC's record, but in no NNC's status" if ours else "an NNC's status, but not in DNC's record"
            )
            text = f"NC {nc_id} of node {nc.node}, with {len(nc.secondary)} secondary IPs, is in {where}"
            yield Violation(3, nc_id, text)
            continue
        sides = {"DNC's record": entries(ours), f"the status of NNC {theirs.node}": entries(theirs)}
        yield from _difference(f"NC {nc_id}", sides)


def _pool_beside_status(pool: NodePool, config: NodeConfig) -> Iterator[Violation]:
    granted = (entry for nc in config.containers for entry in entries(nc) if entry[1])
    held = ((ip.nc, ip.id, plain(ip.address)) for ip in pool.journal)
    sides = {"the status of its NNC": granted, f"its journal ({pool.source})": held}
    yield from _difference(f"node {pool.node}", sides)


def _difference(what: str, sides: Mapping[str, Iterable[Entry]]) -> Iterator[Violation]:
    """What only one of the two has."""
    (first, one), (second, other) = ((name, set(found)) for name, found in sides.items())
    parts = [
        f"{len(only)} only in {name}: {_some(only)}"
        for name, only in ((first, one - other), (second, other - one))
        if only
    ]
    if parts:
        yield Violation(3, what, f"{what}: {first} and {second} differ: {'; '.join(parts)}")


def _some(entries: set[Entry]) -> str:
    named = [f"{address} ({ip_id or 'primary'})" for _, ip_id, address in sorted(entries)[:SHOWN]]
    return ", ".join(named) + (", ..." if len(entries) > SHOWN else "")


def _users_that_are_gone(pool: NodePool, snapshot: Snapshot) -> Iterator[Violation]:
    living = snapshot.sandboxes.get(pool.node)
    keys = None if living is None else {(each.container_id, each.ifname) for each in living}
    pods = None if snapshot.pods is None else {(pod.namespace, pod.name) for pod in snapshot.pods}
    for ip in pool.journal:
        if ip.holder is None:
            continue
        if keys is not None:
            gone = ip.holder.key not in keys
        else:
            named = (ip.holder.pod_namespace, ip.holder.pod_name)
            gone = pods is not None and bool(ip.holder.pod_name) and named not in pods
        if gone:
            text = f"{ip.address} is assigned on node {pool.node} to {held_by(ip)}, which is gone"
            yield Violation(3, f"{pool.node} {ip.id}", text)


def memory_differs(snapshot: Snapshot) -> Iterator[Violation]:
    """4: an agent's memory and its journal are not the same pool."""
    for pool in snapshot.pools:
        if pool.memory is None:
            continue
        journal, memory = _by_id(pool.journal), _by_id(pool.memory)
        for ip_id in sorted(journal.keys() | memory.keys()):
            if journal.get(ip_id) != memory.get(ip_id):
                said = f"the journal has {_told(journal, ip_id)}, its memory {_told(memory, ip_id)}"
                text = (
                    f"the agent of node {pool.node} and its journal ({pool.source}) differ on {ip_id}: {said}"
                )
                yield Violation(4, f"{pool.node} {ip_id}", text)


Told = tuple[str, str, State, tuple[str, str] | None]


def _by_id(ips: Iterable[IP]) -> dict[str, Told]:
    return {ip.id: (plain(ip.address), ip.nc, ip.state, ip.holder.key if ip.holder else None) for ip in ips}


def _told(ips: dict[str, Told], ip_id: str) -> str:
    if ip_id not in ips:
        return "nothing of it"
    address, _, state, key = ips[ip_id]
    return f"{address} {state.value}" + (f" to {key[0][:13]}/{key[1]}" if key else "")


def released_but_kept(snapshot: Snapshot) -> Iterator[Violation]:
    """5: let go in the NNC's spec, and yet for the node to hand out."""
    for pool, config in pools_of_nodes(snapshot):
        for ip in pool.journal:
            if ip.id in config.released and ip.state in (State.AVAILABLE, State.PENDING_PROGRAMMING):
                text = f"{ip.address} ({ip.id}) is in spec.releasedIPs of NNC {pool.node}"
                yield Violation(5, ip.id, f"{text}, but {ip.state.value} in its journal: {pool.source}")


def living_without(snapshot: Snapshot) -> Iterator[Violation]:
    """7: a sandbox lives, or a pod does, and its node's pool no longer has its IP assigned."""
    pools = {pool.node: pool for pool, _ in pools_of_nodes(snapshot)}
    assigned = {node: _assigned(pool) for node, pool in pools.items()}
    for each in (sandbox for found in snapshot.sandboxes.values() for sandbox in found):
        held = assigned.get(each.node)
        for address in map(plain, each.addresses if held is not None else ()):
            if (held or {}).get(address) != (each.container_id, each.ifname):
                who = f"sandbox {each.container_id[:13]} ({each.ifname}) on node {each.node}"
                text = f"{address} is in use by {who}, which lives, but it is not assigned to it"
                yield Violation(7, address, f"{text}; see the journal: {pools[each.node].source}")
    for pod, address, _ in pods_with_addresses(snapshot):
        if pod.node in assigned and address not in assigned[pod.node]:
            text = f"{address} is in use by {pod} on node {pod.node}, but not assigned in that node's pool"
            yield Violation(7, address, f"{text}; see the journal: {pools[pod.node].source}")


def _assigned(pool: NodePool) -> dict[str, Key]:
    return {plain(ip.address): ip.holder.key for ip in pool.journal if ip.holder}


def entries(nc: Container) -> Iterator[Entry]:
    if nc.primary:
        yield nc.id, "", plain(nc.primary)
    for grant in nc.secondary:
        yield nc.id, grant.id, plain(grant.address)
