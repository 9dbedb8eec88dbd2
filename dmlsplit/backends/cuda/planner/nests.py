"""Plans for strided splits: one loop nest per output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from dmlsplit.backends.cuda.launch import (
    LOADS,
    OFFSET_64,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    power_of_two,
)
from dmlsplit.backends.cuda.planner.groups import Group, loop_tables, parts
from dmlsplit.backends.cuda.planner.transposed import down_dimension, most_transposed, transpose
from dmlsplit.geometry import SplitGeometry, StridedCopy


def nest_launches(geometry: SplitGeometry, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Yield launches for a geometry that is not packed, for each kernel and unit apart."""
    by_kernel: dict[tuple[bool, int], dict[StridedCopy, list[int]]] = {}
    for index, piece in enumerate(geometry.pieces):
        if piece.run_bytes:
            unit = _unit(piece, assumed)
            alike = by_kernel.setdefault((down_dimension(piece, unit) is not None, unit), {})
            alike.setdefault(replace(piece, input_offset=0), []).append(index)
    for (is_transposed, unit), alike in by_kernel.items():
        make = transpose if is_transposed else _strided
        most = most_transposed(alike, assumed) if is_transposed else (assumed.most_outputs,)
        for part in parts(alike, *most):
            outputs = tuple(chain.from_iterable(part.values()))
            offsets = tuple(geometry.pieces[i].input_offset for i in outputs)
            nest_of = tuple(n for n, same in enumerate(part.values()) for _ in same)
            yield make(Group(unit, outputs, offsets, tuple(part), nest_of), assumed)


def _unit(piece: StridedCopy, assumed: Assumptions) -> int:
    strides = (*piece.input_strides, *piece.output_strides, piece.input_offset)
    alignments = assumed.input_alignment, assumed.output_alignment
    return power_of_two(VECTOR, *alignments, piece.run_bytes, *strides)


def _strided(group: Group, assumed: Assumptions) -> KernelLaunch:
    unit, nests = group.unit, group.nests
    units = [nest.total_bytes // unit for nest in nests]
    # In words, eight loads per thread are what IN_FLIGHT_BYTES needs; smaller units never reach it.
    loads = 2 * LOADS if unit == 4 else LOADS
    loops = [(nest.shape, nest.input_strides, nest.output_strides) for nest in nests]
    starts = group.starts([blocks(count, THREADS * loads) for count in units])
    return KernelLaunch(
        "strided",
        group.outputs,
        group.total_bytes,
        assumed,
        (
            Constant("int", "kLoads", loads),
            Constant("using", "Index", index_type(max(units) + THREADS * loads)),
            Constant("using", "Offset", "int" if max(map(_reach, nests)) < 2**31 else OFFSET_64),
            Constant("Index", "kUnits", tuple(units)),
            Constant("Index", "kRunUnits", tuple(nest.run_bytes // unit for nest in nests)),
            *loop_tables(loops, "Index"),
            *group.tables(starts),
        ),
        starts[-1],
        bytes_in_flight=loads * unit,
        reason=f"strided, in units of {unit} bytes",
    )


def _reach(nest: StridedCopy) -> int:
    """Return the distance from the first byte of an output to its farthest."""
    steps = zip(nest.shape, nest.output_strides, strict=True)
    return nest.run_bytes + sum((size - 1) * abs(stride) for size, stride in steps)
