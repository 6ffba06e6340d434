"""`subnetes webhook`: its words."""

import argparse
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from subnetes.cli import webhook
from subnetes.cli.main import main, parser
from subnetes.webhook.certificates import Plan
from tests.harness.certificates import Authority

BAD_HOSTS = (
    *("", "a,,b", "a b", "https://a/", "ä", "a:9443", "127.0.0.1:1", "[::1]", "fe80::1%eth0", ":::", "a..b"),
    *("-a", "a-.b", "a.", "10.0.0.256", "1.2.3", "x" * 64, "a." * 127 + "b"),
)


def options(*words: str) -> argparse.Namespace:
    return parser(["webhook"]).parse_args(["webhook", *words])


def test_what_is_not_said_is_as_in_a_cluster() -> None:
    said = options()
    assert (said.address, said.listen, said.drain) == ("0.0.0.0:9443", None, 5.0)
    assert webhook.hosts_of(said.hosts) == ["subnetes-webhook.kube-system.svc"]
    assert webhook.plan_of(said) == Plan()


def test_lives_are_seconds() -> None:
    said = options("--ca-lifetime", "18", "--cert-lifetime", "4", "--ca-overlap", "1.5")
    assert webhook.plan_of(said) == Plan(*(timedelta(seconds=each) for each in (18, 4, 1.5)))


def test_hosts_are_names_and_addresses() -> None:
    assert webhook.hosts_of("a.b.svc, 127.0.0.1,::1") == ["a.b.svc", "127.0.0.1", "::1"]
    same = {"Web.Example.COM": "web.example.com", "FD00:0::1": "fd00::1", "::2": "::2", "fd00::": "fd00::"}
    assert webhook.hosts_of(",".join(same)) == list(same.values())
    for bad in BAD_HOSTS:
        with pytest.raises(ValueError, match="no name or address"):
            webhook.hosts_of(bad)


def test_an_address_has_a_host_and_a_port() -> None:
    assert webhook.address_of("--address", "[::1]:9443") == ("::1", 9443)
    for bad in ("9443", ":9443", "host:", "host:x", "host:65536"):
        with pytest.raises(ValueError, match="--listen is HOST:PORT"):
            webhook.address_of("--listen", bad)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    issued = Authority.create(tmp_path).issue("webhook")
    return [f"--tls-cert={issued.certificate}", f"--tls-key={issued.key}"]


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["webhook", "--address=127.0.0.1:0", *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith("subnetes webhook: ")
    assert said.count("\n") == 1
    return said


def test_what_cannot_work_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pair: list[str]
) -> None:
    certificate, key = pair
    none = f"--kubeconfig={tmp_path}/none"
    assert "cannot be read" in failed(capsys, none)
    assert "go together" in failed(capsys, certificate)
    assert "go together" in failed(capsys, key)
    assert "--ca-file goes with" in failed(capsys, none, f"--ca-file={tmp_path}/ca.crt")
    assert "No such file" in failed(capsys, f"--tls-cert={tmp_path}/none", key)
    assert "cannot be used" in failed(capsys, certificate, f"--tls-key={tmp_path}/ca.crt")
    assert "HOST:PORT" in failed(capsys, *pair, "--listen=nowhere")
    assert "HOST:PORT" in failed(capsys, *pair, "--address=nowhere")
    assert "no name or address" in failed(capsys, *pair, "--hosts=a b")


def test_a_life_that_leaves_no_time_to_rotate_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        '{"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"current-context":"c",'
        '"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}'
    )
    words = (f"--kubeconfig={kubeconfig}", "--ca-lifetime=100", "--cert-lifetime=90")
    assert "a third of the authority's life" in failed(capsys, *words)


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str], pair: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = (*pair, f"--address=127.0.0.1:{taken.getsockname()[1]}")
        assert "address already in use" in failed(capsys, *words).lower()


@pytest.mark.parametrize("drain", ["-1", "nan", "inf", "soon"])
def test_a_drain_is_a_number_of_seconds(drain: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--drain", drain)
    assert "no number of seconds" in capsys.readouterr().err
