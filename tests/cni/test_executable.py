"""The executable by itself: VERSION, and what it does when no agent answers. All of its forms."""

import contextlib
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hatch_build
from subnetes.cli import cni as command
from subnetes.cli import main
from tests.cni.conftest import SOURCES, STRICT
from tests.cni.execution import Plugin, surroundings
from tests.cni.requests import config, environment, request

pytestmark = pytest.mark.slow

SUPPORTED = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]
VERBS = ("ADD", "DEL", "CHECK", "GC", "STATUS")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "cns.sock"


def at(path: Path, **changes: Any) -> dict[str, Any]:
    return config(ipam={"socket": str(path)}, **changes)


def queued(path: Path) -> list[Path]:
    folder = path.with_name("cns.sock.queue")
    return sorted(folder.iterdir()) if folder.exists() else []


class TestVersion:
    @pytest.mark.parametrize("version", SUPPORTED)
    def test_it_answers_in_the_version_asked_in(self, plugin: Plugin, version: str) -> None:
        done = plugin.run({"CNI_COMMAND": "VERSION"}, {"cniVersion": version})
        assert done.code == 0
        assert done.document == {"cniVersion": version, "supportedVersions": SUPPORTED}

    @pytest.mark.parametrize("text", [b"", b"{", b'{"cniVersion":"9.9.9"}', b'{"cniVersion":4}', b"[]"])
    def test_whatever_it_is_asked_with(self, plugin: Plugin, text: bytes) -> None:
        done = plugin.run({"CNI_COMMAND": "VERSION"}, text)
        assert (done.code, done.document["cniVersion"]) == (0, "1.1.0")


class TestWithoutAnAgent:
    @pytest.mark.parametrize("version", SUPPORTED)
    @pytest.mark.parametrize(("verb", "code"), [("ADD", 11), ("CHECK", 11), ("GC", 11), ("STATUS", 50)])
    def test_it_says_so_in_the_configs_version(
        self, plugin: Plugin, path: Path, verb: str, code: int, version: str
    ) -> None:
        done = plugin.run(environment(verb), at(path, cniVersion=version))
        error = done.document
        assert (done.code, error["code"], error["cniVersion"]) == (1, code, version)
        assert error.keys() == {"cniVersion", "code", "msg", "details"}
        assert not queued(path)

    def test_del_succeeds_and_is_queued_as_it_is(self, plugin: Plugin, path: Path) -> None:
        """FIELD row 6."""
        text = at(path)
        first = plugin.run(environment("DEL", "c1"), text)
        second = plugin.run(environment("DEL", "c2"), text)
        assert [(each.code, each.text) for each in (first, second)] == [(0, b"")] * 2
        kept = [each.read_bytes() for each in queued(path)]
        assert kept == [request(environment("DEL", name), text) for name in ("c1", "c2")]
        assert stat.S_IMODE(queued(path)[0].stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_del_of_nobody_is_not_queued(self, plugin: Plugin, path: Path) -> None:
        done = plugin.run(environment("DEL", CNI_CONTAINERID=""), at(path))
        assert (done.code, done.document["code"]) == (1, 4)
        assert not queued(path)

    def test_del_that_cannot_be_queued_is_to_be_tried_again(self, plugin: Plugin, path: Path) -> None:
        path.parent.write_text("not a folder")
        done = plugin.run(environment("DEL"), at(path))
        assert (done.code, done.document["code"]) == (1, 11)

    def test_a_queue_has_an_end(self, plugin: Plugin, path: Path) -> None:
        folder = path.with_name("cns.sock.queue")
        folder.mkdir(parents=True)
        (folder / "0").touch()
        for number in range(1, 16383):
            os.link(folder / "0", folder / f"{number}")
        done = plugin.run(environment("DEL"), at(path))
        assert (done.code, done.document["code"]) == (1, 11)
        (folder / "0").unlink()
        assert plugin.run(environment("DEL"), at(path)).code == 0

    def test_an_agent_that_goes_without_a_word_is_none(self, plugin: Plugin, path: Path) -> None:
        with listening(path) as listener:
            threading.Thread(target=_hang_up_on, args=(listener, 2), daemon=True).start()
            assert plugin.run(environment("ADD"), at(path)).document["code"] == 11
            assert plugin.run(environment("DEL"), at(path)).code == 0
        assert len(queued(path)) == 1

    @pytest.mark.slow
    def test_an_agent_that_hangs_does_not_hang_del_or_status(self, plugin: Plugin, path: Path) -> None:
        with listening(path):
            began = time.monotonic()
            assert plugin.run(environment("DEL"), at(path)).code == 0
            assert plugin.run(environment("STATUS"), at(path)).document["code"] == 50
            assert time.monotonic() - began < 30
        assert len(queued(path)) == 1


class TestWhereTheSocketIs:
    def test_the_config_comes_before_the_environment(
        self, plugin: Plugin, path: Path, tmp_path: Path
    ) -> None:
        variables = environment("DEL", SUBNETES_SOCKET=str(tmp_path / "other.sock"))
        assert plugin.run(variables, at(path)).code == 0
        assert len(queued(path)) == 1

    def test_the_environment_comes_before_the_default(self, plugin: Plugin, path: Path) -> None:
        assert plugin.run(environment("DEL", SUBNETES_SOCKET=str(path)), config()).code == 0
        (kept,) = queued(path)
        assert b"SUBNETES" not in kept.read_bytes()

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            (b"", 6),
            (b"{", 6),
            (b"[]", 6),
            (b'"x"', 6),
            (b"\xff", 6),
            (b'{"a":"\xc0\x80"}', 6),
            (b'{"a":"\\ud800"}', 6),
            (b'{"a":01}', 6),
            (b'{"a":NaN}', 6),
            (b"{} {}", 6),
            (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", 6),
            (b'{"ipam":{"socket":1}}', 7),
            (b'{"ipam":{"socket":null}}', 7),
            (b'{"ipam":{"socket":""}}', 7),
            (b'{"ipam":{"socket":"relative"}}', 7),
            (b'{"ipam":{"socket":"/a\\u0000b"}}', 7),
            (b'{"ipam":{"socket":"/' + b"x" * 100 + b'"}}', 7),
        ],
    )
    def test_a_config_that_is_wrong_is_said_and_nothing_queued(
        self, plugin: Plugin, tmp_path: Path, text: bytes, code: int
    ) -> None:
        done = plugin.run(environment("DEL", SUBNETES_SOCKET=str(tmp_path / "s")), text)
        assert (done.code, done.document["code"]) == (1, code)
        assert not list(tmp_path.iterdir())

    def test_a_path_in_the_environment_that_is_none_is_said(self, plugin: Plugin) -> None:
        done = plugin.run(environment("DEL", SUBNETES_SOCKET="cns.sock"), config())
        assert (done.code, done.document["code"]) == (1, 4)


class TestOddCalls:
    def test_without_a_command_it_says_what_it_is(self, plugin: Plugin) -> None:
        done = plugin.run({}, b"")
        assert (done.code, done.document["code"]) == (1, 4)

    def test_a_config_beyond_all_measure_is_refused(self, plugin: Plugin, path: Path) -> None:
        done = plugin.run(environment("DEL"), b" " * (4 << 20) + b'{"x":1}')
        assert (done.code, done.document["code"]) == (1, 6)

    def test_a_large_config_is_carried_whole(self, plugin: Plugin, path: Path) -> None:
        text = at(path, padding="x" * (3 << 20))
        assert plugin.run(environment("DEL"), text).code == 0
        assert queued(path)[0].read_bytes() == request(environment("DEL"), text)

    def test_a_reader_that_goes_away_is_no_crash(self, plugin: Plugin, path: Path) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        process = subprocess.run(
            [plugin.path],
            env=surroundings(environment("ADD")),
            input=b"{}",
            stdout=writing,
            timeout=60,
            check=False,
        )
        os.close(writing)
        assert process.returncode == 1


class TestBuildAndInstall:
    def test_without_a_compiler_the_fallback_is_built(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fallback: Plugin
    ) -> None:
        monkeypatch.setenv("CC", "/no/such/compiler")
        assert not hatch_build.build(SOURCES, tmp_path / "bin" / "plugin")
        assert (tmp_path / "bin" / "plugin").read_bytes() == fallback.path.read_bytes()
        assert Plugin(tmp_path / "bin" / "plugin").run({"CNI_COMMAND": "VERSION"}, b"{}").code == 0

    def test_with_one_it_is_native(self, tmp_path: Path, native: Plugin) -> None:
        assert hatch_build.build(SOURCES, tmp_path / "plugin")
        assert (tmp_path / "plugin").read_bytes()[:4] == b"\x7fELF"
        assert Plugin(tmp_path / "plugin").run({"CNI_COMMAND": "VERSION"}, b"{}").code == 0

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="bare.c is for x86-64")
    def test_on_x86_64_it_has_no_c_library(self, tmp_path: Path, shipped: Plugin) -> None:
        assert shipped.path.stat().st_size < 32_768
        target, sources = str(tmp_path / "strict"), (SOURCES / name for name in ("subnetes-ipam.c", "bare.c"))
        subprocess.run(["cc", *STRICT, *hatch_build.BARE, "-o", target, *sources], check=True)

    def test_without_bare_c_it_has_one(self, tmp_path: Path, native: Plugin) -> None:
        """As on any other processor, where bare.c does not compile."""
        shutil.copyfile(SOURCES / "subnetes-ipam.c", tmp_path / "subnetes-ipam.c")
        assert hatch_build.build(tmp_path, tmp_path / "plugin")
        assert Plugin(tmp_path / "plugin").run({"CNI_COMMAND": "VERSION"}, b"{}").code == 0

    def test_install_copies_it_where_runtimes_look(
        self,
        tmp_path: Path,
        native: Plugin,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(command, "plugin_path", lambda: native.path)
        assert main.main(["cni", "install", str(tmp_path / "opt")]) == 0
        (installed,) = (tmp_path / "opt").iterdir()
        assert (capsys.readouterr().out.strip(), installed.name) == (str(installed), "subnetes-ipam")
        assert stat.S_IMODE(installed.stat().st_mode) == 0o755
        assert installed.read_bytes() == native.path.read_bytes()

    def test_install_where_it_cannot_says_why(
        self,
        tmp_path: Path,
        native: Plugin,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(command, "plugin_path", lambda: native.path)
        (tmp_path / "file").touch()
        assert main.main(["cni", "install", str(tmp_path / "file")]) == 1
        assert str(tmp_path / "file") in capsys.readouterr().err

    def test_its_module_imports_nothing_of_ours(self) -> None:
        code = "import subnetes.cni, sys; print([m for m in sys.modules if m.startswith('subnetes')])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['subnetes', 'subnetes.cni']"


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket that is there and never answers."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        yield listener


def _hang_up_on(listener: socket.socket, times: int) -> None:
    for _ in range(times):
        listener.accept()[0].close()
