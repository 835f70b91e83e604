"""The command line: `python -m ovadapter COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "demo": ("ovadapter.demo", "read a scanned page on the NPU without copying it"),
    "doctor": ("ovadapter.doctor", "say what works here, and why the rest does not"),
    "bench": ("ovadapter.bench", "measure what calls, allocations and tensors cost"),
}
"""Each command's module, which has `add_arguments(parser)` and `run(arguments) -> int`, and its one-line help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ovadapter", description="Level Zero memory in OpenVINO NPU tensors, without a copy."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = importlib.import_module(module)
        command.add_arguments(commands.add_parser(name, help=summary, description=command.__doc__))
    chosen = parser.parse_args(arguments)
    run = importlib.import_module(COMMANDS[chosen.command][0]).run
    return int(run(chosen))


if __name__ == "__main__":
    sys.exit(main())
