"""What `subnetes status` shows, and how a command finds its cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec, ClusterSubnetStatus, Scaler
from subnetes.api.core import Pod, PodIP, PodSpecView, PodStatusView
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cli.connection import CannotGoOn, kubeconfigs
from subnetes.cli.status import PoolRow, pool_rows, pool_table, subnet_table


def nnc(name: str, *containers: NetworkContainer, status: str = "", **asked: int) -> NodeNetworkConfig:
    return NodeNetworkConfig(
        metadata=ObjectMeta(name=name),
        spec=NodeNetworkConfigSpec(secondary_ips=asked),
        status=NodeNetworkConfigStatus(network_containers=list(containers), status=status),
    )


def container(name: str, *addresses: str, status: str = "NCUpdateSuccess") -> NetworkContainer:
    granted = [SecondaryIP(address=each, id=f"id-{each}") for each in addresses]
    return NetworkContainer(id=name, subnet_name="pods", secondary_ips=granted, status=status)


def pod(node: str, *addresses: str, phase: str = "Running", host: bool = False) -> Pod:
    return Pod(
        spec=PodSpecView(node_name=node, host_network=host),
        status=PodStatusView(phase=phase, pod_ips=[PodIP(ip=each) for each in addresses]),
    )


def test_a_pool_counts_what_its_live_pods_hold_of_what_was_granted() -> None:
    pods = [
        pod("a", "10.0.0.5"),
        pod("a", "10.0.0.6", phase="Succeeded"),
        pod("a", "192.0.2.1", host=True),
        pod("b", "10.0.0.5"),
    ]
    assert pool_rows([nnc("a", container("nc1", "10.0.0.5", "10.0.0.6"), nc1=2)], pods) == [
        PoolRow("a", "nc1", "pods", requested=2, granted=2, assigned=1)
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (nnc("a", container("n", status="NCUpdateSubnetFullError"), n=5), "5 IPs: pods is full"),
        (nnc("a", container("n"), n=5), "5 IPs: the grant is under way"),
        (nnc("a", container("n", "10.0.0.5", "10.0.0.6"), n=1), "1 IPs to be taken back"),
        (nnc("a"), "its first network container"),
        (nnc("a", status="Error"), "a primary IP: the subnet is full"),
        (nnc("a", container("n", "10.0.0.5"), n=1), ""),
    ],
)
def test_why_a_node_waits_is_said(config: NodeNetworkConfig, said: str) -> None:
    (row,) = pool_rows([config], [])
    assert row.waiting == said


def test_the_tables_show_subnets_and_pools() -> None:
    status = ClusterSubnetStatus(
        capacity=253, reserved=17, exhausted=True, scaler=Scaler(batch=16, buffer=0.5)
    )
    subnets = [
        ClusterSubnet(
            metadata=ObjectMeta(name="pods"),
            spec=ClusterSubnetSpec(address_space=["10.0.0.0/24"]),
            status=status,
        ),
        ClusterSubnet(metadata=ObjectMeta(name="new"), spec=ClusterSubnetSpec(address_space=["10.1.0.0/24"])),
    ]
    console = Console(record=True, width=120, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(subnet_table(subnets))
    console.print(pool_table([PoolRow("a", "0123456789", "pods", 2, 1, 1, "1 IPs")]))
    console.file.close()
    lines = [line.split() for line in console.export_text().splitlines()]
    words = [[word for word in line if word.strip("│┃")] for line in lines]
    assert ["pods", "10.0.0.0/24", "253", "17", "yes", "16", "0.5"] in words
    assert ["new", "10.1.0.0/24", "not", "looked", "at", "yet"] in words
    assert ["a", "01234567", "pods", "2", "1", "1", "1", "IPs"] in words


def test_the_kubeconfig_is_the_one_given_then_the_environments_then_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = tmp_path / "given"
    assert kubeconfigs(given, {"KUBECONFIG": "/e"}) == [given]
    assert kubeconfigs(None, {"KUBECONFIG": "/e:/f"}) == [Path("/e"), Path("/f")]
    with pytest.raises(CannotGoOn, match="subnetes up"):
        kubeconfigs(None, {})
    ours = tmp_path / ".subnetes" / "kubeconfig"
    ours.parent.mkdir()
    ours.touch()
    assert kubeconfigs(None, {}) == [ours]


SOURCES = Path(__file__).parents[2] / "src"
UNREACHABLE = """
{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}],
 users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status"], "is `subnetes up` running?"),
        (["status", "--kubeconfig=/nowhere"], "/nowhere"),
        (["status", "--kubeconfig=unreachable"], "the API server does not answer"),
        (["demo", "burst", "--kubeconfig=unreachable"], "the API server does not answer"),
        (["demo", "clear", "--kubeconfig=unreachable"], "the API server does not answer"),
    ],
)
def test_what_stands_in_the_way_is_one_line_and_exit_code_1(
    tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "unreachable").write_text(UNREACHABLE)
    done = subprocess.run(
        [sys.executable, "-m", "subnetes.cli.main", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": str(SOURCES)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["demo"], ["demo", "burst", "--pods=0"], ["demo", "burst", "--pods=x"]])
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from subnetes.cli.main import parser

    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
