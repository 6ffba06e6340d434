"""`subnetes ipam check` on a live API server: clean, wrong and blind, with the exit codes for scripts."""

import asyncio
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subnetes.api.crd import crds
from subnetes.cli import ipam
from subnetes.cli.main import main
from subnetes.cli.reading import CannotLook, journals
from subnetes.cns.containers import Container
from subnetes.cns.journal import Journal, this_boot
from subnetes.dnc.http_server import serving
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.dnc.tokens import Tokens
from subnetes.dnc.types import NC, AdoptedNC, SecondaryIP, SubnetKey
from subnetes.ipam.moves import IP, Assigned, Granted, Holder, State
from subnetes.ipam.pool import Pool
from subnetes.ipam.snapshot import Container as Recorded
from subnetes.ipam.snapshot import Grant, NodeConfig, NodePool, Snapshot
from tests.harness.embedded import Embedded
from tests.harness.rest import Rest
from tests.harness.widgets import install

pytestmark = pytest.mark.slow

NNCS = "/apis/acn.azure.com/v1beta1/namespaces/kube-system/nodenetworkconfigs"
TOKEN = "blue-token-0123456789"
CLEAN = "clean: 1 nodes, 1 network containers, 3 secondary IPs, 1 journals, 1 assigned there, 1 pods"
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Embedded]:
    with Embedded() as started:
        rest = Rest(started.url, started.ca_file, started.token)
        for each in crds():
            install(rest, each)
        yield started


@pytest.fixture
def node(server: Embedded, tmp_path: Path) -> "Iterator[Planted]":
    planted = Planted(Rest(server.url, server.ca_file, server.token), tmp_path)
    planted.plant()
    yield planted
    planted.remove()


@pytest.fixture
def check(server: Embedded, capsys: pytest.CaptureFixture[str]) -> Check:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["ipam", "check", "--kubeconfig", str(server.kubeconfig), "--apart=0", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


class Planted:
    """A node with three IPs, of which a pod uses one, as its NNC, its journal and DNC tell it."""

    def __init__(self, rest: Rest, folder: Path) -> None:
        self.rest, self.folder = rest, folder
        self.name, self.nc = f"n-{uuid.uuid4().hex[:6]}", str(uuid.uuid4())
        self.ids = [str(uuid.uuid4()) for _ in range(3)]
        self.ips = [f"10.9.0.{i}" for i in (10, 11, 12)]
        self.state = folder / "agents" / "one"
        netns = folder / "netns"
        netns.touch()
        self.holder = Holder(
            "c" * 64, "eth0", "net", "default", self.name, "", str(netns), netns.stat().st_ino
        )

    def status(self) -> dict[str, Any]:
        granted = [{"id": i, "address": a} for i, a in zip(self.ids, self.ips, strict=True)]
        nc = {
            "id": self.nc,
            "primaryIP": "10.9.0.1",
            "subnetAddressSpace": "10.9.0.0/24",
            "subnetName": "s",
            "version": 1,
            "secondaryIPs": granted,
        }
        return {"networkContainers": [nc], "status": "Updated"}

    def plant(self) -> None:
        nnc = {
            "apiVersion": "acn.azure.com/v1beta1",
            "kind": "NodeNetworkConfig",
            "metadata": {"name": self.name, "namespace": "kube-system"},
            "spec": {"secondaryIPs": {self.nc: 3}},
        }
        self.rest.post(NNCS, nnc).ok()
        self.rest.patch(f"{NNCS}/{self.name}/status", {"status": self.status()}).ok()
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": {"nodeName": self.name},
        }
        self.rest.post("/api/v1/namespaces/default/pods", pod).ok()
        status = {"phase": "Running", "podIP": self.ips[0], "podIPs": [{"ip": self.ips[0]}]}
        self.rest.patch(f"/api/v1/namespaces/default/pods/{self.name}/status", {"status": status}).ok()
        self.write_journal()

    def write_journal(self, *, assigned: bool = True, boot: str | None = None) -> None:
        journal = Journal(self.state / "journal", boot or this_boot())
        container = Container(self.nc, "s", "10.9.0.0/24", 24)
        journal.compact(Pool(), [container])
        pairs = tuple(zip(self.ids, self.ips, strict=True))
        journal.append(Granted(nc=self.nc, ips=pairs, at=1.0, programmed=True))
        if assigned:
            journal.append(Assigned(ids=(self.ids[0],), holder=self.holder, at=2.0))
        journal.close()

    def dnc(self) -> list[NC]:
        held = tuple(SecondaryIP(i, a) for i, a in zip(self.ids, self.ips, strict=True))
        key = SubnetKey("", "s", 4)
        return [NC(self.nc, "local", self.name, key, "10.9.0.1", 1, held, 3, 0, "10.9.0.1", "10.9.0.0/24")]

    def memory(self, state: State = State.ASSIGNED) -> dict[str, Any]:
        ips = [IP(i, a, self.nc, State.AVAILABLE, None, 1.0) for i, a in zip(self.ids, self.ips, strict=True)]
        if state is State.ASSIGNED:
            ips[0] = msgspec.structs.replace(ips[0], state=state, holder=self.holder)
        return {"ips": ips}

    def remove(self) -> None:
        self.rest.delete(f"{NNCS}/{self.name}")
        self.rest.delete(f"/api/v1/namespaces/default/pods/{self.name}", {"gracePeriodSeconds": 0})


@pytest.fixture
def told() -> Iterator[Callable[[str, Any], str]]:
    """A stand-in for a listener: what to answer at which path; answers its URL."""
    servers: list[ThreadingHTTPServer] = []

    def tell(path: str, what: Any) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == path else 503)
                self.end_headers()
                self.wfile.write(msgspec.json.encode(what))

            def log_message(self, *_: Any) -> None: ...

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield tell
    for each in servers:
        each.shutdown()
        each.server_close()


def test_a_clean_cluster_is_said_to_be_clean(
    check: Check, node: Planted, told: Callable[[str, Any], str]
) -> None:
    dnc, agent = told("/debug/ncs", node.dnc()), told("/debug/pool", node.memory())
    words = ("--wait-settled=0", f"--dnc={dnc}", f"--state-dir={node.folder / 'agents'}", f"--agent={agent}")
    assert check(*words) == (
        0,
        f"{CLEAN}; DNC asked\n",
        "",
    )


def test_what_dnc_lost_is_found(check: Check, node: Planted, told: Callable[[str, Any], str]) -> None:
    dnc = told("/debug/ncs", [])
    code, out, _ = check("--wait-settled=0", f"--dnc={dnc}", f"--state-dir={node.name}={node.state}")
    assert code == 1
    assert f"[2] {node.ips[0]} is in use by" in out
    assert f"[3] NC {node.nc} of node {node.name}" in out


@pytest.fixture
def service(node: Planted) -> Iterator[str]:
    """A DNC of its own, which has adopted the node's NC."""
    started, stop, urls = threading.Event(), asyncio.Event(), []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        allocator = SqlAllocator(await open_sqlite())
        held = node.dnc()[0]
        adopted = AdoptedNC(
            held.id, held.node, held.subnet, held.cidr, "10.9.0.254", held.primary, 1, held.secondary
        )
        assert await allocator.adopt("blue", [adopted]) == ()
        async with serving(allocator, Tokens({TOKEN: "blue"}), "127.0.0.1", 0) as url:
            urls.append(url)
            started.set()
            await stop.wait()
        await allocator.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(30)
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_a_dnc_of_its_own_is_asked_with_the_clusters_token(
    check: Check, node: Planted, service: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    words = ("--wait-settled=0", f"--dnc={service}", f"--state-dir={node.state}", "--cluster=blue")
    assert check(*words, f"--dnc-token-file={tmp_path / 'token'}")[:2] == (0, f"{CLEAN}; DNC asked\n")
    assert check(*words)[0] == 2


def test_an_agent_whose_memory_differs_is_found(
    check: Check, node: Planted, told: Callable[[str, Any], str]
) -> None:
    agent = told("/debug/pool", node.memory(State.AVAILABLE))
    code, out, _ = check(f"--state-dir={node.state}", f"--agent={agent}")
    assert (code, "[4] the agent of node" in out, node.ids[0] in out) == (1, True, True)


def test_a_freed_ip_of_a_live_pod_is_found_and_told_to_programs(check: Check, node: Planted) -> None:
    node.write_journal(assigned=False)
    code, out, _ = check(f"--state-dir={node.state}", "-o", "json")
    answer = json.loads(out)
    assert code == 1
    assert [(each["number"], each["subject"]) for each in answer["violations"]] == [(7, node.ips[0])]
    assert answer["counts"]["journals"] == 1


def test_a_dead_sandbox_that_keeps_its_ip_is_a_leak(check: Check, node: Planted) -> None:
    Path(node.holder.netns).unlink()
    code, out, _ = check("--wait-settled=0", f"--state-dir={node.state}")
    assert code == 1
    assert f"[3] {node.ips[0]} is assigned on node {node.name} to sandbox" in out
    assert check(f"--state-dir={node.state}")[0] == 0  # it may be on its way


def test_what_an_earlier_boot_assigned_is_void(check: Check, node: Planted) -> None:
    Path(node.holder.netns).unlink()
    node.write_journal(boot="another")
    node.rest.delete(f"/api/v1/namespaces/default/pods/{node.name}", {"gracePeriodSeconds": 0})
    assert check("--wait-settled=0", f"--state-dir={node.state}")[0] == 0


def test_two_nncs_with_one_address_are_found_without_a_journal(check: Check, node: Planted) -> None:
    other = Planted(node.rest, node.folder)
    other.plant()
    code, out, _ = check()
    other.remove()
    assert code == 1
    assert f"[1] {node.ips[0]} has 2 owners" in out
    assert node.nc in out
    assert other.nc in out


def test_what_cannot_be_asked_is_said(check: Check, node: Planted, told: Callable[[str, Any], str]) -> None:
    closed = "http://127.0.0.1:1"
    not_leading = told("/elsewhere", "this replica does not lead")
    nonsense = told("/debug/ncs", {"x": 1})
    for words, why in [
        ((f"--dnc={closed}",), "does not answer"),
        ((f"--dnc={not_leading}",), "answers 503: "),
        ((f"--dnc={nonsense}",), "does not answer as DNC-RC does"),
        ((f"--agent={closed}",), "does not answer"),
        ((f"--state-dir={node.folder / 'agents' / 'one'}", f"--kubeconfig={node.folder / 'no'}"), "/no"),
    ]:
        code, out, err = check(*words)
        assert (code, out) == (2, "")
        assert why in err


def test_a_folder_without_a_journal_is_said(check: Check, tmp_path: Path) -> None:
    assert check(f"--state-dir={tmp_path}")[0] == 2
    with pytest.raises(CannotLook, match="there is no journal in"):
        list(journals([("", tmp_path)]))
    with pytest.raises(SystemExit):
        check(f"--state-dir={tmp_path / 'nowhere'}")


class Scripted:
    """Reads what it is told to."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self.left = list(snapshots)

    async def read(self) -> Snapshot:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


GOOD = Snapshot(configs=(NodeConfig("n"),))
BAD = Snapshot(configs=(NodeConfig("n", targets={"x": 1}),))
WORSE = Snapshot(configs=(NodeConfig("n", targets={"x": 1, "y": 1}),))


@pytest.mark.parametrize(
    ("readings", "subjects"),
    [
        ([GOOD], []),
        ([BAD, GOOD], []),
        ([BAD, BAD], ["n x"]),
        ([GOOD, BAD, GOOD], []),
        ([GOOD, BAD, BAD], ["n x"]),
        ([BAD, WORSE, BAD], ["n x"]),
        ([BAD, GOOD, BAD], []),
    ],
)
def test_only_what_stands_in_two_readings_is_told(readings: list[Snapshot], subjects: list[str]) -> None:
    reader: Any = Scripted(*readings)
    found, _ = asyncio.run(ipam.watched(reader, None, apart=0))
    assert [each.subject for each in found] == subjects


def test_a_cluster_may_take_its_time_to_settle() -> None:
    nc = Recorded("nc", "n", cidr="10.0.0.0/24", secondary=(Grant("i", "10.0.0.9"),))
    unsettled = Snapshot(configs=(NodeConfig("n", (nc,)),), pools=(NodePool("n"),))
    settled = Snapshot(configs=(NodeConfig("n"),), pools=(NodePool("n"),))
    times = iter(range(100))
    for patience, expected in [(50.0, 0), (1.0, 1)]:
        reader: Any = Scripted(*[unsettled] * 5, settled)
        watching = ipam.watched(reader, patience, apart=0, clock=lambda: float(next(times)))
        assert len(asyncio.run(watching)[0]) == expected
