"""`subnetes dnc` as a process."""

import re
import signal
import sys
from pathlib import Path

import pytest

from subnetes.cli.main import main
from subnetes.dnc.errors import Unavailable
from subnetes.dnc.http_client import HttpAllocator
from subnetes.dnc.types import Declaration, SubnetKey
from tests.harness.certificates import Authority
from tests.harness.clients import eventually
from tests.harness.processes import Child, start

pytestmark = pytest.mark.slow

BLUE = "blue-token-0123456789"
A = SubnetKey("", "a", 4)


class Command:
    """`subnetes dnc`, as a process."""

    def __init__(self, tmp_path: Path, *options: str) -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text(f"{BLUE},blue\n")
        words = ["dnc", "--listen", "127.0.0.1:0", "--tokens", str(tokens), *options]
        self.log = tmp_path / "log"
        self.child: Child = start([sys.executable, "-m", "subnetes.cli.main", *words], self.log)

    async def url(self) -> str:
        await eventually(lambda: "is ready" in self.child.tail() or self.child.process.poll() is not None)
        found = re.search(r"is ready: (\S+)", self.child.tail())
        assert found, self.child.tail()
        return found[1]


async def test_the_command_serves_with_tls_stops_on_sigterm_and_forgets_nothing(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    pair = authority.issue("dnc")
    options = [
        f"--database=sqlite:{tmp_path / 'dnc.db'}",
        f"--tls-cert={pair.certificate}",
        f"--tls-key={pair.key}",
    ]
    primaries = []
    for _ in range(2):
        command = Command(tmp_path, *options)
        try:
            url = await command.url()
            assert url.startswith("https://")
            client = HttpAllocator(url, BLUE, "blue", ca_file=authority.file)
            await client.ensure_subnet(Declaration(A, "10.0.0.0/28"))
            primaries.append((await client.ensure_nc("blue", "n", A)).primary)
            await client.close()
            stranger = HttpAllocator(url, BLUE, "blue")
            with pytest.raises(Unavailable, match="certificate"):
                await stranger.subnets()
            await stranger.close()
            command.child.process.send_signal(signal.SIGTERM)
            assert command.child.process.wait(20) == 0
        finally:
            command.child.kill()
        command.log.unlink()
    assert primaries[0] == primaries[1]
    assert (tmp_path / "dnc.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen=0.0.0.0:0", "--database=sqlite::memory:"], "in the clear"),
        (["--listen=nonsense", "--database=sqlite::memory:"], "HOST:PORT"),
        (["--database=oracle:x"], "--database is"),
        ([], "--database is"),
        (["--database=sqlite:/proc/no/such.db"], "cannot open the database"),
        (["--database=postgresql://127.0.0.1:1/none"], "cannot connect"),
        (["--database=sqlite::memory:", "--tls-cert=x"], "go together"),
        (["--database=sqlite::memory:", "--tls-cert=x", "--tls-key=y"], "cannot use x with y"),
        (["--database=sqlite::memory:", "--tokens=/no/such/file"], "No such file"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    why: str,
) -> None:
    monkeypatch.delenv("SUBNETES_DNC_DATABASE", raising=False)
    (tmp_path / "tokens").write_text(f"{BLUE},blue\n")
    words = ["--listen=127.0.0.1:0", f"--tokens={tmp_path / 'tokens'}", *options]
    assert main(["dnc", *words]) == 1
    assert why in capsys.readouterr().err
