"""The command line: `python -m l0py info | doctor | softdriver`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import diagnostics, loader, softdriver
from .errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command: list[str] = []
    if "--" in given:  # all that follows is another program's
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
    parser = _parser()
    chosen, rest = parser.parse_known_args(given)
    if rest:
        forgotten = chosen.command == "softdriver" and not command and not rest[0].startswith("-")
        way_out = f"; a command to run comes after --: softdriver ... -- {' '.join(rest)}" if forgotten else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{way_out}")
    if command and chosen.command != "softdriver":
        parser.error("only softdriver runs a command")
    try:
        if chosen.command == "info":
            return _info(as_json=chosen.json)
        if chosen.command == "doctor":
            return _doctor(as_json=chosen.json)
        return _softdriver(chosen, command)
    except Error as error:
        print(f"l0py: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m l0py", description="Level Zero on this machine.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    info = commands.add_parser("info", help="the loader, drivers and devices that this process gets")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = commands.add_parser("doctor", help="what is wrong here, and what to do; exit status 1 if anything is")
    doctor.add_argument("--json", action="store_true", help="print one JSON list")
    software = commands.add_parser(
        "softdriver",
        help="run any program on the software NPU or GPU: softdriver -- COMMAND...",
        usage="python -m l0py softdriver [--drivers LIST] [--path | --loader-path] [-- COMMAND...]",
        description="Runs COMMAND so that its OpenVINO, or whatever uses Level Zero in it, finds the software NPU.",
    )
    software.add_argument("--drivers", default="npu", metavar="LIST", help="npu (the default), gpu, or npu,gpu")
    which = software.add_mutually_exclusive_group()
    which.add_argument("--path", action="store_true", help="print the drivers' paths, for ZE_ENABLE_ALT_DRIVERS")
    which.add_argument("--loader-path", action="store_true", help="print the embedded loader's path")
    return parser


def _info(*, as_json: bool) -> int:
    told = diagnostics.info()
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        diagnostics.print_info(told)
    return 1 if told["error"] else 0


def _doctor(*, as_json: bool) -> int:
    lines = diagnostics.doctor()
    if as_json:
        print(json.dumps([{"ok": ok, "found": found, "advice": advice} for ok, found, advice in lines], indent=2))
    else:
        for ok, found, advice in lines:
            print(f"{'ok  ' if ok else 'FAIL'}  {found}{f': {advice}' if advice else ''}")
    return 0 if all(ok for ok, _, _ in lines) else 1


def _softdriver(chosen: argparse.Namespace, command: list[str]) -> int:
    drivers = chosen.drivers.split(",")
    paths = ",".join(str(softdriver.path(name)) for name in drivers)
    if chosen.path or chosen.loader_path:
        print(paths if chosen.path else softdriver.loader_path())
        return 0
    if not command:
        print("l0py: softdriver needs --path, --loader-path or -- COMMAND...", file=sys.stderr)
        return 2
    environment = _environment(*drivers)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - it becomes the command
    except (OSError, ValueError) as error:  # ValueError for an empty name
        print(f"l0py: {command[0]}: {getattr(error, 'strerror', error)}", file=sys.stderr)
        return 127


def _environment(*drivers: str) -> dict[str, str]:
    """The environment in which a program finds software drivers, by the loader that l0py would choose."""
    loader.add_software_drivers(*drivers)
    bound = loader.info()
    environment = dict(os.environ, L0PY_SOFTDRIVER=",".join(drivers))
    if bound.source == "system":
        return environment
    path = Path(bound.path)
    if path.name == loader.SONAME:
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{path.parent}:{before}" if before else str(path.parent)
    else:  # it can only be found by its name inside, once it is there
        before = environment.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = f"{before}:{path}" if before else str(path)
    return environment


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough: nothing is left to be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
