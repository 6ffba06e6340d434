"""DNC as a small program in memory: what it must answer, without pages, rows or locks.

It writes the whole space out and walks through it, so declarations that are tried with it must be small.
Addresses are numbers here; ids are taken over from what the real one minted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network

from subnetes.dnc.types import AdoptedNC, Declaration, SubnetKey

LATELY = 120.0


def number(address: str) -> int:
    return int(ip_address(address))


@cache
def everything(cidr: str) -> range:
    network = ip_network(cidr)
    return range(int(network.network_address), int(network.broadcast_address) + 1)


@cache
def givable(declaration: Declaration) -> tuple[int, ...]:
    space = everything(declaration.cidr)
    barred = {space[0], space[-1]} if declaration.key.family == 4 else {space[0]}
    barred.add(space[1] if declaration.gateway is None else number(declaration.gateway))
    for text in declaration.exclude:
        first, _, last = text.partition("-")
        barred |= set(range(number(first), number(last or first) + 1))
    return tuple(each for each in space if each not in barred)


@dataclass
class ModelNC:
    cluster: str
    node: str
    subnet: SubnetKey
    primary: int
    version: int = 0
    target: int = 0
    reading: int = 0
    owned: dict[str, int] = field(default_factory=dict)  # id -> address
    leaving: dict[str, int] = field(default_factory=dict)  # id -> address
    disputed: set[tuple[str, int]] = field(default_factory=set)  # id, address
    owns_primary: bool = True
    shown_as: str = ""

    @property
    def reserved(self) -> dict[str, int]:
        return {**self.owned, **self.leaving, **({"": self.primary} if self.owns_primary else {})}

    @property
    def held(self) -> int:
        return len(self.owned) + len({each for each in self.disputed if each[0]})

    @property
    def secondary(self) -> set[tuple[str, int]]:
        return set(self.owned.items()) | {each for each in self.disputed if each[0]}


@dataclass
class Wait:
    rank: int
    turn: int
    cluster: str
    node: str
    nc: str | None
    asked: float
    wants: int


@dataclass
class ModelSubnet:
    declaration: Declaration
    declared: bool
    cursor: int = 0
    turn: int = 1
    waits: list[Wait] = field(default_factory=list)

    @property
    def everything(self) -> range:
        return everything(self.declaration.cidr)

    def givable(self) -> tuple[int, ...]:
        return givable(self.declaration)


class Model:
    def __init__(self) -> None:
        self.subnets: dict[SubnetKey, ModelSubnet] = {}
        self.ncs: dict[str, ModelNC] = {}

    def used(self, key: SubnetKey) -> set[int]:
        return set(self.owners(key))

    def owners(self, key: SubnetKey) -> dict[int, str]:
        found: dict[int, str] = {}
        for name, nc in self.ncs.items():
            if nc.subnet == key:
                mine = nc.reserved.values()
                assert not found.keys() & set(mine)
                found.update(dict.fromkeys(mine, name))
        return found

    def free(self, key: SubnetKey) -> list[int]:
        used = self.used(key)
        return [each for each in self.subnets[key].givable() if each not in used]

    def declare(self, declaration: Declaration) -> str:
        """`ok`, or the name of the error."""
        new = ModelSubnet(declaration, declared=True)
        for key, other in self.subnets.items():
            apart = key.network != declaration.key.network or key.family != declaration.key.family
            a, b = other.everything, new.everything
            if key != declaration.key and not apart and a[0] <= b[-1] and b[0] <= a[-1]:
                return "SubnetOverlaps"
        old = self.subnets.get(declaration.key)
        if old is None:
            new.cursor = new.everything[0]
            self.subnets[declaration.key] = new
            return "ok"
        used = self.used(declaration.key)
        lost = {each for each in used if each not in new.everything}
        barred = (used - set(new.givable())) & set(old.givable()) if old.declared else set()
        if lost or barred:
            return "SubnetInUse"
        old.declaration, old.declared = declaration, True
        drawing = [nc for nc in self.ncs.values() if nc.subnet == declaration.key]
        shown = {address for nc in drawing for _, address in nc.disputed}
        self._pass_on(declaration.key, {each for each in shown - used if each in new.everything})
        return "ok"

    def withdraw(self, key: SubnetKey) -> str:
        if any(nc.subnet == key for nc in self.ncs.values()):
            return "SubnetInUse"
        self.subnets.pop(key, None)
        return "ok"

    def take(self, key: SubnetKey, count: int) -> list[int]:
        """The next free ones from where the last search ended."""
        subnet, given = self.subnets[key], []
        free = self.free(key)
        ahead = [each for each in free if each >= subnet.cursor]
        given = (ahead + [each for each in free if each < subnet.cursor])[:count]
        if given:
            subnet.cursor = given[-1] + 1
        return given

    def share(self, key: SubnetKey, who: tuple[str, str, str | None], asks: int, now: float) -> int:
        """How many it gets; its wait is begun, kept or ended accordingly."""
        subnet = self.subnets[key]
        mine = next((each for each in subnet.waits if (each.cluster, each.node, each.nc) == who), None)
        rank = 0 if who[2] is None else 1
        place = (rank, mine.turn if mine else subnet.turn)
        kept = sum(
            each.wants
            for each in subnet.waits
            if (each.rank, each.turn) < place and each.asked >= now - LATELY and each is not mine
        )
        got = max(0, min(asks, len(self.free(key)) - kept)) if subnet.declared else 0
        self._wait(subnet, mine, who, asks - got, now)
        return got

    def _wait(
        self, subnet: ModelSubnet, mine: Wait | None, who: tuple[str, str, str | None], wants: int, now: float
    ) -> None:
        if wants <= 0:
            subnet.waits = [each for each in subnet.waits if each is not mine]
        elif mine is not None:
            mine.asked, mine.wants = now, wants
        else:
            subnet.waits = [each for each in subnet.waits if each.rank or each.asked >= now - 3600]
            subnet.waits.append(Wait(0 if who[2] is None else 1, subnet.turn, *who, now, wants))
            subnet.turn += 1

    def waiting(self, key: SubnetKey) -> list[tuple[str, str, str | None, int]]:
        waits = self.subnets[key].waits if key in self.subnets else []
        ordered = sorted(waits, key=lambda each: (each.rank, each.turn))
        return [(each.cluster, each.node, each.nc, each.wants) for each in ordered]

    def adopt(self, cluster: str, shown: AdoptedNC, stand_in: str | None) -> set[tuple[int, str]]:
        """The conflicts: address and id; (0, "") is the whole NC, kept under the id `stand_in` then."""
        known = self.ncs.get(shown.id)
        if known is not None and (known.cluster, known.node) != (cluster, shown.node):
            assert stand_in is not None
            self._take_in(cluster, shown, stand_in)
            self.ncs[stand_in].shown_as = shown.id
            return {(0, "")}
        assert stand_in is None
        needless = [
            name
            for name, nc in self.ncs.items()
            if (nc.cluster, nc.node, nc.shown_as) == (cluster, shown.node, shown.id)
        ]
        for name in needless:
            self._free(self.ncs.pop(name))
        return self._take_in(cluster, shown, shown.id)

    def _take_in(self, cluster: str, shown: AdoptedNC, name: str) -> set[tuple[int, str]]:
        key, known = shown.subnet, self.ncs.get(name)
        if key not in self.subnets:
            self.subnets[key] = ModelSubnet(Declaration(key, shown.cidr, shown.gateway), declared=False)
            self.subnets[key].cursor = self.subnets[key].everything[0]
        if known is not None:
            known.reading = 0
        if known is not None and known.version > shown.version:
            return set()
        if known is None:
            primary, held = number(shown.primary), len(shown.secondary)
            known = ModelNC(cluster, shown.node, key, primary, shown.version, held, owns_primary=False)
            self.ncs[name] = known
        known.version = shown.version
        if not known.owns_primary:
            known.primary = number(shown.primary)
            known.disputed = {each for each in known.disputed if each[0]}
        ips = [("", number(shown.primary)), *((ip.id, number(ip.address)) for ip in shown.secondary)]
        return {(address, name) for name, address in ips if not self._adopt_ip(known, name, address)}

    def _adopt_ip(self, known: ModelNC, name: str, address: int) -> bool:
        mine = known.reserved
        if mine.get(name) == address:
            if name in known.leaving:
                known.owned[name] = known.leaving.pop(name)
            return True
        owner = self.owners(known.subnet).get(address)
        fits = address in self.subnets[known.subnet].everything and name not in mine
        if owner is not None or not fits or (not name and address != known.primary):
            known.disputed.add((name, address))
            return False
        known.disputed.discard((name, address))
        if name:
            known.owned[name] = address
        else:
            known.owns_primary = True
        return True

    def delete_nc(self, cluster: str, name: str) -> int:
        nc = self.ncs.get(name)
        if nc is None or nc.cluster != cluster:
            return 0
        del self.ncs[name]
        freed = self._free(nc)
        subnet = self.subnets[nc.subnet]
        subnet.waits = [each for each in subnet.waits if each.nc != name]
        if not subnet.declared and not any(each.subnet == nc.subnet for each in self.ncs.values()):
            del self.subnets[nc.subnet]
        return freed

    def confirm(self, cluster: str, name: str, ids: list[str]) -> int:
        nc = self.ncs.get(name)
        if nc is None or nc.cluster != cluster:
            return 0
        gone = {each: nc.leaving.pop(each) for each in set(ids) & nc.leaving.keys()}
        return self._pass_on(nc.subnet, set(gone.values()))

    def _free(self, nc: ModelNC) -> int:
        return self._pass_on(nc.subnet, set(nc.reserved.values()))

    def _pass_on(self, key: SubnetKey, addresses: set[int]) -> int:
        """How many are free: those that no other NC shows too, which would own them from now on."""
        claims = sorted(
            (name, ip_id, str(ip_address(address)))
            for name, nc in self.ncs.items()
            for ip_id, address in nc.disputed
            if nc.subnet == key and address in addresses and ip_id not in nc.reserved
        )
        left = set(addresses)
        for name, ip_id, text in claims:
            nc, address = self.ncs[name], number(text)
            if address in left and ip_id not in nc.reserved:
                left.discard(address)
                nc.disputed.discard((ip_id, address))
                if ip_id:
                    nc.owned[ip_id] = address
                else:
                    nc.owns_primary = True
        return len(left)
