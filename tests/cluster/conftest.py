"""A whole real Kubernetes for the tests of this folder, our components on it, gone when they are done."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.workload import Workload
from tests.harness import cluster as harness
from tests.harness.cluster import Cluster, ClusterImpossible, Setting

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.cluster, pytest.mark.real, pytest.mark.slow):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Who fails here wants the logs of the cluster, which is gone with the run."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        report.sections += [("cluster", each.logs()) for each in used if isinstance(each, Cluster)]
    return report


@pytest.fixture(scope="session")
def machine_is_fit() -> None:
    try:
        harness.possible()
    except ClusterImpossible as problem:
        pytest.skip(f"no cluster: {problem}")


@pytest.fixture(scope="package")
def cluster(machine_is_fit: None) -> Iterator[Cluster]:
    """Three nodes that share one large subnet, and whose agents let go soon."""
    with Cluster(Setting(agent_flags=["--shrink-after=2"])) as running:
        yield running


@pytest.fixture
def workload(cluster: Cluster) -> Iterator[Workload]:
    """A namespace for pods, which are gone, IPs included, when the test ends."""
    with Workload(cluster) as namespace:
        yield namespace
