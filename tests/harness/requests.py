"""How often an API server was asked for what, by its own count, be it the embedded or the real one.

before = requests(server)
...
made = requests(server) - before
assert made["PATCH", "nodenetworkconfigs", "status", 200] == 1

A watch is counted when it ends. A collection that is asked for one metadata.name counts as GET, not as LIST.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from tests.harness.rest import Rest

Request = tuple[str, str, str, int]  # verb, resource, subresource, code
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


class Counting(Protocol):
    url: str
    ca_file: Path
    token: str


def requests(server: Counting) -> Counter[Request]:
    """Every request for a resource that is over by now."""
    found: Counter[Request] = Counter()
    text = Rest(server.url, server.ca_file, server.token).get("/metrics").body.decode()
    for family in text_string_to_metric_families(_counters(text)):
        for sample in family.samples:
            label = sample.labels
            if label["resource"]:
                request = label["verb"], label["resource"], label["subresource"], int(label["code"])
                found[request] += int(sample.value)
    return found


def writes(made: Counter[Request], resource: str) -> int:
    """How many of these changed, or tried to change, an object of this resource."""
    return sum(count for (verb, of, _, _), count in made.items() if of == resource and verb in WRITES)


def _counters(text: str) -> str:
    """Only the lines of the one metric: the real server has ten thousand others."""
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith("apiserver_request_total{"))
