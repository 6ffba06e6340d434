"""`python -m subnetes.apiserver`: the embedded API server alone, for tests and benchmarks."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from subnetes import process
from subnetes.apiserver.server import LEFT_OUT, Config, Server
from subnetes.apiserver.store import Busy


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m subnetes.apiserver", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data-dir", dest="data", type=Path, help="keeps objects, certificates and tokens")
    where.add_argument("--ephemeral", dest="data", action="store_const", const=None, help="keep nothing")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write it, once the server is ready")
    parser.add_argument("--bookmark-seconds", type=float, default=100)
    parser.add_argument("--history-seconds", type=float, default=300)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        process.run(_serve(Config(**vars(parser.parse_args()))))
    except Busy as problem:
        sys.exit(str(problem))


async def _serve(config: Config) -> None:
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with Server(config) as server:
        print(f"serving {server.url}; kubeconfig: {server.kubeconfig}")
        print("left to a real Kubernetes:", *LEFT_OUT, sep="\n  ", flush=True)
        process.seldom_collected()
        await stop.wait()


if __name__ == "__main__":
    main()
