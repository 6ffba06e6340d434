"""A real PostgreSQL for a test run: a data folder and a loopback port of its own, ended with the run.

PostgreSQL refuses to run as root, so a root test run starts it as another user. The death signal is SIGINT, a
fast shutdown, because a killed server would leave shared memory behind.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.processes import Child, free_ports, start

MISSING = "PostgreSQL is not installed: apt-get install postgresql"
Command = list[str | os.PathLike[str]]
_PATIENCE = 60.0
_SETTINGS = {"fsync": "off", "max_connections": "60", "shared_buffers": "16MB", "jit": "off"}


@dataclass(frozen=True)
class Postgres:
    folder: Path
    port: int
    password: str
    programs: Path
    _made: list[str]

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"test{len(self._made)}"
        self._made.append(name)
        self._ask("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def ready(self) -> bool:
        question: Command = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(question, check=False).returncode == 0

    def _ask(self, database: str, statement: str) -> None:
        psql: Command = [self.programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement]
        subprocess.run([*psql, self.url(database)], check=True, capture_output=True)


def programs() -> Path | None:
    """Debian keeps them beside each other by version, outside of the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    found = debian[-1:] or [Path(each) for each in [shutil.which("initdb")] if each]
    return found[0].resolve().parent if found else None


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    where = programs()
    if where is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="subnetes-postgres-"))
    try:
        server, child = _started(folder, where)
        try:
            _await(server, child)
            yield server
        finally:
            child.stop(signal.SIGINT)
    finally:
        shutil.rmtree(folder)


def _started(folder: Path, where: Path) -> tuple[Postgres, Child]:
    server = Postgres(folder, free_ports(1)[0], secrets.token_hex(16), where, [])
    secret, data = folder / "password", folder / "data"
    secret.write_text(server.password)
    user = _other_user()
    if user:
        shutil.chown(folder, user)
        shutil.chown(secret, user)
    initdb: Command = [
        where / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        f"--pwfile={secret}",
        "-A",
        "scram-sha-256",
    ]
    quick = ["--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C.UTF-8"]
    subprocess.run([*_as(user), *initdb, *quick], check=True, capture_output=True, cwd=folder)
    secret.unlink()
    settings = {**_SETTINGS, "port": str(server.port), "listen_addresses": "127.0.0.1"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command: Command = [where / "postgres", "-D", data, "-k", folder, *options]
    dies_with_us = ["setpriv", "--pdeathsig", "INT"]
    return server, start([*_as(user), *dies_with_us, *command], folder / "log", cwd=folder)


def _await(server: Postgres, child: Child) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not server.ready():
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start:\n{child.tail()}")
        time.sleep(0.05)


def _other_user() -> str:
    """Whom to run it as; empty: ourselves."""
    if os.geteuid() != 0:
        return ""
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as(user: str) -> Command:
    if not user:
        return []
    group = str(pwd.getpwnam(user).pw_gid)
    return ["setpriv", "--reuid", user, "--regid", group, "--clear-groups"]
