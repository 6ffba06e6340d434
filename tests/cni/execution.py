"""How the tests execute the plugin, as a runtime does: an environment, a config on standard input."""

import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from subnetes.cni import fallback


@dataclass(frozen=True)
class Output:
    code: int
    text: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Plugin:
    path: Path

    def run(self, variables: dict[str, str], text: dict[str, Any] | bytes, timeout: float = 60.0) -> Output:
        done = subprocess.run(
            [self.path],
            input=encoded(text),
            env=surroundings(variables),
            stdout=subprocess.PIPE,
            timeout=timeout,
            check=False,
        )
        return Output(done.returncode, done.stdout)

    async def start(self, variables: dict[str, str], text: dict[str, Any] | bytes) -> Output:
        """The same, while the agent runs in this very loop."""
        process = await asyncio.create_subprocess_exec(
            self.path,
            env=surroundings(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        printed, _ = await process.communicate(encoded(text))
        assert process.returncode is not None
        return Output(process.returncode, printed)


class Forked(Plugin):
    """The fallback without an interpreter's start: a child of this process does as if it were executed."""

    def run(self, variables: dict[str, str], text: dict[str, Any] | bytes, timeout: float = 60.0) -> Output:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
            given.write(encoded(text))
            given.seek(0)
            child = os.fork()
            if child == 0:
                _become_the_fallback(given.fileno(), printed.fileno(), surroundings(variables))
            _, status = os.waitpid(child, 0)
            printed.seek(0)
            return Output(os.waitstatus_to_exitcode(status), printed.read())


def _become_the_fallback(given: int, printed: int, variables: dict[str, str]) -> NoReturn:
    code = 99
    try:
        os.dup2(given, 0)
        os.dup2(printed, 1)
        os.environ.clear()
        os.environ.update(variables)
        code = fallback.main()
    finally:
        os._exit(code)


def encoded(text: dict[str, Any] | bytes) -> bytes:
    return text if isinstance(text, bytes) else json.dumps(text).encode()


def surroundings(variables: dict[str, str]) -> dict[str, str]:
    """What a runtime has in its own environment beside CNI's variables; `env` of the fallback needs PATH."""
    return {"PATH": os.environ["PATH"], "HOME": "/root"} | variables
