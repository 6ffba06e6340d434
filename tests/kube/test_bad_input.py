"""Whatever is sent, the answer is a Kubernetes Status: on the embedded server the same as on the real one."""

import json

import pytest

from tests.harness.rest import JSON_PATCH, MERGE, Answer, Rest
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, widget

MEBIBYTE = 1024 * 1024


def is_a_status(answer: Answer) -> None:
    status = answer.json
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == answer.code >= 400
    assert status["message"]
    assert "Traceback" not in status["message"]


def nested(depth: int) -> bytes:
    head = json.dumps(widget("a"))[:-1].encode()
    return head + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"


BODIES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "BadRequest"),
    "cut-off": (b'{"apiVersion": "conformance.subnetes.io/v1", "kind": "Wid', 400, "BadRequest"),
    "not-json": (b"\x00\x01\x02", 400, "BadRequest"),
    "a-list": (b"[]", 400, "BadRequest"),
    "a-number": (b"7", 400, "BadRequest"),
    "null": (b"null", 400, "BadRequest"),
    "no-kind": (
        b'{"apiVersion": "conformance.subnetes.io/v1", "metadata": {"name": "a"}}',
        400,
        "BadRequest",
    ),
    "no-version": (b'{"kind": "Widget", "metadata": {"name": "a"}}', 400, "BadRequest"),
    "other-kind": (json.dumps(widget("a") | {"kind": "Gadget"}).encode(), 422, "Invalid"),
    "other-version": (json.dumps(widget("a") | {"apiVersion": f"{GROUP}/v2"}).encode(), 400, "BadRequest"),
    "other-group": (json.dumps(widget("a") | {"apiVersion": "apps/v1"}).encode(), 400, "BadRequest"),
    "list-kind": (json.dumps(widget("a") | {"kind": "WidgetList", "items": []}).encode(), 422, "Invalid"),
    "kind-is-a-number": (json.dumps(widget("a") | {"kind": 7}).encode(), 400, "BadRequest"),
    "metadata-is-a-list": (json.dumps(widget("a") | {"metadata": []}).encode(), 400, "BadRequest"),
    "labels-are-a-list": (json.dumps(widget("a", labels=["x"])).encode(), 400, "BadRequest"),
    "name-is-a-number": (json.dumps(widget("a") | {"metadata": {"name": 7}}).encode(), 400, "BadRequest"),
    "other-namespace": (json.dumps(widget("a", namespace="elsewhere")).encode(), 400, "BadRequest"),
    "spec-is-a-string": (json.dumps(widget("a") | {"spec": "x"}).encode(), 422, "Invalid"),
    "trailing": (json.dumps(widget("a")).encode() + b" tail", 400, "BadRequest"),
}
WORDS_OF_GO = {  # the real server quotes its JSON parser or the body, or warns of a body that it then refuses
    "no-kind",
    "other-version",
    "empty",
    "cut-off",
    "not-json",
    "a-list",
    "a-number",
    "null",
    "kind-is-a-number",
    "metadata-is-a-list",
    "labels-are-a-list",
    "name-is-a-number",
    "trailing",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_is_refused(twins: Twins, name: str) -> None:
    body, code, reason = BODIES[name]
    answers = [rest.post(twins.widgets, body) for rest in (twins.real, twins.embedded)]
    for answer in answers:
        is_a_status(answer)
        answer.failed(code, reason)
    if name not in WORDS_OF_GO:
        twins.ask("POST", twins.widgets, body)


@pytest.mark.parametrize("media", ["text/plain", "application/xml", JSON_PATCH, "nonsense"])
def test_a_body_of_an_unknown_type_is_unsupported(rest: Rest, widgets: str, media: str) -> None:
    answer = rest.request("POST", widgets, widget("a"), content_type=media)
    assert "application/json" in answer.failed(415, "UnsupportedMediaType")["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_body_over_three_mebibytes_is_too_large(twins: Twins, method: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    body = widget("a", annotations={"x": "y" * (3 * MEBIBYTE)}, resourceVersion="1")
    path = twins.widgets if method == "POST" else f"{twins.widgets}/a"
    media = MERGE if method == "PATCH" else "application/json"
    answer = twins.ask(method, path, body, content_type=media)
    answer.failed(413, "RequestEntityTooLarge")


def test_a_far_too_large_body_is_answered_or_hung_up_on(rest: Rest, widgets: str) -> None:
    try:
        rest.post(widgets, widget("a", annotations={"x": "y" * (32 * MEBIBYTE)})).failed(
            413, "RequestEntityTooLarge"
        )
    except OSError:  # the server need not read to the end before it answers and closes
        assert rest.get(widgets).ok()["items"] == []


def test_deep_nesting_is_refused_or_dropped_but_never_kills(rest: Rest, widgets: str) -> None:
    for depth in (100, 9_000, 100_000):
        answer = rest.post(widgets, nested(depth))
        assert answer.code in (201, 400), answer.body
        if answer.code == 400:
            is_a_status(answer)
        rest.delete(f"{widgets}/a")
    assert rest.get(widgets).code == 200


def test_numbers_beyond_any_integer_are_refused(rest: Rest, widgets: str) -> None:
    for number in (b"1e400", b"99999999999999999999", b"-99999999999999999999"):
        body = json.dumps(widget("a", {"size": "N"})).encode().replace(b'"N"', number)
        is_a_status(rest.post(widgets, body))


def test_text_that_is_not_utf8_is_never_an_internal_error(rest: Rest, widgets: str) -> None:
    body = json.dumps(widget("a", {"left": "L"})).encode().replace(b'"L"', b'"\xff\xfe"')
    answer = rest.post(widgets, body)
    assert answer.code in (201, 400), answer.body


def test_a_null_character_in_a_name_is_refused(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a\x00b")).failed(422, "Invalid")


MISSING = {
    "unknown-resource": f"/apis/{GROUP}/v1/namespaces/default/gizmos",
    "unknown-version": f"/apis/{GROUP}/v9/namespaces/default/widgets",
    "unknown-group": "/apis/nowhere.io/v1/namespaces/default/widgets",
    "unknown-core": "/api/v1/namespaces/default/gizmos",
    "unknown-subresource": f"/apis/{GROUP}/v1/namespaces/default/widgets/a/gizmo",
    "namespaced-without": f"/apis/{GROUP}/v1/widgets/a",
    "no-such-root": "/nothing/here",
}


@pytest.mark.parametrize("path", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_what_is_not_served_is_not_found(twins: Twins, method: str, path: str) -> None:
    answers = [
        rest.request(method, path, None if method in ("GET", "DELETE") else widget("a"), content_type=MERGE)
        for rest in (twins.embedded, twins.real)
    ]
    assert answers[0].code == answers[1].code == 404


WRONG_METHODS = {"delete-status": ("DELETE", "/a/status"), "post-status": ("POST", "/a/status")}


@pytest.mark.parametrize(("method", "suffix"), WRONG_METHODS.values(), ids=WRONG_METHODS)
def test_a_method_that_is_not_offered_is_not_allowed(twins: Twins, method: str, suffix: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    path = twins.widgets + suffix
    answer = twins.alike(lambda rest: rest.request(method, path, widget("a"), content_type=MERGE))
    answer.failed(405, "MethodNotAllowed")


def test_the_bodys_name_and_namespace_must_be_the_paths(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    for body in (widget("b", resourceVersion="1"), widget("a", namespace="elsewhere", resourceVersion="1")):
        twins.ask("PUT", f"{twins.widgets}/a", body).failed(400, "BadRequest")


PATCHES: dict[str, tuple[bytes, str, int]] = {
    "merge-cut-off": (b'{"spec": ', MERGE, 400),
    "merge-a-list": (b"[]", MERGE, 400),
    "merge-a-number": (b"3", MERGE, 400),
    "merge-other-kind": (b'{"kind": "Gadget"}', MERGE, 422),
    "merge-other-version": (b'{"apiVersion": "v1"}', MERGE, 422),
    "merge-no-metadata": (b'{"metadata": null}', MERGE, 400),
    "json-cut-off": (b'[{"op": ', JSON_PATCH, 400),
    "json-an-object": (b"{}", JSON_PATCH, 400),
    "json-unknown-op": (b'[{"op": "frob", "path": "/spec"}]', JSON_PATCH, 422),
    "json-no-path": (b'[{"op": "add", "value": 1}]', JSON_PATCH, 422),
    "json-no-op": (b'[{"path": "/spec", "value": 1}]', JSON_PATCH, 422),
    "json-missing-target": (b'[{"op": "remove", "path": "/spec/x/y"}]', JSON_PATCH, 422),
    "json-bad-index": (b'[{"op": "remove", "path": "/spec/tags/x"}]', JSON_PATCH, 422),
    "unknown-type": (b"{}", "text/plain", 415),
    "plain-json": (b"{}", "application/json", 415),
}


@pytest.mark.parametrize(("body", "media", "code"), PATCHES.values(), ids=PATCHES)
def test_a_wrong_patch_is_refused(twins: Twins, body: bytes, media: str, code: int) -> None:
    twins.do("POST", twins.widgets, widget("a", {"tags": ["x"]}))
    path = f"{twins.widgets}/a"
    for rest in (twins.real, twins.embedded):
        answer = rest.request("PATCH", path, body, content_type=media)
        assert answer.code == code, answer.body
        is_a_status(answer)
    assert twins.ask("GET", path).ok()["spec"] == {"size": 3, "color": "red", "tags": ["x"]}


TOKENS = {"garbage": "x", "not-base64": "%%%", "other-json": "e30", "half": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi"}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_garbage_continue_token_is_refused(rest: Rest, widgets: str, token: str) -> None:
    status = rest.get(widgets, limit=1, **{"continue": token}).failed(400, "BadRequest")
    assert "continue" in status["message"]


@pytest.mark.parametrize("token", ["wrong", "", None], ids=["wrong", "empty", "absent"])
def test_a_wrong_or_absent_token_is_unauthorized(twins: Twins, token: str | None) -> None:
    """The real server lets the anonymous in as far as RBAC does, which for objects is nowhere."""
    paths = (twins.widgets, f"{twins.widgets}/a", "/api/v1/pods")
    for path in paths:
        answer = twins.embedded.as_user(token).get(path)
        is_a_status(answer)
        answer.failed(401, "Unauthorized")
        expected = 401 if token == "wrong" else 403
        assert twins.real.as_user(token).get(path).code == expected
