"""Memory that was shared with another context or device: what it is there, and how it came there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import ExitStack

    import l0py

    from .context import NpuContext
    from .tensor import Tensor

__all__ = ["Shared"]


class Shared:
    """Memory that another context or device uses in place. Made by `share`; a context manager.

    `memory` is a l0py.Memory of the context that it was shared with: the same bytes as those of `source`. `way` is how
    they got there: `"peer access"`, `"same context"`, `"dma_buf"`, `"opaque_fd"`, `"opaque_win32"`, `"host pages"`;
    `tried` lists the ways that did not do before, each with the reason.

    What came by a handle stays when `source` is closed; on the other ways `source` is freed with the last that uses it.
    """

    def __init__(
        self,
        source: l0py.Memory,
        memory: l0py.Memory,
        way: str,
        tried: Iterable[tuple[str, str]],
        npu: NpuContext | None,
        own: ExitStack,
    ) -> None:
        self.source = source
        self.memory = memory
        self.way = way
        self.tried = list(tried)
        self._npu = npu
        self._own = own

    def tensor(self, shape: Iterable[int], type: Any, **options: Any) -> Tensor:  # noqa: A002 - as remote_tensor
        """A tensor over it for the NpuContext that it was shared with: `NpuContext.remote_tensor` and its options.

        Raises TypeError for what was shared with a l0py.Context.
        """
        if self._npu is None:
            raise TypeError(f"{self!r} was not shared with an NpuContext, which alone makes tensors")
        return self._npu.remote_tensor(self.memory, shape, type, **options)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or can no longer be used because its context was."""
        return self.memory.closed

    def close(self) -> None:
        """Lets go of the memory; tensors made over it keep what they need. Runs once.

        Raises BufferError while arrays of `memory` live.
        """
        self.memory.close()
        self._own.close()

    def __enter__(self) -> Shared:
        self.memory.require_open()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self.close()
        except BufferError:
            if error is None:
                raise
            # As memory does: the pending error says more, and its traceback may be all that uses the memory.

    def __reduce__(self) -> str:
        raise TypeError("a Shared cannot be copied or pickled: its memory means nothing elsewhere")

    def __repr__(self) -> str:
        return f"<ovadapter.Shared {self.memory!r} by {self.way}>"
