"""Formats of elements, as the protocols between libraries write them.

The common form is NumPy's type string (`"<f4"`, `"|u1"`). Types that NumPy lacks go by the names that DLPack and
machine learning libraries give them (`"bfloat16"`, `"float8_e4m3fn"`).
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from .errors import InvalidArgument

__all__: list[str] = []

#: Bytes of the types that have no type string.
NAMED = {
    "bfloat16": 2,
    "complex32": 4,
    "float8_e3m4": 1,
    "float8_e4m3": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}

#: Bytes that a type string's number may be; None where any will do.
_SIZES: dict[str, tuple[int, ...] | None] = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
    "S": None,
    "U": None,
    "V": None,
}

#: Of the buffer protocol's letters, the kinds that they mean; their sizes are the buffer's itemsize.
_LETTERS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQNP", "u"),
    **dict.fromkeys("efdg", "f"),
    **dict.fromkeys(("Zf", "Zd", "Zg", "F", "D"), "c"),
    "?": "b",
    "c": "S",
    "s": "S",
}

_NATIVE = "<" if sys.byteorder == "little" else ">"
_TYPE_STRING = re.compile(r"([<>|=]?)([biufcmMSUV])(\d{1,9})(\[.*\])?")
_FIELD_NAME = re.compile(r":[^:]*:")
_STRUCT_FORMAT = re.compile(r"([@=<>!^]?)(\d*)(Z?[a-zA-Z?])")


@lru_cache(maxsize=256)
def parse(text: str) -> tuple[str, int]:
    """A format in its one spelling, and the bytes of an element. Raises `InvalidArgument`."""
    if text in NAMED:
        return text, NAMED[text]
    match = _TYPE_STRING.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{text!r} is no format: a NumPy type string ('<f4') or one of {', '.join(NAMED)}")
    order, kind, number, unit = match.groups(default="")
    sizes = _SIZES[kind]
    size = int(number) * (4 if kind == "U" else 1)
    if size == 0 or (sizes is not None and size not in sizes) or (unit and kind not in "mM"):
        raise InvalidArgument(f"{text!r} is no format: there is no {kind!r} of {number} bytes{unit and ' and a unit'}")
    if kind in "bSV" or size == 1:
        order = "|"
    elif order in ("", "=", "|"):
        order = _NATIVE
    return f"{order}{kind}{number}{unit}", size


def of_buffer(text: str, size: int) -> str:
    """The format of a buffer's elements, whose size is known; structures and what is rare are plain bytes.

    Raises `InvalidArgument` for Python objects.
    """
    if "O" in _FIELD_NAME.sub("", text):
        raise InvalidArgument(f"a buffer of format {text!r} holds Python objects, not numbers")
    match = _STRUCT_FORMAT.fullmatch(text)
    kind = _LETTERS.get(match[3], "V") if match else "V"
    sizes = _SIZES[kind]
    if match is None or (match[2] and kind != "S") or (sizes is not None and size not in sizes):
        kind = "V"
    order = ">" if match and match[1] in (">", "!") else "<" if match and match[1] == "<" else _NATIVE
    return parse(f"{order}{kind}{size}")[0]
