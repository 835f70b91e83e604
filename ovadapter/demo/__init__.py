"""Read a scanned page with OpenVINO's NPU plugin, and prove that no tensor was copied.

The picture is drawn by another process and arrives as a file descriptor. l0py imports it, ovadapter makes it the input
of a text detection model, and every other tensor lies in memory that l0py can export. Each tensor's verdict says
whether it was copied, and what that rests on; the CPU plugin runs the same models beside it.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line of `python -m ovadapter demo`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.add_argument("--device", choices=["NPU", "CPU"], default="NPU", help="where the models run (default: NPU)")
    parser.add_argument("--image", type=Path, metavar="PATH", help="a picture to read instead of the scanned page")
    parser.epilog = (
        "Without an NPU the software driver stands in for it. L0PY_SOFTDRIVER=1 asks for the software driver, "
        "L0PY_SOFTDRIVER=0 for real hardware."
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo; 0 when no tensor was copied (on the CPU: when it ran), 1 otherwise."""
    if sys.platform != "linux":
        print("demo: passing a picture's fd from process to process needs Linux", file=sys.stderr)
        return 1
    with _stdout_kept_clean() as stdout:
        try:
            from ovadapter.demo import main_job, report

            outcome = main_job.run(arguments.device, arguments.image, progress=report.progress)
        except ModuleNotFoundError as error:
            print(f"demo: {error.name} is missing: install l0py with its extra `demo`", file=sys.stderr)
            return 1
        except (RuntimeError, ValueError, OSError, MemoryError, NotImplementedError) as error:
            print(f"demo: {str(error).strip() or type(error).__name__}", file=sys.stderr)
            return 1
        # Flushed at once: a library that forks (OpenVINO's telemetry does) would print a buffer's text once more.
        print(report.as_json(outcome) if arguments.json else report.as_text(outcome), end="", file=stdout, flush=True)
    return 0 if outcome.zero_copy or arguments.device == "CPU" else 1


@contextmanager
def _stdout_kept_clean() -> Iterator[TextIO]:
    """The real stdout, for the result alone: whatever else a library prints there goes to stderr meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(kept, "w", encoding="utf-8") as stdout:
        try:
            yield stdout
        finally:
            os.dup2(kept, 1)
