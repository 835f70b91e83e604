"""What the demo prints: lines of progress on stderr, and the outcome as text or as one JSON object."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from ovadapter.tables import table

if TYPE_CHECKING:
    from ovadapter.demo.main_job import Outcome

VERDICTS = {True: "COPIED", False: "zero copy", None: "unknown"}


def progress(text: str) -> None:
    """One line on stderr."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def as_json(outcome: Outcome) -> str:
    """One object, one line.

    `zero_copy` says true or false for every tensor (null where nobody can tell) and `all_zero_copy` for all of them;
    `max_abs_diff` is the largest difference between any raw output and the CPU plugin's in f32.
    """
    tensors = outcome.tensors
    return (
        json.dumps(
            {
                "device": outcome.device,
                "device_name": outcome.device_name,
                "driver": outcome.driver,
                "loader": outcome.loader,
                "picture": {
                    "source": outcome.picture.source,
                    "height": outcome.picture.height,
                    "width": outcome.picture.width,
                    "from_process": outcome.picture.pid,
                },
                "routes": {name: report.route for name, report in tensors.items()},
                "zero_copy": {name: _negated(report.copied) for name, report in tensors.items()},
                "all_zero_copy": outcome.zero_copy,
                "rules": {name: report.rule for name, report in tensors.items()},
                "evidence": {name: report.evidence for name, report in tensors.items()},
                "max_abs_diff": max(outcome.differences.values()),
                "max_abs_diff_of": outcome.differences,
                "result": [line.device.text for line in outcome.lines],
                "cpu_result": [line.cpu.text for line in outcome.lines],
            },
            ensure_ascii=False,
        )
        + "\n"
    )


def as_text(outcome: Outcome) -> str:
    """For people: what ran where, each tensor's route and verdict, the text beside the CPU plugin's."""
    picture = outcome.picture
    size = f"{picture.width} x {picture.height} RGB"
    rows = [
        f"device   {outcome.device} ({outcome.device_name})",
        f"driver   {outcome.driver}",
        f"loader   {_loader(outcome.loader)}",
        f"picture  {picture.source}, {size}, drawn by process {picture.pid} and received as a file descriptor",
        "",
        *table(
            [("TENSOR", "ROUTE", "VERDICT", "BY", "RULE")]
            + [
                (name, report.route, VERDICTS[report.copied], report.evidence, report.rule)
                for name, report in outcome.tensors.items()
            ]
        ),
        "",
        *_reading(outcome),
        "",
        "largest difference from the CPU plugin's raw output: "
        + ", ".join(f"{name} {difference:g}" for name, difference in outcome.differences.items()),
        {
            True: f"zero copy: all {len(outcome.tensors)} tensors",
            False: "zero copy: NO, a tensor was copied",
            None: "zero copy: unknown on this device",
        }[outcome.zero_copy],
    ]
    return "\n".join(rows) + "\n"


def _reading(outcome: Outcome) -> list[str]:
    if not outcome.lines:
        return ["no text was found"]
    heading = (f"{outcome.device} READS", "SCORE", "CPU PLUGIN READS")
    return table(
        [heading]
        + [
            (line.device.text, f"{line.device.score:.2f}", "the same" if line.cpu == line.device else line.cpu.text)
            for line in outcome.lines
        ]
    )


def _loader(loader: dict[str, str]) -> str:
    return "{source}, {version}: {path} ({reason})".format(**loader) if loader else "none"


def _negated(copied: bool | None) -> bool | None:
    return None if copied is None else not copied
