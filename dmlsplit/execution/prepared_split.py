"""The last steps of most splits, after all checks: allocate, copy, and convert the pieces.

Here an array library also learns which stream uses its memory, and that its arrays were written.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlsplit.arrays import adapter_of
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.arrays.array_view import ArrayView
from dmlsplit.arrays.dlpack import converted_like
from dmlsplit.arrays.torch_adapter import record_writes, tensors_among
from dmlsplit.arrays.types import Stream
from dmlsplit.backends import BoundCopy, Program

# What is kept of a split takes hundreds of bytes per piece, or more. The caches for splits of more
# pieces than this are therefore smaller.
FEW_PIECES = 64
MANY_PIECES_CACHED = 8


class PreparedSplit(NamedTuple):
    """How arrays of one layout are split. A tuple, because calls with new sizes make new ones."""

    program: Program
    outputs: NewArrays

    def split(self, source: ArrayView, like: Any, stream: Stream | None = None) -> list[Any]:
        """Split an array into new ones of the library of `like`."""
        library = adapter_of(source.owner)
        arrays, addresses = library.empty(source, self.outputs, stream)
        if self.outputs.layouts is not None:
            pairs = zip(arrays, self.outputs.layouts, strict=True)
            arrays = [library.strided(array, *layout) for array, layout in pairs]
        # Also in `split_into`, because a function for both would cost every split a call.
        current = library.current_stream(source.owner) if stream is None else None
        self.program.copy(source.address, addresses, current() if current else stream)
        if stream is not None:
            library.record_stream(source.owner, stream)
        return converted_like(like, arrays)

    def split_into(
        self,
        source: ArrayView,
        owners: Sequence[Any],
        addresses: Sequence[int],
        stream: Stream | None = None,
    ) -> None:
        """Split an array into outputs that were accepted for this layout."""
        current = adapter_of(source.owner).current_stream(source.owner) if stream is None else None
        self.program.copy(source.address, addresses, current() if current else stream)
        if tensors := tensors_among(owners):  # no other library counts writes
            record_writes(tensors)
        if stream is not None:
            for owner in (source.owner, *owners):
                adapter_of(owner).record_stream(owner, stream)

    def bind(self, source: ArrayView, owners: Sequence[Any], addresses: Sequence[int]) -> BoundCopy:
        """A callable that repeats `split_into`. It does not keep the arrays alive."""
        copy = self.program.bind(source.address, addresses)
        current = adapter_of(source.owner).current_stream(source.owner)
        tensors = tensors_among(owners)
        if current is None and not tensors:
            return copy

        def copy_and_count(stream: Any = None) -> None:
            copy(current() if current and stream is None else stream)
            record_writes(tensors)

        return copy_and_count
