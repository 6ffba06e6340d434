"""The one command: parses the words, hands over to the module of that name.

Only the module that is asked for is imported: a node's agent must not carry the API server's memory.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = ("up", "status", "demo", "agent", "controller", "webhook", "dnc", "ipam", "migrate", "cni")


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """For these words; without a command's name first, for all commands."""
    top = argparse.ArgumentParser(prog="subnetes", description="A pod-network control plane for Kubernetes.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        import_module(f"subnetes.cli.{name}").add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    options = parser(words).parse_args(words)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
