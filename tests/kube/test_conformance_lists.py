"""Lists: selectors, pages, and the versions they may be asked at, on both servers alike."""

from typing import Any

import pytest

from tests.harness.rest import Rest
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, widget

LABELLED = {
    "a": {"app": "web", "tier": "1"},
    "b": {"app": "web", "tier": "2"},
    "c": {"app": "db", "tier": "3"},
    "d": {"other": ""},
    "e": {},
}
LABEL_SELECTORS = {
    "app=web": "ab",
    "app==web": "ab",
    "app!=web": "cde",
    "app": "abc",
    "!app": "de",
    "app in (web, db)": "abc",
    "app notin (web)": "cde",
    "app in (web),tier=2": "b",
    "app=web,tier!=1": "b",
    "other=": "d",
    "other": "d",
    "app in (web,db),!other": "abc",
    "app=nope": "",
    " app = web , tier = 1 ": "a",
    "": "abcde",
}


def names(listed: Any) -> str:
    return "".join(item["metadata"]["name"] for item in listed["items"])


@pytest.fixture
def labelled(rest: Rest, widgets: str) -> str:
    for name, labels in LABELLED.items():
        spec = {"nodeName": f"node-{name}", "color": "blue" if name in "ab" else "red"}
        rest.post(widgets, widget(name, spec, labels=labels)).ok()
    return widgets


def test_label_selectors_choose_what_they_should(rest: Rest, labelled: str) -> None:
    found = {each: names(rest.get(labelled, labelSelector=each).ok()) for each in LABEL_SELECTORS}
    assert found == LABEL_SELECTORS


def test_field_selectors_choose_what_they_should(rest: Rest, labelled: str, namespace: str) -> None:
    expected = {
        "metadata.name=b": "b",
        "metadata.name==b": "b",
        "metadata.name!=b": "acde",
        f"metadata.namespace={namespace}": "abcde",
        f"metadata.namespace={namespace},metadata.name=c": "c",
        "metadata.namespace=other": "",
        "spec.nodeName=node-c": "c",
        "spec.color=blue": "ab",
        "spec.color=blue,spec.nodeName!=node-a": "b",
        "": "abcde",
    }
    assert {each: names(rest.get(labelled, fieldSelector=each).ok()) for each in expected} == expected


def test_selectors_combine(rest: Rest, labelled: str) -> None:
    found = rest.get(labelled, labelSelector="app=web", fieldSelector="metadata.name!=a").ok()
    assert names(found) == "b"


def test_a_list_across_namespaces_finds_what_a_selector_names(
    rest: Rest, labelled: str, namespace: str
) -> None:
    found = rest.get(f"/apis/{GROUP}/v1/widgets", fieldSelector=f"metadata.namespace={namespace}").ok()
    assert names(found) == "abcde"
    assert {item["metadata"]["namespace"] for item in found["items"]} == {namespace}


def test_a_list_is_sorted_and_says_what_it_is(rest: Rest, widgets: str) -> None:
    for name in ("c", "a", "b"):
        rest.post(widgets, widget(name)).ok()
    listed = rest.get(widgets).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("WidgetList", f"{GROUP}/v1")
    assert names(listed) == "abc"
    assert {(item["kind"], item["apiVersion"]) for item in listed["items"]} == {("Widget", f"{GROUP}/v1")}


def test_an_empty_list_is_a_list(twins: Twins) -> None:
    assert twins.ask("GET", twins.widgets).ok()["items"] == []


def pages(rest: Rest, path: str, limit: int, **query: Any) -> list[Any]:
    found = [rest.get(path, limit=limit, **query).ok()]
    while token := found[-1]["metadata"].get("continue"):
        found.append(rest.get(path, limit=limit, **query, **{"continue": token}).ok())
    return found


def test_pages_hold_everything_once(rest: Rest, labelled: str) -> None:
    found = pages(rest, labelled, 2)
    assert [names(page) for page in found] == ["ab", "cd", "e"]
    assert [page["metadata"].get("remainingItemCount") for page in found] == [3, 1, None]
    assert len({page["metadata"]["resourceVersion"] for page in found}) == 1
    assert not found[-1]["metadata"].get("continue")


def test_a_limit_that_is_met_exactly_has_no_next_page(rest: Rest, labelled: str) -> None:
    assert [names(page) for page in pages(rest, labelled, 5)] == ["abcde"]
    assert [names(page) for page in pages(rest, labelled, 0)] == ["abcde"]


def test_pages_show_one_moment_whatever_is_written_between(rest: Rest, labelled: str) -> None:
    first = rest.get(labelled, limit=2).ok()
    rest.post(labelled, widget("bb")).ok()
    rest.post(labelled, widget("cc")).ok()
    rest.delete(f"{labelled}/c").ok()
    rest.patch(f"{labelled}/d", {"spec": {"size": 9}}).ok()
    second = rest.get(labelled, limit=9, **{"continue": first["metadata"]["continue"]}).ok()
    assert names(second) == "cde"
    assert [item["spec"]["size"] for item in second["items"]] == [3, 3, 3]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names(rest.get(labelled).ok()) == "a" + "b" + "bb" + "cc" + "d" + "e"


def test_pages_with_a_selector_count_nothing_they_cannot_know(rest: Rest, labelled: str) -> None:
    found = pages(rest, labelled, 1, labelSelector="app")
    assert "".join(names(page) for page in found) == "abc"
    assert all("remainingItemCount" not in page["metadata"] for page in found)


def test_a_continue_token_excludes_a_resource_version(twins: Twins) -> None:
    for name in "ab":
        twins.do("POST", twins.widgets, widget(name))

    def second(rest: Rest) -> Any:
        first = rest.get(twins.widgets, limit=1).ok()["metadata"]
        query = {"continue": first["continue"], "resourceVersion": first["resourceVersion"]}
        return rest.get(twins.widgets, limit=1, **query)

    twins.both(second).failed(400, "BadRequest")


def test_a_list_at_version_zero_is_as_new_as_the_server_likes(rest: Rest, labelled: str) -> None:
    listed = rest.get(labelled, resourceVersion="0").ok()
    assert names(listed) in ("abcde"[:count] for count in range(6))
    assert int(listed["metadata"]["resourceVersion"]) > 0


def test_a_list_not_older_than_a_write_shows_it(rest: Rest, widgets: str) -> None:
    version = rest.post(widgets, widget("a")).ok()["metadata"]["resourceVersion"]
    listed = rest.get(widgets, resourceVersion=version).ok()
    assert names(listed) == "a"
    matched = rest.get(widgets, resourceVersion=version, resourceVersionMatch="NotOlderThan").ok()
    assert int(matched["metadata"]["resourceVersion"]) >= int(version)


def test_an_exact_list_shows_that_moment(rest: Rest, widgets: str) -> None:
    version = rest.post(widgets, widget("a", {"size": 4})).ok()["metadata"]["resourceVersion"]
    rest.patch(f"{widgets}/a", {"spec": {"size": 5}}).ok()
    rest.post(widgets, widget("b")).ok()
    listed = rest.get(widgets, resourceVersion=version, resourceVersionMatch="Exact").ok()
    assert names(listed) == "a"
    assert listed["items"][0]["spec"]["size"] == 4
    assert listed["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a=" + "x" * 64},
        {"labelSelector": "-a=b"},
        {"fieldSelector": "metadata.name"},
        {"fieldSelector": "spec.size=3"},
        {"fieldSelector": "metadata.labels=3"},
        {"fieldSelector": "=b"},
    ],
    ids=lambda query: "&".join(f"{key}={value[:12]}" for key, value in query.items()),
)
def test_a_wrong_question_is_refused_in_the_same_words(twins: Twins, query: dict[str, str]) -> None:
    assert twins.ask("GET", twins.widgets, **query).code in (400, 422)


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
        {"resourceVersion": "words"},
        {"resourceVersion": "-1"},
        {"limit": "many"},
    ],
    ids=lambda query: "&".join(f"{key}={value}" for key, value in query.items()),
)
def test_a_wrong_version_or_limit_is_refused(twins: Twins, query: dict[str, str]) -> None:
    assert twins.alike(lambda rest: rest.get(twins.widgets, **query)).code in (400, 422)


def test_a_future_version_is_too_large(rest: Rest, widgets: str) -> None:
    status = rest.get(widgets, resourceVersion="999999999").failed(504, "Timeout")
    assert status["message"].startswith("Timeout: Too large resource version: 999999999, current: ")
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert status["details"] == {"causes": causes, "retryAfterSeconds": 1}


def test_a_get_may_name_a_version(rest: Rest, widgets: str) -> None:
    version = rest.post(widgets, widget("a")).ok()["metadata"]["resourceVersion"]
    assert rest.get(f"{widgets}/a", resourceVersion=version).ok()["metadata"]["name"] == "a"
