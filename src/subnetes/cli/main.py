"""The one command: parses the words, hands over to the module of that name."""

import argparse
import sys
from collections.abc import Sequence

from subnetes.cli import up


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="subnetes", description="A pod-network control plane for Kubernetes.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    up.add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
