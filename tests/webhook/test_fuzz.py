"""100,000 malformed and hostile reviews through the real server: always an answer, and no memory is kept."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from subnetes.api.conversion import HUB, OLD, convert
from subnetes.webhook.review import answer
from tests.webhook.world import (
    Object,
    Webhook,
    authority,
    old_nnc,
    post,
    response_of,
    review,
    session,
    webhook,
    with_files,
)

REVIEWS, SETTLED, CONNECTIONS = 100_000, 20_000, 8
SLACK = 4 << 20  # bytes that the resident set may grow by after it settled
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**70), 1e308, "", "x", "\u0000",
    "\ud7ff\U0001f600", "x" * 5000, [], {}, [[]], {"": None}, [None] * 50, {"a": {"b": {"c": []}}}, HUB, OLD,
    "acn.azure.com/v9", "1e999", "{}", "[]", '{"secondaryIPs":7}', "../../etc/passwd", "%s%n",
    "NodeNetworkConfig", "Secret",
]  # fmt: skip
CRUMBS = [
    b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\xff", b"\xed\xa0\x80",
    b"\x00", b"NaN", b"Infinity", b"-", b"1e999", b"9" * 400, b"null", b"true", b" ", b"\n", b'"":',
    b'"uid":"x",', b"/*", b"'", b"\xef\xbb\xbf", b"[" * 300, b'{"a":' * 300,
]  # fmt: skip
KEYS = ["", "x", "metadata", "spec", "status", "annotations", "uid", "objects", "acn.azure.com/conversion"]


def seeds() -> list[Object]:
    """Valid reviews in both directions, small and not so small."""
    made = []
    for addresses in (0, 1, 3):
        old = old_nnc("node", addresses)
        new = convert(old, HUB)
        carried = dict(new["metadata"].get("annotations") or {})
        carried["acn.azure.com/conversion"] = '{"secondaryIPs":{"a":3},"requestedIPCount":4}'
        odd = new | {"metadata": new["metadata"] | {"annotations": carried}}
        for objects, target in (([old], HUB), ([new], OLD), ([odd], OLD), ([old, old, old], HUB)):
            made.append(json.loads(review(objects, target)))
    return made


def places(value: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """Every (container, key) of the document."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        places(item, found)
    return found


def mutated(dice: random.Random, document: Object) -> bytes:
    """One to four wounds to its meaning, to its text, or to both."""
    hurt = copy.deepcopy(document)
    if dice.random() < 0.7:
        for _ in range(dice.randint(1, 4)):
            container, key = dice.choice(places(hurt) or [(hurt, "request")])
            wound(dice, container, key)
    text = json.dumps(hurt, ensure_ascii=dice.random() < 0.5).encode(errors="surrogatepass")
    if dice.random() < 0.5:
        for _ in range(dice.randint(1, 3)):
            text = torn(dice, text)
    return text


def wound(dice: random.Random, container: Any, key: Any) -> None:
    match dice.randrange(5):
        case 0:
            container[key] = odd(dice)
        case 1:
            del container[key]
        case 2 if isinstance(container, dict):
            container[dice.choice(KEYS)] = container.pop(key)
        case 3:
            container[key] = {"a": container[key]} if dice.random() < 0.5 else [container[key]] * 3
        case _ if isinstance(container, dict):
            container[dice.choice(KEYS)] = odd(dice)
        case _:
            container.append(odd(dice))


def odd(dice: random.Random) -> Any:
    return copy.deepcopy(dice.choice(ODD))


def torn(dice: random.Random, text: bytes) -> bytes:
    begin = dice.randint(0, len(text))
    end = min(len(text), begin + dice.choice([0, 0, 1, 1, 2, 10, 1000]))
    if dice.random() < 0.1:
        return text[:begin]
    return text[:begin] + dice.choice(CRUMBS) + text[end:]


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_every_kind_of_wound_is_dealt() -> None:
    """The fuzz is worth something: whole ones, refused ones and torn ones are all among them."""
    dice, valid = random.Random(1), seeds()
    answers = [answer(mutated(dice, dice.choice(valid))) for _ in range(2000)]
    for each in answers:
        response_of(each.body)
    seen = {(each.status, each.result) for each in answers}
    assert seen == {(200, "Success"), (200, "Failure"), (400, "Failure")}


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_hundred_thousand_hostile_reviews_are_answered_in_flat_memory(tmp_path: Path) -> None:
    made = authority(tmp_path)
    with webhook(tmp_path, *with_files(made.issue("webhook")), "--drain=0") as served:
        valid = seeds()
        await send(served, made.file, valid, SETTLED, 1)
        settled = resident(served.pid)
        await send(served, made.file, valid, REVIEWS - SETTLED, 2)
        grown = resident(served.pid) - settled
        assert served.child.process.poll() is None
        assert "Traceback" not in served.child.tail(10**7)
        assert grown < SLACK, f"{grown / 1e6:.1f} MB more after {REVIEWS:,} reviews than after {SETTLED:,}"
        async with session(made.file) as client:
            _, whole = await post(client, served.url, review([old_nnc()]))
            assert response_of(whole)["result"]["status"] == "Success"


async def send(served: Webhook, trusted: Path, valid: list[Object], count: int, seed: int) -> None:
    async def one(client: Any, number: int) -> None:
        dice = random.Random(f"{seed}/{number}")
        for _ in range(count // CONNECTIONS):
            body = mutated(dice, dice.choice(valid))
            status, answered = await post(client, served.url, body)
            assert status in (200, 400), body
            response_of(answered)

    async with session(trusted, CONNECTIONS) as client, asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(one(client, number))
