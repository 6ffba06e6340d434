"""What must never happen, as far as a reading of everything can show it.

     1  one IP with two owners: in DNC, in NNC statuses, in journals, in pods
     2  an IP in use by a pod that DNC thinks is free
     3  an IP leaked: with the dust settled, DNC = NNC statuses = pools, and every assigned IP has a sandbox
     4  an agent's memory differing from its journal
     5  a released IP Available again without a new grant
     6  a request that depends on the previous one: not an absolute target for an NC that exists
     7  the IP of a sandbox that lives, freed
     8  one node's agent in another node's objects, or two writers of one field
     9  a field lost when our code reads and writes an object
    10  a partly built network reported ready

`check` looks at one reading and `compare` at two of them in a row; both are pure. A reading is never of one
instant: what is on its way from one place to the next can look like a fault, and only what stands in two
readings is one. `subnetes ipam check` and the tests after every scenario call them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from subnetes.ipam import ownership, usage
from subnetes.ipam.moves import State
from subnetes.ipam.snapshot import NodeConfig, Snapshot, Violation

AGENT = "subnetes-agent"
CONTROLLER = "subnetes-controller"
"""The field managers of the two writers of an NNC."""
_AGENTS_FIELDS = ("spec.secondaryIPs", "spec.releasedIPs")

Rule = Callable[[Snapshot], Iterable[Violation]]


def check(snapshot: Snapshot, settled: bool) -> list[Violation]:
    """What is wrong; unless `settled`, without what is only true when nothing is on its way."""
    rules = (*_ALWAYS, usage.leaked) if settled else _ALWAYS
    return _ordered(violation for rule in rules for violation in rule(snapshot))


def compare(before: Snapshot, after: Snapshot) -> list[Violation]:
    """What is wrong with how one reading became the next."""
    return _ordered([*_came_back(before, after), *_versions_fell(before, after)])


def standing(before: Iterable[Violation], after: Iterable[Violation]) -> list[Violation]:
    """Those of the later reading that the earlier one had too."""
    known = {(each.number, each.subject) for each in before}
    return [each for each in after if (each.number, each.subject) in known]


def _ordered(found: Iterable[Violation]) -> list[Violation]:
    """Each fault once, by number and subject."""
    unique: dict[tuple[int, str], Violation] = {}
    for each in found:
        unique.setdefault((each.number, each.subject), each)
    return [unique[key] for key in sorted(unique)]


def _came_back(before: Snapshot, after: Snapshot) -> Iterator[Violation]:
    for pool in before.pools:
        let_go = {ip.id for ip in pool.journal if ip.state is State.PENDING_RELEASE}
        now = next((each.journal for each in after.pools if each.node == pool.node), ())
        for ip in now:
            if ip.id in let_go and ip.state is not State.PENDING_RELEASE:
                text = f"{ip.address} ({ip.id}) of node {pool.node} was let go and is {ip.state.value} again"
                yield Violation(5, ip.id, f"{text}; see the journal: {pool.source}")


def _versions_fell(before: Snapshot, after: Snapshot) -> Iterator[Violation]:
    versions = {nc.id: nc.version for nc in before.statuses()}
    for nc in after.statuses():
        if nc.version < versions.get(nc.id, 0):
            text = f"the version of NC {nc.id} in NNC {nc.node} fell from {versions[nc.id]} to {nc.version}"
            yield Violation(5, nc.id, f"{text}: an old state was written over a new one")


def _requests(snapshot: Snapshot) -> Iterator[Violation]:
    for config in snapshot.configs:
        own = {nc.id for nc in config.containers}
        where = f"spec.secondaryIPs of NNC {config.node}"
        for nc_id, target in config.targets.items():
            if nc_id not in own:
                text = f"{where} names {nc_id}, which is no NC of that node"
                yield Violation(6, f"{config.node} {nc_id}", text)
            if target < 0:
                yield Violation(6, f"{config.node} {nc_id}", f"{where} asks for {target} IPs of NC {nc_id}")
        held = sum(len(nc.secondary) for nc in config.containers)
        total = sum(config.targets.values())
        if total > max(config.maximum, held):
            text = f"{where} asks for {total} IPs in all; the node's maximum is {config.maximum}"
            yield Violation(6, f"{config.node} maximum", text)
    yield from _targets_below_use(snapshot)


def _targets_below_use(snapshot: Snapshot) -> Iterator[Violation]:
    for pool, config in ownership.pools_of_nodes(snapshot):
        for nc_id, target in config.targets.items():
            used = sum(ip.nc == nc_id and ip.state is State.ASSIGNED for ip in pool.journal)
            if used > target:
                text = f"NNC {pool.node} asks for {target} IPs of NC {nc_id} while {used} are assigned there"
                yield Violation(6, f"{pool.node} {nc_id} use", text)


def _strangers(snapshot: Snapshot) -> Iterator[Violation]:
    homes = {nc.id: nc.node for nc in snapshot.statuses()}
    ids = {grant.id: nc.node for nc in snapshot.statuses() for grant in nc.secondary}
    for config in snapshot.configs:
        for nc_id in config.targets:
            if (home := homes.get(nc_id, config.node)) != config.node:
                text = f"spec.secondaryIPs of NNC {config.node} names NC {nc_id}, which is node {home}'s"
                yield Violation(8, f"{config.node} {nc_id}", text)
        for ip_id in config.released:
            if (home := ids.get(ip_id, config.node)) != config.node:
                text = f"spec.releasedIPs of NNC {config.node} lists {ip_id}, which is node {home}'s"
                yield Violation(8, f"{config.node} {ip_id}", text)
        yield from _wrong_writers(config)


def _wrong_writers(config: NodeConfig) -> Iterator[Violation]:
    for writer in config.writers:
        asked = [field for field in writer.fields if field in _AGENTS_FIELDS]
        if asked and writer.manager == CONTROLLER:
            text = f"{', '.join(asked)} of NNC {config.node} was written by {CONTROLLER}, not by its agent"
            yield Violation(8, f"{config.node} spec", text)
        granted = [field for field in writer.fields if field.startswith("status")]
        if granted and writer.manager == AGENT:
            text = f"{', '.join(granted)} of NNC {config.node} was written by {AGENT}, not by DNC-RC"
            yield Violation(8, f"{config.node} status", text)
    askers = sorted({each.manager for each in config.writers if set(each.fields) & set(_AGENTS_FIELDS)})
    if len(askers) > 1:
        text = f"the request of NNC {config.node} has {len(askers)} writers: {', '.join(askers)}"
        yield Violation(8, f"{config.node} writers", text)


def _lost_fields(snapshot: Snapshot) -> Iterator[Violation]:
    for trip in snapshot.trips:
        for path in _lost(trip.stored, trip.again, ""):
            text = f"{trip.where}: {path} is lost or changed when it is read and written again"
            yield Violation(9, f"{trip.where} {path}", text)


def _lost(stored: Any, again: Any, path: str) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(again, Mapping):
        for key, value in stored.items():
            if value not in (None, ""):  # both are read as absence
                yield from _lost(value, again.get(key), f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for index, (one, other) in enumerate(zip(stored, again, strict=True)):
            yield from _lost(one, other, f"{path}[{index}]")
    elif stored != again:
        yield path


def _half_built(snapshot: Snapshot) -> Iterator[Violation]:
    ready = {(each.node, each.cluster_network) for each in snapshot.fabrics if each.ready}
    for each in snapshot.fabrics:
        subject = f"{each.node} {each.cluster_network}"
        where = f"the NodeNetwork of {each.cluster_network} on node {each.node}"
        if each.ready and not each.devices:
            yield Violation(10, subject, f"{where} is Ready, and status.devices names none")
        if each.ready and each.needs_tunnel and not each.tunnel_end:
            yield Violation(10, subject, f"{where} is Ready, and has no VTEP address")
    for node, network in snapshot.satisfied:
        if (node, network) not in ready:
            text = f"node {node} has the label of {network}, but no NodeNetwork of it is Ready there"
            yield Violation(10, f"{node} {network} label", text)


_ALWAYS: tuple[Rule, ...] = (
    ownership.two_owners,
    ownership.two_pods,
    usage.used_but_free,
    usage.memory_differs,
    usage.released_but_kept,
    _requests,
    usage.living_without,
    _strangers,
    _lost_fields,
    _half_built,
)
