"""The functions of Windows that `ntwin` calls: their signatures, bound at the first use, and what they fail with.

Types are written by their width: `ctypes.wintypes` has others where there is no Windows, and tests put a stand-in here.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from ctypes import POINTER, c_int32, c_size_t, c_uint32, c_void_p, c_wchar_p
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []

_BOOL, _DWORD, _HANDLE = c_int32, c_uint32, c_void_p


class MemoryInformation(ctypes.Structure):
    """MEMORY_BASIC_INFORMATION of a 64-bit process: pages that follow one another and are alike."""

    _fields_ = (
        ("base", c_void_p),
        ("allocation", c_void_p),
        ("allocation_protection", c_uint32),
        ("partition", c_uint32),
        ("size", c_size_t),
        ("state", c_uint32),
        ("protection", c_uint32),
        ("type", c_uint32),
        ("unused", c_uint32),
    )


#: By library and function: what it returns, and what it takes.
SIGNATURES: dict[str, dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "kernel32": {
        "CloseHandle": (_BOOL, (_HANDLE,)),
        "CreateFileMappingW": (_HANDLE, (_HANDLE, c_void_p, _DWORD, _DWORD, _DWORD, c_wchar_p)),
        "DuplicateHandle": (_BOOL, (_HANDLE, _HANDLE, _HANDLE, POINTER(_HANDLE), _DWORD, _BOOL, _DWORD)),
        "GetCurrentProcess": (_HANDLE, ()),
        "MapViewOfFile": (c_void_p, (_HANDLE, _DWORD, _DWORD, _DWORD, c_size_t)),
        "OpenFileMappingW": (_HANDLE, (_DWORD, _BOOL, c_wchar_p)),
        "OpenProcess": (_HANDLE, (_DWORD, _BOOL, _DWORD)),
        "SetHandleInformation": (_BOOL, (_HANDLE, _DWORD, _DWORD)),
        "UnmapViewOfFile": (_BOOL, (c_void_p,)),
        "VirtualQuery": (c_size_t, (c_void_p, POINTER(MemoryInformation), c_size_t)),
    },
    # Windows 10 and newer.
    "kernelbase": {"CompareObjectHandles": (_BOOL, (_HANDLE, _HANDLE))},
}

INVALID_HANDLE = (1 << 8 * ctypes.sizeof(c_void_p)) - 1
PAGE_READWRITE = 0x04
MEM_COMMIT, MEM_MAPPED = 0x1000, 0x40000
FILE_MAP_WRITE, FILE_MAP_READ = 0x2, 0x4
SECTION_QUERY = 0x1
HANDLE_FLAG_INHERIT = 0x1
DUPLICATE_CLOSE_SOURCE, DUPLICATE_SAME_ACCESS = 0x1, 0x2
PROCESS_DUP_HANDLE = 0x40

ERROR_ALREADY_EXISTS = 183

#: What Windows' errors are elsewhere: exceptions get their class by these.
_ERRNO = {
    2: errno.ENOENT,  # FILE_NOT_FOUND
    5: errno.EACCES,  # ACCESS_DENIED
    6: errno.EBADF,  # INVALID_HANDLE
    8: errno.ENOMEM,  # NOT_ENOUGH_MEMORY
    50: errno.ENOSYS,  # NOT_SUPPORTED
    87: errno.EINVAL,  # INVALID_PARAMETER
    ERROR_ALREADY_EXISTS: errno.EEXIST,
    1455: errno.ENOMEM,  # COMMITMENT_LIMIT
}


class Kernel32:
    """The functions of `SIGNATURES`, as attributes by their names; None for one that this Windows lacks."""

    def __init__(self, find: Callable[[str, str], Any], last_error: Callable[[], int]) -> None:
        """`find(library, name)` answers a ctypes function or None, `last_error()` what the last one failed with."""
        self.last_error = last_error
        for library, functions in SIGNATURES.items():
            for name, (result, arguments) in functions.items():
                function = find(library, name)
                if function is not None:
                    function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"kernel32's {name} is not bound: add it to SIGNATURES")

    def failed(self, what: str) -> OSError:
        """The exception for what the last function answered."""
        code = self.last_error()
        text = f"{what}: {_text(code)}"
        # The fourth argument is Windows' alone, and is passed over elsewhere.
        return OSError(_ERRNO.get(code, errno.EIO), text, None, code)


_bound: Kernel32 | None = None


def kernel32() -> Kernel32:
    """The functions of this process. Raises `OSError` (ENOSYS) where there is no Windows."""
    global _bound
    if _bound is None:
        _bound = _bind()
    return _bound


def _bind() -> Kernel32:
    if sys.platform != "win32":
        raise OSError(errno.ENOSYS, "there are no NT handles on this system: Windows alone has them")
    libraries = {name: ctypes.WinDLL(name, use_last_error=True) for name in SIGNATURES}
    return Kernel32(lambda library, name: getattr(libraries[library], name, None), ctypes.get_last_error)


def _text(code: int) -> str:
    if sys.platform == "win32":
        return f"{ctypes.FormatError(code).strip()} (error {code})"
    return f"Windows error {code}"
