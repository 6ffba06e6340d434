"""`python -m subnetes.apiserver`: the embedded API server alone, for tests and benchmarks."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from subnetes.apiserver.server import LEFT_OUT, Config, Server
from subnetes.apiserver.store import Busy


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m subnetes.apiserver", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="where objects, certificates and tokens are kept")
    parser.add_argument("--ephemeral", action="store_true", help="keep nothing")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write it, once the server is ready")
    parser.add_argument("--bookmark-seconds", type=float, default=60)
    parser.add_argument("--history-seconds", type=float, default=300)
    given = parser.parse_args()
    if not given.ephemeral and given.data_dir is None:
        parser.error("--data-dir or --ephemeral is needed")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = Config(
        data=None if given.ephemeral else given.data_dir,
        host=given.host,
        port=given.port,
        kubeconfig=given.kubeconfig,
        bookmark_seconds=given.bookmark_seconds,
        history_seconds=given.history_seconds,
    )
    try:
        asyncio.run(_serve(config))
    except Busy as problem:
        sys.exit(str(problem))


async def _serve(config: Config) -> None:
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with Server(config) as server:
        print(f"serving {server.url}; kubeconfig: {server.kubeconfig}")
        print("left to a real Kubernetes:", *LEFT_OUT, sep="\n  ", flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
