"""`subnetes controller`: its words."""

import argparse

import pytest

from subnetes.cli import controller
from subnetes.cli.main import main, parser
from subnetes.controllers.process import in_memory
from subnetes.kube.election import Terms


def options(*words: str) -> argparse.Namespace:
    return parser(["controller"]).parse_args(["controller", *words])


def test_a_lease_is_kept_by_fractions_of_its_duration() -> None:
    assert controller.terms_of(options()) == Terms(15, 10.0, 2.0)
    assert controller.terms_of(options("--lease-duration", "3", "--retry-period", "0.3")) == Terms(
        3, 2.0, 0.3
    )


@pytest.mark.parametrize("grace", ["-1", "nan", "inf", "soon"])
def test_a_grace_that_would_free_at_once_or_never_is_refused(
    grace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options("--node-grace", grace)
    assert "no number of seconds" in capsys.readouterr().err
    assert options("--node-grace", "0.5").node_grace == 0.5


def test_the_allocator_is_where_it_is_said_to_be() -> None:
    assert controller.allocator_of(options()) is in_memory
    assert controller.allocator_of(options("--dnc", "sqlite:/tmp/x")) is not in_memory
    with pytest.raises(ValueError, match="postgres"):
        controller.allocator_of(options("--dnc", "postgres://x"))


def test_what_cannot_work_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert main(["controller", "--kubeconfig", f"{tmp_path}/none", "--lease-duration", "5"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("subnetes controller: ")
    assert said.count("\n") == 1
