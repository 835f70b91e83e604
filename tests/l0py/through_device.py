"""What tests see of memory through its device, whether the host may look there or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import l0py


def first_byte(memory: l0py.Memory) -> int:
    got = bytearray(1)
    memory.copy_to(got)
    return got[0]
