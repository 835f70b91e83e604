"""Tables for people: aligned columns, folded to the terminal where the extra `cli` is installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["table"]


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The lines of a table whose first row is its heading.

    Columns are as wide as their longest cell; on a terminal, rich (the extra `cli`) folds long cells to its width.
    """
    if sys.stdout.isatty():
        try:
            return _folded(rows)
        except ModuleNotFoundError:
            pass
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _folded(rows: Sequence[tuple[str, ...]]) -> list[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in rows[0]:
        made.add_column(Text(heading), overflow="fold")
    for row in rows[1:]:
        made.add_row(*map(Text, row))
    console = Console(color_system=None)
    with console.capture() as captured:
        console.print(made)
    return [line.rstrip() for line in captured.get().splitlines()]
