"""A review's answer, from bytes to bytes."""

import io
import json
import os
from typing import Any

import pytest

from subnetes.api.conversion import HUB, OLD, convert
from subnetes.webhook import review as reviewing
from subnetes.webhook.bulk import convert_file
from subnetes.webhook.review import answer
from tests.webhook.world import old_nnc, response_of, review

DEEP = {"a": None}
for _ in range(400):
    DEEP = {"a": DEEP}  # type: ignore[dict-item]


def apart(body: bytes) -> tuple[int, bytes]:
    """As bulk.py answers it."""
    out = io.BytesIO()
    code = convert_file(body, out, os.getppid())
    return {0: 200, 3: 400}[code], out.getvalue()


def test_objects_come_back_in_order_with_the_uid() -> None:
    objects = [old_nnc(f"node-{number}") for number in range(5)]
    answered = answer(review(objects, HUB, "u-7"))
    response = response_of(answered.body)
    assert answered.status == 200
    assert response["uid"] == "u-7"
    assert response["convertedObjects"] == [convert(each, HUB) for each in objects]
    back = response_of(answer(review(response["convertedObjects"], OLD)).body)
    for old, new in zip(objects, back["convertedObjects"], strict=True):
        assert (new["spec"], new["status"]) == (old["spec"], old["status"])


def test_a_review_of_nothing_succeeds() -> None:
    assert response_of(answer(review([])).body)["convertedObjects"] == []


def test_one_object_that_fails_fails_all_and_is_named() -> None:
    bad = old_nnc("node-bad")
    bad["spec"]["requestedIPCount"] = "many"
    for status, body in (answer(review([old_nnc(), bad]))[:2], apart(review([old_nnc(), bad]))):
        response = response_of(body)
        assert (status, response["uid"]) == (200, "review-1")
        message = response["result"]["message"]
        assert "NodeNetworkConfig kube-system/node-bad (objects[1])" in message
        assert "requestedIPCount" in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "ClusterSubnet"}, "ClusterSubnet kube-system/node-1 (objects[0]) of acn.azure.com/v1alpha"),
        ({"apiVersion": "apps/v1"}, "of apps/v1: only NodeNetworkConfig"),
        ({"apiVersion": "acn.azure.com/v2"}, "of acn.azure.com/v2"),
        ({"apiVersion": None}, "of (nothing)"),
        ({"metadata": None}, "(unnamed) (objects[0]): it has no metadata"),
        ({"metadata": {"name": "x" * 10_000}, "kind": "No"}, "x" * 253),
    ],
)
def test_what_is_not_ours_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    body = review([old_nnc() | change])
    for status, text in (answer(body)[:2], apart(body)):
        response = response_of(text)
        assert (status, response["result"]["status"]) == (200, "Failure")
        assert said in response["result"]["message"]
        assert len(response["result"]["message"]) <= 2000


@pytest.mark.parametrize("target", ["acn.azure.com/v2", "apps/v1", "", None, 7, {}, [HUB]])
def test_an_unknown_version_is_refused(target: Any) -> None:
    for status, text in (answer(review([], target))[:2], apart(review([], target))):
        response = response_of(text)
        assert (status, response["result"]["status"]) == (200, "Failure")
        assert f"the versions are {HUB} and {OLD}" in response["result"]["message"]


HEAD = b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":'
NO_REVIEWS = [
    b"",
    b"null",
    b"[]",
    b"7",
    b"{",
    b"\xff\xfe\x00",
    b'"\xed\xa0\x80"',
    b'{"a":"\\ud800"}',
    b"NaN",
    b"[1e999]",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b"{}",
    review([]).replace(b"apiextensions.k8s.io/v1", b"apiextensions.k8s.io/v1beta1"),
    review([]).replace(b"ConversionReview", b"AdmissionReview"),
    HEAD + b"null}",
    HEAD + b"[]}",
    HEAD + b'"x"}',
    HEAD + b"}",
]


@pytest.mark.parametrize("body", NO_REVIEWS, ids=lambda body: repr(body[:30]))
def test_what_is_no_review_gets_a_failure_with_400(body: bytes) -> None:
    for status, text in (answer(body)[:2], apart(body)):
        response = response_of(text)
        assert (status, response["uid"], response["result"]["status"]) == (400, "", "Failure")


@pytest.mark.parametrize(
    "body",
    [
        review([], uid=7),
        review([], uid=None),
        review([], uid={"a": 1}),
        review({"a": 1}),  # type: ignore[arg-type]
        review("x"),  # type: ignore[arg-type]
        review([None]),
        review([[]]),
        review([7]),
        review([DEEP]),
        review([old_nnc() | {"spec": DEEP}]),
        review([old_nnc() | {"spec": 7}]),
        review([old_nnc() | {"status": {"networkContainers": [None]}}]),
        review([old_nnc() | {"status": {"networkContainers": [{"ipAssignments": [7]}]}}]),
        review([old_nnc() | {"metadata": {"annotations": {"a": 7}}}]),
        review([old_nnc()]).replace(b'"requestedIPCount": 3', b'"requestedIPCount": 1e400'),
        review([old_nnc()]).replace(b'"requestedIPCount": 3', b'"requestedIPCount": 3e30'),
    ],
    ids=lambda body: repr(body[90:140]),
)
def test_hostile_parts_of_a_review_fail_it(body: bytes) -> None:
    for text in (answer(body).body, apart(body)[1]):
        assert response_of(text)["result"]["status"] == "Failure"


def test_the_last_of_two_equal_keys_counts() -> None:
    body = review([old_nnc()]).replace(b'"uid": "review-1"', b'"uid": "first", "uid": "second"')
    for text in (answer(body).body, apart(body)[1]):
        assert response_of(text)["uid"] == "second"


def test_numbers_that_json_cannot_hold_are_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(obj: dict[str, Any], _target: str) -> dict[str, Any]:
        return obj | {"spec": {"requestedIPCount": 2**64}}

    monkeypatch.setattr(reviewing, "convert", growing)
    body = review([old_nnc()])
    for text in (answer(body).body, apart(body)[1]):
        response = response_of(text)
        assert response["result"]["status"] == "Failure"
        assert "node-1" in response["result"]["message"]


def test_a_mistake_of_the_conversion_is_a_failure_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(_obj: object, _target: str) -> dict[str, Any]:
        raise KeyError("oops")

    monkeypatch.setattr(reviewing, "convert", mistaken)
    response = response_of(answer(review([old_nnc()])).body)
    assert "node-1 (objects[0]): internal error: KeyError" in response["result"]["message"]
    assert "oops" in caplog.text  # for us, with the traceback


def test_a_large_review_says_the_same_as_a_small_one() -> None:
    for objects in ([], [old_nnc()], [old_nnc(f"n{number}") for number in range(20)]):
        for target in (HUB, OLD):
            body = review(objects, target)
            assert json.loads(apart(body)[1]) == json.loads(answer(body).body)
