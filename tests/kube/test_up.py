"""`subnetes up` as a person uses it: the ready line, Ctrl-C, a second start, and what it cannot do."""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from subnetes.api.crd import crds

pytestmark = pytest.mark.slow

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@contextmanager
def up(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The running command and the kubeconfig that its ready lines name."""
    command = [sys.executable, "-m", "subnetes.cli.main", "up", "--port=0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = ""
        while "export KUBECONFIG=" not in lines:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            lines += line
        found = re.search(r"export KUBECONFIG=(\S+)", lines)
        assert found is not None
        yield process, Path(found[1])
    finally:
        process.kill()
        process.communicate()


def call(kubeconfig: Path, method: str, path: str, body: object = None) -> Any:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    request = urllib.request.Request(
        cluster["server"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return json.load(answer)


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


def test_all_kinds_are_there_and_ctrl_c_stops_cleanly(tmp_path: Path) -> None:
    with up(f"--data-dir={tmp_path / 'data'}") as (process, kubeconfig):
        served = call(kubeconfig, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        assert {each["metadata"]["name"] for each in served} == {each["metadata"]["name"] for each in crds()}
        established = [
            c["type"] for each in served for c in each["status"]["conditions"] if c["status"] == "True"
        ]
        assert established.count("Established") == len(served)
        assert interrupt(process) == (0, "")


def test_a_second_start_finds_the_data_again(tmp_path: Path) -> None:
    folder = f"--data-dir={tmp_path / 'data'}"
    with up(folder) as (process, kubeconfig):
        made = call(kubeconfig, "POST", CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "b"}})
        interrupt(process)
    with up(folder) as (_, kubeconfig):
        assert call(kubeconfig, "GET", f"{CONFIG_MAPS}/kept") == made


def test_ephemeral_leaves_nothing_behind() -> None:
    with up("--ephemeral") as (process, kubeconfig):
        call(kubeconfig, "POST", CONFIG_MAPS, {"metadata": {"name": "gone"}})
        interrupt(process)
        assert not kubeconfig.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port=0", "--data-dir=/proc/nowhere"], "/proc/nowhere"),
        (["--port=0", "--ephemeral", "--host=192.0.2.77"], "192.0.2.77"),
        (["--port=99999", "--ephemeral"], "port"),
        (["--prot=1"], "unrecognized arguments: --prot=1"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "subnetes.cli.main", "up", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "subnetes.cli.main", "up", "--ephemeral", f"--port={port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
