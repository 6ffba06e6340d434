"""How long-lived processes run. In processes of their own: the settings hold for all of one."""

import subprocess
import sys

RUN = """
import asyncio, uvloop
from subnetes import process
async def main():
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    print("on uvloop")
process.run(main())
"""

FAIL = """
from subnetes import process
async def main():
    raise LookupError("surfaces")
process.run(main())
"""

COLLECT = """
import gc, weakref
from subnetes import process

class Held:
    pass

def in_a_cycle():
    made = Held()
    made.itself = made
    return weakref.ref(made)

early = in_a_cycle()  # garbage from before: freezing must not keep it
process.seldom_collected()
assert early() is None, "kept for ever"
assert gc.get_freeze_count() > 1000, "what stays is looked at"
lost = in_a_cycle()
young = [[] for _ in range(40_000)]
assert lost() is not None, "collected as often as Python would"
more = [[] for _ in range(40_000)]
assert lost() is None, "never collected"
print("seldom, but collected")
"""


def said(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_it_runs_on_uvloop() -> None:
    assert said(RUN).stdout == "on uvloop\n"


def test_an_error_surfaces() -> None:
    ended = said(FAIL)
    assert ended.returncode == 1
    assert "LookupError: surfaces" in ended.stderr


def test_garbage_in_cycles_is_looked_for_seldom_and_what_stays_never() -> None:
    ended = said(COLLECT)
    assert ended.stdout == "seldom, but collected\n", ended.stderr
