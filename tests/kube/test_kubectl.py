"""kubectl's everyday verbs: what it prints at the embedded server is what it prints at the real one."""

from pathlib import Path

import pytest

from tests.harness.kubectl import Pair, manifest, normal_text
from tests.harness.widgets import widget


def test_apply_creates_leaves_and_configures(kubectl: Pair, tmp_path: Path) -> None:
    file = tmp_path / "widgets.yaml"
    file.write_text(manifest(widget("a", {"size": 4}), widget("b")))
    assert kubectl.same("apply", "-f", str(file)).stdout.count("created") == 2
    assert kubectl.same("apply", "-f", str(file)).stdout.count("unchanged") == 2
    file.write_text(manifest(widget("a", {"size": 5}), widget("b")))
    assert kubectl.same("apply", "-f", str(file)).stdout.splitlines()[0].endswith("configured")
    assert kubectl.same("get", "widget", "a", "-o", "jsonpath={.spec.size}").stdout == "5"
    assert kubectl.same("diff", "-f", str(file)).code == 0
    assert kubectl.same("delete", "-f", str(file)).stdout.count("deleted") == 2


def test_apply_takes_fields_away_that_were_applied_before(kubectl: Pair) -> None:
    kubectl.same("apply", "-f", "-", stdin=manifest(widget("a", {"size": 4, "label": "abc"})))
    kubectl.same("apply", "-f", "-", stdin=manifest(widget("a", {"size": 4})))
    assert kubectl.same("get", "widget", "a", "-o", "jsonpath={.spec.label}").stdout == ""


@pytest.mark.parametrize(
    "spec",
    [{"nope": 1}, {"size": 11}, {"size": "x"}, {"left": "l", "right": "r"}, {"color": "pink"}],
    ids=["unknown-field", "above-maximum", "wrong-type", "rule", "enum"],
)
def test_apply_refuses_what_is_wrong_in_the_same_words(kubectl: Pair, spec: dict[str, object]) -> None:
    assert kubectl.same("apply", "-f", "-", stdin=manifest(widget("a", spec))).code == 1
    assert kubectl.same("get", "widgets").stderr.startswith("No resources found")


@pytest.mark.parametrize(
    "text",
    ["", "not: a manifest\n", "{", "apiVersion: nowhere.io/v1\nkind: Thing\nmetadata: {name: a}\n"],
    ids=["empty", "no-kind", "not-yaml", "unknown-kind"],
)
def test_apply_refuses_bad_files_in_the_same_words(kubectl: Pair, text: str) -> None:
    assert kubectl.same("apply", "-f", "-", stdin=text).code == 1


def test_server_side_validation_can_be_turned_off(kubectl: Pair) -> None:
    body = manifest(widget("a", {"nope": 1}))
    kubectl.same("apply", "--validate=false", "-f", "-", stdin=body)


OUTPUTS: list[tuple[str, ...]] = [
    (),
    ("-o", "wide"),
    ("-o", "name"),
    ("-o", "yaml"),
    ("-o", "json"),
    ("--show-labels",),
    ("--no-headers",),
    ("-L", "app"),
    ("-o", "jsonpath={.items[*].spec}"),
    ("-o", "custom-columns=N:.metadata.name,S:.spec.size"),
]


@pytest.mark.parametrize(
    "output",
    OUTPUTS,
    ids=lambda output: "-".join(output)[:18] or "plain",
)
def test_get_prints_the_same(made: Pair, output: tuple[str, ...]) -> None:
    shown = made.same("get", "widgets", *output)
    assert shown.stdout
    assert shown.stderr == ""


def test_get_finds_by_every_name_of_a_kind(made: Pair) -> None:
    for name in ("widget", "widgets", "wg", "widgets.conformance.subnetes.io", "samples"):
        assert "a" in made.same("get", name).stdout
    assert made.same("get", "wg/a", "-o", "name").stdout == "widget.conformance.subnetes.io/a\n"
    assert made.same("get", "gizmos").code == 1
    assert made.same("get", "widget", "none").stderr.startswith("Error from server (NotFound)")


def test_get_selects_and_sorts(made: Pair) -> None:
    made.same("apply", "-f", "-", stdin=manifest(widget("b", {"size": 2, "nodeName": "node-1"})))
    assert "b" not in made.same("get", "widgets", "-l", "app=web").stdout
    assert "b" in made.same("get", "widgets", "--field-selector", "spec.nodeName=node-1").stdout
    made.same("get", "widgets", "--sort-by=.spec.size")
    assert made.same("get", "widgets", "-l", "-a=b").code == 1
    assert made.same("get", "widgets", "--field-selector", "spec.size=2").code == 1
    made.same("get", "widgets", "--chunk-size=1")


def test_get_watch_prints_rows_as_they_come(made: Pair) -> None:
    rows = []
    for kubectl in (made.embedded, made.real):
        scope = ("--namespace", made.namespace)
        with kubectl.started(*scope, "get", "widgets", "--watch", "--output-watch-events") as running:
            lines = [running.line(), running.line()]
            kubectl.run(*scope, "patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":7}}')
            lines.append(running.line())
            kubectl.run(*scope, "delete", "widget", "a")
            lines.append(running.line())
        rows.append([normal_text(line).split() for line in lines])
    assert rows[0] == rows[1]
    assert [row[0] for row in rows[0]] == ["EVENT", "ADDED", "MODIFIED", "DELETED"]


def test_describe_prints_the_same(made: Pair) -> None:
    shown = made.same("describe", "widget", "a").stdout
    assert "Size:" in shown
    assert made.same("describe", "widget", "none").code == 1


def test_patch_prints_the_same(made: Pair) -> None:
    merge = made.same("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":5}}')
    assert merge.stdout == "widget.conformance.subnetes.io/a patched\n"
    assert (
        "no change" in made.same("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":5}}').stdout
    )
    made.same("patch", "widget", "a", "--type=json", "-p", '[{"op":"replace","path":"/spec/size","value":6}]')
    made.same("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"count":6}}')
    assert made.same("get", "widget", "a", "-o", "jsonpath={.spec.size} {.status.count}").stdout == "6 6"
    failing = '[{"op":"test","path":"/spec/size","value":9}]'
    assert made.same("patch", "widget", "a", "--type=json", "-p", failing).code == 1
    assert made.same("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":99}}').code == 1


def test_label_and_annotate_print_the_same(made: Pair) -> None:
    assert made.same("label", "widget", "a", "tier=one").stdout.endswith("labeled\n")
    assert made.same("label", "widget", "a", "tier=two").code == 1
    made.same("label", "widget", "a", "tier=two", "--overwrite")
    made.same("label", "widget", "a", "tier-")
    made.same("label", "widget", "a", "tier-")
    assert made.same("label", "widget", "a", "bad key=x").code == 1
    assert made.same("annotate", "widget", "a", "note=some words").stdout.endswith("annotated\n")
    made.same("annotate", "widget", "--all", "note-")


def test_edit_writes_back_what_was_changed(made: Pair) -> None:
    assert made.same("edit", "widget", "a", editor="sed -i /size:/s/4/5/").stdout.endswith("edited\n")
    assert made.same("get", "widget", "a", "-o", "jsonpath={.spec.size}").stdout == "5"
    assert made.same("edit", "widget", "a", editor="true").stderr.startswith("Edit cancelled")


def test_delete_prints_the_same(made: Pair) -> None:
    made.same("apply", "-f", "-", stdin=manifest(*(widget(n, labels={"app": "db"}) for n in ("b", "c", "d"))))
    assert made.same("delete", "widget", "b").stdout.count("deleted") == 1
    assert made.same("delete", "widget", "b").code == 1
    made.same("delete", "widget", "b", "--ignore-not-found")
    assert made.same("delete", "widgets", "-l", "app=db").stdout.count("deleted") == 2
    assert made.same("delete", "widgets", "--all", "--dry-run=server").stdout.count("dry run") == 1
    made.same("delete", "widgets", "--all", "--wait=false")


def test_wait_returns_when_it_is_so(made: Pair) -> None:
    status = '{"status":{"state":"On","conditions":[{"type":"Ready","status":"True"}]}}'
    made.same("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", status)
    assert made.same("wait", "--for=condition=Ready", "widget/a", "--timeout=20s").code == 0
    assert made.same("wait", "--for=jsonpath={.status.state}=On", "widget/a", "--timeout=20s").code == 0
    assert made.same("wait", "--for=jsonpath={.status.state}=Off", "widget/a", "--timeout=1s").code == 1
    assert made.same("wait", "--for=condition=Ready", "widget/none", "--timeout=1s").code == 1
    for kubectl in (made.embedded, made.real):
        scope = ("--namespace", made.namespace)
        with kubectl.started(*scope, "wait", "--for=delete", "widget/a", "--timeout=20s") as running:
            kubectl.run(*scope, "delete", "widget", "a")
            assert running.wait() == 0
    assert made.same("wait", "--for=delete", "widget/a", "--timeout=20s").code == 0
