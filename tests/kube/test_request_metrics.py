"""Both servers count requests under the same names: what a scenario asserts on one holds on the other."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.embedded import Embedded
from tests.harness.requests import Counting, requests, writes
from tests.harness.rest import Rest, eventually
from tests.harness.widgets import GROUP, widget

Asked = Callable[[Rest, str], Any]
METRIC = "apiserver_request_total{"
ONE, MANY = "resource", "namespace"


def counters(rest: Rest) -> Counter[str]:
    """What is said of widgets, word for word."""
    lines = rest.get("/metrics").body.decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(METRIC) and '"widgets"' in line)
    return Counter({labels: int(float(count)) for labels, _, count in found})


def is_all(server: Counting, seen: Any, made: Any) -> bool:
    """The real server may have a controller-manager by now, which empties the namespaces of earlier tests."""
    return bool(seen == made if isinstance(server, Embedded) else seen >= made)


def without_other_watches(seen: Counter[str], made: Counter[str]) -> Counter[str]:
    return Counter({each: n for each, n in seen.items() if each in made or 'verb="WATCH"' not in each})


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
    server: Counting, rest: Rest, widgets: str, ask: Asked, expected: list[str]
) -> None:
    before = counters(rest)
    rest.post(widgets, widget("a")).ok()
    ask(rest, widgets)
    made = Counter([line("POST", 201, ONE), *expected])
    # A server may count after it answered, and an earlier test's watch when it ends.
    eventually(
        lambda: without_other_watches(counters(rest) - before, made), lambda seen: is_all(server, seen, made)
    )


def test_the_reader_counts_writes_of_one_kind(server: Counting, rest: Rest, widgets: str) -> None:
    before = requests(server)
    rest.post(widgets, widget("a")).ok()
    rest.patch(f"{widgets}/a", {"spec": {"size": 2}}).ok()
    rest.patch(f"{widgets}/a/status", {"status": {}}).ok()
    rest.get(f"{widgets}/a").ok()
    made = eventually(lambda: requests(server) - before, lambda seen: seen["GET", "widgets", "", 200] == 1)
    assert made["PATCH", "widgets", "status", 200] == 1
    assert is_all(server, writes(made, "widgets"), 3)
