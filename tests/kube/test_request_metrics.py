"""Both servers count requests under the same names: what a scenario asserts on one holds on the other."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.requests import Counting, requests, writes
from tests.harness.rest import Rest, eventually
from tests.harness.widgets import GROUP, collection, install, widget, widget_crd

pytestmark = pytest.mark.slow

Asked = Callable[[Rest, str], Any]
METRIC = "apiserver_request_total{"
ONE, MANY = "resource", "namespace"


def counters(rest: Rest) -> Counter[str]:
    """What is said of widgets, word for word."""
    lines = rest.get("/metrics").body.decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(METRIC) and '"widgets"' in line)
    return Counter({labels: int(float(count)) for labels, _, count in found})


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Iterator[Counting]:
    """One of this file's own: nobody else's requests are in its counts."""
    if request.param == "embedded":
        with Embedded() as embedded:
            yield embedded
    else:
        with ControlPlane(request.getfixturevalue("assets")) as real:
            yield real


@pytest.fixture(scope="module")
def rest(server: Counting) -> Rest:
    found = Rest(server.url, server.ca_file, server.token)
    install(found, widget_crd())
    return found


@pytest.fixture
def widgets(rest: Rest) -> str:
    name = f"counted-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    rest.post("/api/v1/namespaces", body).ok()
    return collection(name)


def line(verb: str, code: int, scope: str, subresource: str = "", dry: str = "") -> str:
    return (
        f'{METRIC}code="{code}",component="apiserver",dry_run="{dry}",group="{GROUP}",resource="widgets",'
        f'scope="{scope}",subresource="{subresource}",verb="{verb}",version="v1"}}'
    )


def watch(rest: Rest, path: str, **query: Any) -> None:
    with rest.watch(path, timeoutSeconds=1, **query) as open_watch:
        open_watch.to_end()


ASKED: dict[str, tuple[Asked, list[str]]] = {
    "create": (lambda r, w: r.post(w, widget("b")), [line("POST", 201, ONE)]),
    "create again": (lambda r, w: r.post(w, widget("a")), [line("POST", 409, ONE)]),
    "nonsense": (lambda r, w: r.post(w, b"{"), [line("POST", 400, ONE)]),
    "get": (lambda r, w: r.get(f"{w}/a"), [line("GET", 200, ONE)]),
    "get what is not": (lambda r, w: r.get(f"{w}/z"), [line("GET", 404, ONE)]),
    "list": (lambda r, w: r.get(w), [line("LIST", 200, MANY)]),
    "list all": (lambda r, _: r.get(f"/apis/{GROUP}/v1/widgets"), [line("LIST", 200, "cluster")]),
    "list one": (lambda r, w: r.get(w, fieldSelector="metadata.name=a"), [line("GET", 200, ONE)]),
    "watch": (lambda r, w: watch(r, w), [line("WATCH", 200, MANY)]),
    "watch one": (lambda r, w: watch(r, w, fieldSelector="metadata.name=a"), [line("WATCH", 200, ONE)]),
    "patch": (lambda r, w: r.patch(f"{w}/a", {"spec": {}}), [line("PATCH", 200, ONE)]),
    "dry": (lambda r, w: r.patch(f"{w}/a", {}, dryRun="All"), [line("PATCH", 200, ONE, dry="All")]),
    "status": (lambda r, w: r.patch(f"{w}/a/status", {}), [line("PATCH", 200, ONE, "status")]),
    "put": (
        lambda r, w: r.put(f"{w}/a", r.get(f"{w}/a").ok()),
        [line("GET", 200, ONE), line("PUT", 200, ONE)],
    ),
    "delete": (lambda r, w: r.delete(f"{w}/a"), [line("DELETE", 200, ONE)]),
    "delete all": (lambda r, w: r.delete(w), [line("DELETE", 200, MANY)]),
    "unknown subresource": (lambda r, w: r.get(f"{w}/a/scale"), []),
    "no token": (lambda r, w: r.as_user(None).get(f"{w}/a"), []),
}


@pytest.mark.parametrize(("ask", "expected"), ASKED.values(), ids=ASKED)
def test_a_request_is_counted_under_the_real_names(
    rest: Rest, widgets: str, ask: Asked, expected: list[str]
) -> None:
    before = counters(rest)
    rest.post(widgets, widget("a")).ok()
    ask(rest, widgets)
    made = Counter([line("POST", 201, ONE), *expected])
    # A server may count after it answered.
    eventually(lambda: counters(rest) - before, lambda seen: seen == made)


def test_the_reader_counts_writes_of_one_kind(server: Counting, rest: Rest, widgets: str) -> None:
    before = requests(server)
    rest.post(widgets, widget("a")).ok()
    rest.patch(f"{widgets}/a", {"spec": {"size": 2}}).ok()
    rest.patch(f"{widgets}/a/status", {"status": {}}).ok()
    rest.get(f"{widgets}/a").ok()
    made = eventually(lambda: requests(server) - before, lambda seen: seen["GET", "widgets", "", 200] == 1)
    assert made["PATCH", "widgets", "status", 200] == 1
    assert writes(made, "widgets") == 3
