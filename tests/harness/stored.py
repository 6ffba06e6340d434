"""In which versions an API server really keeps its objects, past the API: SQLite's rows, etcd's keys."""

from __future__ import annotations

import base64
import json
import sqlite3
import urllib.request
from collections import Counter
from pathlib import Path


def in_sqlite(folder: Path, resource: str) -> Counter[str]:
    """How many objects of a resource ("plural.group") are stored in which apiVersion; the embedded server."""
    query = (
        "SELECT log.value FROM current JOIN log ON log.rv = current.rv AND log.resource = current.resource"
        " WHERE current.resource = ?"
    )
    database = sqlite3.connect(f"file:{folder / 'objects.db'}?mode=ro", uri=True)
    try:
        return Counter(json.loads(row[0])["apiVersion"] for row in database.execute(query, (resource,)))
    finally:
        database.close()


def in_etcd(url: str, resource: str) -> Counter[str]:
    """The same of the real server, through etcd's JSON gateway."""
    plural, _, group = resource.partition(".")
    first = f"/registry/{group}/{plural}/".encode()
    end = first[:-1] + bytes([first[-1] + 1])
    body = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(end).decode()}
    request = urllib.request.Request(f"{url}/v3/kv/range", data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer).get("kvs", [])
    return Counter(json.loads(base64.b64decode(each["value"]))["apiVersion"] for each in found)
