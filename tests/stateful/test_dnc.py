"""The allocator against a small model, in any order of calls: on SQLite, and, marked, on PostgreSQL.

Every answer must be the model's, addresses included; after every step so must the whole record be, and DNC's
tables must agree with each other.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from subnetes.dnc.errors import DncError
from subnetes.dnc.postgres import open_postgres
from subnetes.dnc.sql import Database, Transaction
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.dnc.types import NC, AdoptedNC, Declaration, Fence, SecondaryIP, SubnetKey
from tests.harness.audit import audit
from tests.harness.dnc_model import Model, ModelNC, number
from tests.harness.postgres import Postgres, running_postgres

pytestmark = pytest.mark.slow

T = TypeVar("T")

A, B = SubnetKey("", "a", 4), SubnetKey("", "b", 4)
OTHER, SIX = SubnetKey("other", "a", 4), SubnetKey("", "a", 6)
KEYS = st.sampled_from([A, A, A, SIX, OTHER, B])  # mostly the one that everybody wants
NEAR_A_BORDER = ("10.0.0.0-10.0.15.249", "10.0.16.4-10.0.31.255")  # of two pages, eleven addresses in all
TIGHT = st.sampled_from(
    [Declaration(A, "10.0.0.16/29"), Declaration(A, "10.0.0.0/19", "10.0.0.1", NEAR_A_BORDER)]
)
DECLARATIONS = st.sampled_from(
    [
        Declaration(A, "10.0.0.16/29"),
        Declaration(A, "10.0.0.16/28"),
        Declaration(A, "10.0.0.16/28", "10.0.0.30"),
        Declaration(A, "10.0.0.16/28", None, ("10.0.0.18", "10.0.0.20-10.0.0.25")),
        Declaration(A, "10.0.0.0/27"),
        Declaration(A, "10.0.0.0/19", "10.0.0.1", NEAR_A_BORDER),
        Declaration(A, "10.0.0.0/19", "10.0.0.1", ("10.0.0.30-10.0.31.250",)),
        Declaration(B, "10.0.0.32/29"),
        Declaration(B, "10.0.15.240/28"),
        Declaration(OTHER, "10.0.0.16/29"),
        Declaration(SIX, "fd00::ff8/125"),
        Declaration(SIX, "fd00::/115", None, ("fd00::2-fd00::ffa", "fd00::1004-fd00::1fff")),
    ]
)
CLUSTERS, NODES = st.sampled_from(["c", "d"]), st.sampled_from(["n1", "n2", "n3"])
ADDRESSES = st.sampled_from(["10.0.0.17", "10.0.0.18", "10.0.0.20", "10.0.15.255", "10.0.16.0", "10.0.0.3"])


class DncAgainstModel(RuleBasedStateMachine):
    open: Callable[[], Coroutine[Any, Any, Database]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = self.run(type(self).open())
        self.now, self.minted = 1_000_000.0, 0
        self.dnc = SqlAllocator(self.database, lambda: self.now, self.mint)
        self.model = Model()

    def teardown(self) -> None:
        self.run(self.database.close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.get_loop().run_until_complete(work)

    def mint(self) -> str:
        self.minted += 1
        return f"id-{self.minted}"

    def outcome(self, work: Coroutine[Any, Any, T]) -> tuple[str, T | None]:
        try:
            return "ok", self.run(work)
        except DncError as problem:
            return problem.reason, None

    @initialize(declaration=TIGHT)
    def begin(self, declaration: Declaration) -> None:
        """Too few addresses for the three nodes of two clusters."""
        self.declare(declaration)
        for cluster, node in (("c", "n1"), ("d", "n1"), ("c", "n2")):
            self.ensure_nc(cluster, node, A)

    @rule(declaration=DECLARATIONS)
    def declare(self, declaration: Declaration) -> None:
        expected = self.model.declare(declaration)
        assert self.outcome(self.dnc.ensure_subnet(declaration))[0] == expected

    @rule(key=KEYS)
    def withdraw(self, key: SubnetKey) -> None:
        assert self.outcome(self.dnc.delete_subnet(key))[0] == self.model.withdraw(key)

    @rule(cluster=CLUSTERS, node=NODES, key=KEYS)
    def ensure_nc(self, cluster: str, node: str, key: SubnetKey) -> None:
        reason, nc = self.outcome(self.dnc.ensure_nc(cluster, node, key))
        mine = [
            name
            for name, each in self.model.ncs.items()
            if (each.cluster, each.node, each.subnet, each.shown_as) == (cluster, node, key, "")
        ]
        if mine:
            assert nc is not None
            assert nc.id == min(mine)
        elif key not in self.model.subnets or not self.model.subnets[key].declared:
            assert reason == "SubnetUnknown"
        elif self.model.share(key, (cluster, node, None), 1, self.now):
            assert nc is not None
            (primary,) = self.model.take(key, 1)
            assert number(nc.primary) == primary
            self.model.ncs[nc.id] = ModelNC(cluster, node, key, primary)
        else:
            assert reason == "SubnetFull"

    @precondition(lambda self: self.model.ncs)
    @rule(data=st.data(), wanted=st.integers(0, 9), reading=st.integers(-1, 2))
    def ask_and_release(self, data: st.DataObject, wanted: int, reading: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.ncs)))
        mine, all_of_them = self.ids(name), [each for other in self.model.ncs for each in self.ids(other)]
        ids = st.sampled_from([*mine, *mine, *all_of_them, "unknown", ""])
        self.set_secondary(name, wanted, reading, data.draw(st.lists(ids, max_size=4)))

    @precondition(lambda self: self.model.ncs)
    @rule(data=st.data(), wanted=st.integers(3, 9))
    def ask(self, data: st.DataObject, wanted: int) -> None:
        self.set_secondary(data.draw(st.sampled_from(sorted(self.model.ncs))), wanted, 1, [])

    @precondition(lambda self: any(nc.owned for nc in self.model.ncs.values()))
    @rule(data=st.data(), count=st.integers(1, 2))
    def let_go(self, data: st.DataObject, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, nc in self.model.ncs.items() if nc.owned)))
        self.set_secondary(name, 0, 1, sorted(self.model.ncs[name].owned)[:count])

    @precondition(lambda self: any(nc.reading for nc in self.model.ncs.values()))
    @rule(data=st.data(), wanted=st.integers(0, 9))
    def ask_with_an_old_reading(self, data: st.DataObject, wanted: int) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, nc in self.model.ncs.items() if nc.reading)))
        self.set_secondary(name, wanted, -1, self.ids(name))

    @precondition(lambda self: any(nc.leaving for nc in self.model.ncs.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, nc in self.model.ncs.items() if nc.leaving)))
        leaving = sorted(self.model.ncs[name].leaving)
        self.confirm_in(self.model.ncs[name].cluster, name, data.draw(st.lists(st.sampled_from(leaving))))

    @precondition(lambda self: self.model.ncs)
    @rule(data=st.data(), cluster=CLUSTERS)
    def confirm_anything(self, data: st.DataObject, cluster: str) -> None:
        name = data.draw(st.sampled_from([*sorted(self.model.ncs), "unknown"]))
        ids = sorted({"", "unknown", *(each for other in self.model.ncs for each in self.ids(other))})
        self.confirm_in(cluster, name, data.draw(st.lists(st.sampled_from(ids), max_size=4)))

    def confirm_in(self, cluster: str, name: str, ids: list[str]) -> None:
        expected = self.model.confirm(cluster, name, ids)
        assert self.run(self.dnc.confirm(cluster, name, ids)) == expected

    def ids(self, name: str) -> list[str]:
        nc = self.model.ncs[name]
        return sorted({*(each for each, _ in nc.secondary), *nc.leaving})

    def set_secondary(self, name: str, wanted: int, reading: int, released: list[str]) -> None:
        nc = self.model.ncs[name]
        theirs = {each for other in self.model.ncs for each in self.ids(other)}
        fence = Fence("u", max(0, nc.reading + reading))
        reason, result = self.outcome(self.dnc.set_secondary(nc.cluster, name, fence, wanted, released))
        if fence.resource_version < nc.reading:
            assert reason == "StaleReading"
            return
        assert result is not None
        nc.reading = fence.resource_version
        before, known = nc.secondary, set(self.ids(name))
        for each in nc.owned.keys() & set(released):
            nc.leaving[each] = nc.owned.pop(each)
        nc.disputed = {each for each in nc.disputed if not each[0] or each[0] not in released}
        gone = {each for each, _ in before} & set(released)
        assert set(result.refused) == {each for each in released if each in theirs} - known
        got = self.model.share(nc.subnet, (nc.cluster, nc.node, name), wanted - nc.held, self.now)
        granted = set(self.model.take(nc.subnet, got))
        new = {ip.id: number(ip.address) for ip in result.nc.secondary if ip.id not in dict(nc.secondary)}
        assert set(new.values()) == granted
        assert not new.keys() & gone
        nc.owned.update(new)
        nc.target = wanted
        nc.version += nc.secondary != before

    @rule(cluster=CLUSTERS, node=NODES, key=KEYS)
    def release_wait(self, cluster: str, node: str, key: SubnetKey) -> None:
        self.run(self.dnc.release_wait(cluster, node, key))
        if key in self.model.subnets:
            subnet = self.model.subnets[key]
            gone = (cluster, node, None)
            subnet.waits = [each for each in subnet.waits if (each.cluster, each.node, each.nc) != gone]

    @rule(
        cluster=CLUSTERS,
        node=NODES,
        nc=st.sampled_from(["x", "y", "z"]),
        primary=ADDRESSES,
        ips=st.lists(st.tuples(st.sampled_from("pqr"), ADDRESSES), max_size=3, unique=True),
        version=st.integers(0, 3),
    )
    def adopt(
        self, cluster: str, node: str, nc: str, primary: str, ips: list[tuple[str, str]], version: int
    ) -> None:
        if A not in self.model.subnets and B in self.model.subnets:
            return  # it might overlap: a test of its own
        secondary = tuple(SecondaryIP(f"{nc}-{each}", address) for each, address in ips)
        shown = AdoptedNC(nc, node, A, "10.0.0.16/28", "10.0.0.17", primary, version, secondary)
        found = self.run(self.dnc.adopt(cluster, [shown]))
        ours = self.run(self.dnc.ncs(cluster, node))
        stand_in = next((each.id for each in ours if each.shown_as == nc), None)
        expected = self.model.adopt(cluster, shown, stand_in)
        assert {(number(each.address) if each.address else 0, each.id) for each in found} == expected

    @precondition(lambda self: self.model.ncs)
    @rule(data=st.data(), cluster=CLUSTERS)
    def delete_nc(self, data: st.DataObject, cluster: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.ncs)))
        expected = self.model.delete_nc(cluster, name)
        assert self.run(self.dnc.delete_nc(cluster, name)) == expected

    @rule(seconds=st.sampled_from([1.0, 60.0, 121.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_record_is_the_models(self) -> None:
        for cluster in ("c", "d"):
            real = {nc.id: _plain(nc) for nc in self.run(self.dnc.ncs(cluster))}
            assert real == {
                name: (
                    (nc.node, nc.subnet, nc.primary, nc.version, nc.shown_as, nc.target),
                    (nc.secondary, set(nc.leaving.items())),
                )
                for name, nc in self.model.ncs.items()
                if nc.cluster == cluster
            }
        subnets = {each.key: each for each in self.run(self.dnc.subnets())}
        assert subnets.keys() == self.model.subnets.keys()
        for key, subnet in self.model.subnets.items():
            usage = subnets[key].utilization
            assert subnets[key].declared == subnet.declared
            assert usage.capacity == len(subnet.givable())
            assert usage.free == len(self.model.free(key))
            assert usage.reserved == len(self.model.used(key))
            waiting = self.run(self.dnc.waiting(key))
            found = [(each.cluster, each.node, each.nc, each.wants) for each in waiting]
            assert found == self.model.waiting(key)

    @invariant()
    def the_tables_agree(self) -> None:
        self.run(audit(self.database))


def _plain(nc: NC) -> tuple[object, ...]:
    ips = {(ip.id, number(ip.address)) for ip in nc.secondary}
    assert nc.waiting == max(0, nc.target - len(ips))
    leaving = {(ip.id, number(ip.address)) for ip in nc.leaving}
    plain = (nc.node, nc.subnet, number(nc.primary), nc.version, nc.shown_as, nc.target)
    return plain, (ips, leaving)


class OnSqlite(DncAgainstModel):
    open = staticmethod(open_sqlite)


TestDncOnSqlite = OnSqlite.TestCase
TestDncOnSqlite.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.mark.postgres
def test_dnc_on_postgres(postgres: Postgres) -> None:
    url = postgres.new_database()

    async def emptied() -> Database:
        database = await open_postgres(url, connections=1)

        async def work(tx: Transaction) -> None:
            await tx.script("TRUNCATE networks, subnets, pages, ncs, ips, conflicts, waits")

        await database.transaction(work)
        return database

    class OnPostgres(DncAgainstModel):
        open = staticmethod(emptied)

    bounds = settings(
        max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(OnPostgres, settings=bounds)
