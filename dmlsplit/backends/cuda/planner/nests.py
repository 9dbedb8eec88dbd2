"""Plans for strided splits: one loop nest per output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from dmlsplit.backends.cuda.launch import Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner.forms import form_of, nest_of
from dmlsplit.backends.cuda.planner.groups import Group, parts
from dmlsplit.backends.cuda.planner.strided import strided_launches
from dmlsplit.backends.cuda.planner.transposed import down_dimension, most_transposed, transpose
from dmlsplit.geometry import SplitGeometry, StridedCopy


def are_windows(geometry: SplitGeometry, assumed: Assumptions) -> bool:
    """Whether all outputs are single units a few apart, which windows are faster for than tiles."""
    nests = (nest_of(piece, assumed) for piece in geometry.pieces if piece.run_bytes)
    return all(abs(nest.step) > 1 and form_of(nest, 1, assumed).window_step for nest in nests)


def nest_launches(geometry: SplitGeometry, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Yield launches for a geometry that is not packed, for each kernel and unit apart."""
    by_unit: dict[int, dict[StridedCopy, list[int]]] = {}
    others: list[tuple[int, StridedCopy]] = []
    for index, piece in enumerate(geometry.pieces):
        if not piece.run_bytes:
            continue
        nest = nest_of(piece, assumed)
        is_window = form_of(nest, 1, assumed).window_step is not None
        if is_window or down_dimension(piece, nest.unit) is None:
            others.append((index, piece))
        else:
            alike = by_unit.setdefault(nest.unit, {})
            alike.setdefault(replace(piece, input_offset=0), []).append(index)
    for unit, alike in by_unit.items():
        for part in parts(alike, *most_transposed(alike, assumed)):
            outputs = tuple(chain.from_iterable(part.values()))
            offsets = tuple(geometry.pieces[i].input_offset for i in outputs)
            nests = tuple(number for number, same in enumerate(part.values()) for _ in same)
            yield transpose(Group(unit, outputs, offsets, tuple(part), nests), assumed)
    yield from strided_launches(others, assumed)
