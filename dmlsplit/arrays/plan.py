"""The last steps of every split, after all checks: allocate, copy, and convert the pieces.

Here an array library is also told which stream uses its memory, and that its arrays are written.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dmlsplit.arrays import adapter_of, adapters_of
from dmlsplit.arrays.array_view import ArrayView
from dmlsplit.arrays.dlpack import give_back
from dmlsplit.arrays.packing import Cut, Packing
from dmlsplit.arrays.types import Stream
from dmlsplit.backends import BoundCopy, Program
from dmlsplit.errors import InvalidArgumentError


class Plan(NamedTuple):
    """How arrays of one layout are split. A tuple, because new sizes make one at every call."""

    program: Program
    outputs: Packing  # to allocate
    cut: Cut | None = None  # for arrays on the CPU, if copies of slices are faster

    def split(self, source: ArrayView, model: Any, stream: Stream | None = None) -> list[Any]:
        """Split an array into new ones of the library of `model`."""
        library = adapter_of(source.owner)
        if self.cut is not None and (pieces := library.copies(source.owner, self.cut)):
            return pieces if model is source.owner else give_back(pieces, model)
        wanted = self.outputs
        made, addresses = library.empty(source, wanted, stream)
        # A library may allocate less for a type that packs several elements into a byte. If any
        # array of the type gets too little, so does the largest.
        if wanted.most and (given := library.held(made[wanted.largest])) < wanted.most:
            raise InvalidArgumentError(
                f"an output of {wanted.most} bytes was given only {given}, because elements of "
                f"type {source.type} are not whole bytes. Fix: split them as bytes"
            )
        if wanted.layouts is not None:
            made = [library.strided(one, *at) for one, at in zip(made, wanted.layouts, strict=True)]
        # As in `split_into`; a function for both would be one more call for each split.
        current = library.current_stream(source.owner) if stream is None else None
        self.program.copy(source.address, addresses, current() if current else stream)
        if stream is not None:
            library.used_on(source.owner, stream)
        return give_back(made, model)

    def split_into(
        self,
        source: ArrayView,
        owners: Sequence[Any],
        addresses: Sequence[int],
        stream: Stream | None = None,
    ) -> None:
        """Split an array into outputs that have the plan's layout and do not overlap."""
        library = adapter_of(source.owner)
        cut = self.cut
        if cut is not None and adapters_of(owners) == {library}:
            is_new = not library.repeats or self._is_new(cut, source.address, *addresses)
            if is_new and library.copy_into(source.owner, cut, owners):
                return
        current = library.current_stream(source.owner) if stream is None else None
        self.program.copy(source.address, addresses, current() if current else stream)
        for count in _write_counts(owners):
            count()
        if stream is not None:
            for owner in (source.owner, *owners):
                adapter_of(owner).used_on(owner, stream)

    def _is_new(self, cut: Cut, *addresses: int) -> bool:
        """Whether no recent call had these addresses; otherwise, `dml.split` finds their copy."""
        if addresses in cut.seen:
            if addresses not in cut.copies:
                cut.copies[addresses] = self.program.bind(addresses[0], addresses[1:])
            return False
        if len(cut.seen) == 4:  # callers take turns with a few buffers, or never repeat them
            cut.seen.clear()
            cut.copies.clear()
        cut.seen.add(addresses)
        return True

    def bind(self, source: ArrayView, outputs: Sequence[ArrayView]) -> BoundCopy:
        """A callable that repeats `split_into`. It does not keep the arrays alive."""
        copy = self.program.bind(source.address, [output.address for output in outputs])
        current = adapter_of(source.owner).current_stream(source.owner)
        counts = _write_counts([output.owner for output in outputs])
        if current is None and not counts:
            return copy

        def counted(stream: Any = None) -> None:
            copy(current() if current and stream is None else stream)
            for count in counts:
                count()

        return counted


def _write_counts(owners: Sequence[Any]) -> list[Callable[[], None]]:
    if "torch" not in sys.modules:  # fast path: no other library tracks writes
        return []
    return [each for one in adapters_of(owners) if (each := one.write_count(owners))]
