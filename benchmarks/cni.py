"""What a pod's IP costs: ADD and DEL through the CNI executable, beside host-local, with /bin/true as the
floor.

Run by `make bench-cni`. Every call is a process, as a runtime makes it. The agent is a process of its own,
with a warm pool, its journal and all checks on. The promises: ours at most 0.2 of host-local's median and
p99 one at a time, at least 6 times its calls a second at 16, and at most 1.5 times the floor one at a time.

They are judged on a node with 100 pods: both programs made that many ADDs before. host-local reads every
reservation of the node at each ADD, so it is quicker on an empty node, and the ratios are worse for us there:
the first, smaller table shows them, and nothing is promised of it.

All are started by one tiny program (SPAWNER below: vfork and wait, nothing else), so that the harness is
not what is measured, and in turn, block by block: what else the machine does hits all alike.
"""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from subnetes import process
from subnetes.cni import plugin_path
from subnetes.cns import endpoint
from tests.cni import pools
from tests.harness import kube_assets

AT_ONCE = (1, 16, 64)
BLOCKS, WARM_UP = 12, 2  # rounds in turn, and how many more before them that do not count
AT_ONCE_WHEN_EMPTY, BLOCKS_WHEN_EMPTY = (1, 16), 6
CALLS = {1: 40, 16: 64, 64: 128}  # pairs of ADD and DEL in a block
HELD = 100  # pods that the node has already
POOL = 256  # for them, for 64 at a time, and some
MOST_OF_HOST_LOCAL, LEAST_THROUGHPUT, MOST_OF_FLOOR = 0.2, 6.0, 1.5

# argv: how many at once, how many pairs, a number for ids, the config, the executable. For each pair it runs
# ADD, then DEL, of one container id, and prints the microseconds of each call, then those of all together.
# Each child of `at once` runs its share, so that none waits for another.
SPAWNER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double call(const char *verb, const char *id, const char *config, char *program, int *failed)
{
    char command[64], container[64], pod[256], *arguments[] = {program, NULL};
    char *environment[] = {command, container, "CNI_IFNAME=eth0", "CNI_NETNS=/proc/self/ns/net",
                           "CNI_NETNS_OVERRIDE=1", "CNI_PATH=/opt/cni/bin", pod, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 1;
    snprintf(command, sizeof command, "CNI_COMMAND=%s", verb);
    snprintf(container, sizeof container, "CNI_CONTAINERID=%s", id);
    snprintf(pod, sizeof pod, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=pod;K8S_POD_UID=%s", id);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, config, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    double began = now();
    if (posix_spawn(&child, program, &actions, NULL, arguments, environment) == 0)
        waitpid(child, &status, 0);
    double took = now() - began;
    posix_spawn_file_actions_destroy(&actions);
    *failed |= status != 0;
    return took;
}

int main(int count, char **words)
{
    if (count != 6)
        return 2;
    int at_once = atoi(words[1]), pairs = atoi(words[2]), failed = 0;
    size_t size = sizeof(double) * 2 * (size_t)pairs;
    double *took = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double began = now();
    for (int lane = 0; lane < at_once; lane++) {
        if (fork() != 0)
            continue;
        for (int i = lane; i < pairs; i += at_once) {
            char id[32];
            snprintf(id, sizeof id, "c%s-%d", words[3], i);
            took[2 * i] = call("ADD", id, words[4], words[5], &failed);
            took[2 * i + 1] = call("DEL", id, words[4], words[5], &failed);
        }
        _exit(failed);
    }
    for (int lane = 0, status; lane < at_once; lane++) {
        wait(&status);
        failed |= status != 0;
    }
    double all = now() - began;
    for (int i = 0; i < 2 * pairs; i++)
        printf("%.1f\n", took[i]);
    printf("%.1f\n", all);
    return failed;
}
"""


@dataclass
class Measured:
    """Of one program at one number at a time: microseconds of each call, and calls a second of each block."""

    calls: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.calls) / 1000

    @property
    def p99(self) -> float:
        return sorted(self.calls)[int(len(self.calls) * 0.99)] / 1000

    @property
    def rate(self) -> float:
        return median(self.rates)


@dataclass(frozen=True)
class Program:
    name: str
    path: Path
    config: Path


Figures = dict[tuple[str, int], Measured]  # by the program's name and how many at a time


def measure(spawner: Path, programs: list[Program], numbers: Sequence[int], blocks: int) -> Figures:
    figures = {(p.name, n): Measured() for p in programs for n in numbers}
    for at_once in numbers:
        for block in range(-WARM_UP, blocks):
            for program in programs:
                _run(spawner, program, at_once, block + WARM_UP, figures[program.name, at_once], block >= 0)
    return figures


def hold(programs: list[Program]) -> None:
    """Pods that stay: their IPs by each program that gives any, with what a runtime sets."""
    for program in programs:
        for number in range(HELD):
            environment = {
                "CNI_COMMAND": "ADD",
                "CNI_CONTAINERID": f"held-{number}",
                "CNI_IFNAME": "eth0",
                "CNI_NETNS": "/proc/self/ns/net",
                "CNI_NETNS_OVERRIDE": "1",  # host-local would refuse this process's own namespace
                "CNI_PATH": "/opt/cni/bin",
                "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAME=pod;K8S_POD_UID=held-{number}",
            }
            with program.config.open("rb") as config:
                subprocess.run(
                    [program.path], env=environment, stdin=config, stdout=subprocess.DEVNULL, check=True
                )


def _run(spawner: Path, program: Program, at_once: int, number: int, into: Measured, counts: bool) -> None:
    pairs = CALLS[at_once]
    words = [str(at_once), str(pairs), f"{at_once}x{number}", str(program.config), str(program.path)]
    done = subprocess.run([spawner, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench-cni: {program.name} failed a call")
    *calls, total = map(float, done.stdout.split())
    if counts:
        into.calls.extend(calls)
        into.rates.append(len(calls) / total * 1e6)


@contextlib.contextmanager
def agent(folder: Path, socket: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.cni", str(folder), str(socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit("bench-cni: the agent did not start")
            yield
        finally:
            process.send_signal(signal.SIGTERM)


async def serve(folder: Path, socket: Path) -> None:
    """In the agent's process: its real endpoint, verbs, pool and journal; only the cluster is missing."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    pool = pools.ipam(folder, POOL)
    async with endpoint.serve(pool, socket):
        process.seldom_collected()  # as `subnetes agent` does
        print("ready", flush=True)
        await stop.wait()
    pool.close()


def prepared(folder: Path) -> tuple[Path, list[Program]]:
    """The spawner, compiled, and what it is to start."""
    source, spawner = folder / "spawner.c", folder / "spawner"
    source.write_text(SPAWNER)
    subprocess.run(["cc", "-O2", "-o", str(spawner), str(source)], check=True)
    ours = {"type": "subnetes-ipam", "socket": str(folder / "cns.sock")}
    theirs = {
        "type": "host-local",
        "dataDir": str(folder / "host-local"),
        "ranges": [[{"subnet": "10.0.0.0/16"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return spawner, [
        Program("/bin/true", Path("/bin/true"), _config(folder, "true", {})),
        Program("subnetes-ipam", plugin_path(), _config(folder, "subnetes", ours)),
        Program("host-local", kube_assets.locate() / "host-local", _config(folder, "host-local", theirs)),
    ]


def _config(folder: Path, name: str, ipam: Mapping[str, object]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"cniVersion": "1.0.0", "name": "podnet", "type": "bridge", "ipam": ipam}))
    return path


@dataclass(frozen=True)
class Promise:
    text: str
    ratio: float
    bound: float
    at_most: bool

    @property
    def kept(self) -> bool:
        return self.ratio <= self.bound if self.at_most else self.ratio >= self.bound


def table(title: str, figures: Figures) -> None:
    print(f"\n{title}\n\n| at a time | program | median ms | p99 ms | calls a second |")
    print("| --- | --- | --- | --- | --- |")
    for (name, at_once), seen in sorted(figures.items(), key=lambda each: each[0][1]):
        print(f"| {at_once} | {name} | {seen.median:.2f} | {seen.p99:.2f} | {seen.rate:,.0f} |")


def promises(figures: Figures) -> list[Promise]:
    ours, theirs, floor = (figures[name, 1] for name in ("subnetes-ipam", "host-local", "/bin/true"))
    rates = figures["subnetes-ipam", 16].rate / figures["host-local", 16].rate
    most = MOST_OF_HOST_LOCAL
    return [
        Promise("of host-local's median, one at a time", ours.median / theirs.median, most, True),
        Promise("of host-local's p99, one at a time", ours.p99 / theirs.p99, most, True),
        Promise("times host-local's calls a second, 16 at a time", rates, LEAST_THROUGHPUT, False),
        Promise("times the floor's median, one at a time", ours.median / floor.median, MOST_OF_FLOOR, True),
    ]


def compare(spawner: Path, programs: list[Program]) -> bool:
    """On an empty node, then on one with pods; whether all promises are kept there."""
    empty = measure(spawner, programs, AT_ONCE_WHEN_EMPTY, BLOCKS_WHEN_EMPTY)
    table("An empty node, of which nothing is promised:", empty)
    for each in promises(empty):
        print(f"{each.ratio:6.2f} {each.text}")
    hold([each for each in programs if each.name != "/bin/true"])
    figures = measure(spawner, programs, AT_ONCE, BLOCKS)
    table(f"A node with {HELD} pods:", figures)
    for each in promises(figures):
        bound = f"at {'most' if each.at_most else 'least'} {each.bound}"
        print(f"{each.ratio:6.2f} {each.text} ({bound}): {'kept' if each.kept else 'BROKEN'}")
    return all(each.kept for each in promises(figures))


def main(arguments: list[str]) -> int:
    if arguments:
        process.run(serve(*map(Path, arguments)))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="subnetes-bench-"))
    try:
        spawner, programs = prepared(folder)
        with agent(folder, folder / "cns.sock"):
            return 0 if compare(spawner, programs) else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
