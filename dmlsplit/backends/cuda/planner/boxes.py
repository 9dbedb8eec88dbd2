"""Plans for strided splits: one loop nest per output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import prod

from dmlsplit.backends.cuda.launch import (
    LOADS,
    SIGNED,
    THREADS,
    VECTOR,
    WIDE,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    kernel_launch,
    power_of_two,
)
from dmlsplit.geometry import SplitGeometry, StridedCopy

# Distinct boxes that one launch makes code for.
BOXES = 16
# A dimension must be this long on both sides for squares of it to pay.
SQUARE_SIDE = 8


@dataclass(frozen=True, slots=True)
class _Box:
    """A loop nest in units: the shape that outputs of one strided launch share."""

    sizes: tuple[int, ...]
    input_strides: tuple[int, ...]
    output_strides: tuple[int, ...]
    run_bytes: int


def box_launches(
    geometry: SplitGeometry, source: int, target: int, common: list[Constant], most: int
) -> Iterator[KernelLaunch]:
    """Yield launches for the boxes of a geometry that is not packed.

    Parameters
    ----------
    geometry
        What to copy.
    source, target
        Alignment of the input's address and of all outputs', a power of two up to 16.
    common
        Constants of every launch.
    most
        Outputs that fit one launch's parameters.
    """
    by_kernel: dict[tuple[str, int], dict[int, _Box]] = {}
    for index, piece in enumerate(geometry.pieces):
        if piece.run_bytes:
            box = _Box(piece.shape, piece.input_strides, piece.output_strides, piece.run_bytes)
            unit = _unit(piece, source, target)
            kernel = "transpose" if _down(box, unit) is not None else "strided"
            by_kernel.setdefault((kernel, unit), {})[index] = box
    for (kernel, unit), boxes in by_kernel.items():
        make = _transpose if kernel == "transpose" else _box_copy
        for outputs in _box_groups(boxes, most):
            offsets = [geometry.pieces[i].input_offset for i in outputs]
            yield make([boxes[i] for i in outputs], outputs, offsets, unit, common)


def _unit(piece: StridedCopy, source: int, target: int) -> int:
    strides = (*piece.input_strides, *piece.output_strides)
    return power_of_two(VECTOR, source, target, piece.run_bytes, piece.input_offset, *strides)


def _box_groups(boxes: dict[int, _Box], most: int) -> Iterator[list[int]]:
    """Cut outputs, equal boxes together, into launches of at most BOXES boxes, `most` outputs."""
    alike: dict[_Box, list[int]] = {}
    for index, box in boxes.items():
        alike.setdefault(box, []).append(index)
    group: list[int] = []
    seen: set[_Box] = set()
    for index in chain.from_iterable(alike.values()):
        if group and (len(group) == most or len(seen | {boxes[index]}) > BOXES):
            yield group
            group, seen = [], set()
        group.append(index)
        seen.add(boxes[index])
    if group:
        yield group


def _box_copy(
    boxes: list[_Box], outputs: list[int], offsets: list[int], unit: int, common: list[Constant]
) -> KernelLaunch:
    distinct = list(dict.fromkeys(boxes))
    units = [prod(box.sizes) * box.run_bytes // unit for box in distinct]
    loads = 2 * LOADS if unit == 4 else LOADS
    tiles = [blocks(units[distinct.index(box)], THREADS * loads) for box in boxes]
    return _box_launch(
        "strided",
        boxes,
        outputs,
        offsets,
        unit,
        [
            *common,
            Constant("int", "kLoads", loads),
            Constant("using", "Index", index_type(max(units) + THREADS * loads)),
            Constant("using", "Offset", "int" if max(map(_reach, distinct)) < 2**31 else SIGNED),
            Constant("Index", "kUnits", tuple(units)),
            Constant("Index", "kRunUnits", tuple(box.run_bytes // unit for box in distinct)),
            *_nest(
                [(box.sizes, box.input_strides, box.output_strides) for box in distinct], "Index"
            ),
        ],
        tiles,
        in_flight=loads * unit,
        reason=f"strided, in units of {unit} bytes",
    )


def _reach(box: _Box) -> int:
    """Return the distance from the first byte of an output to its farthest."""
    steps = zip(box.sizes, box.output_strides, strict=True)
    return box.run_bytes + sum((size - 1) * abs(stride) for size, stride in steps)


def _down(box: _Box, unit: int) -> int | None:
    """Return the dimension along which the input is contiguous, if the output's is another."""
    if box.run_bytes != unit or not box.sizes or box.output_strides[-1] != unit:
        return None
    for dimension in range(len(box.sizes) - 1):
        if (
            box.input_strides[dimension] == unit
            and min(box.sizes[dimension], box.sizes[-1]) >= SQUARE_SIDE
        ):
            return dimension
    return None


def _transpose(
    boxes: list[_Box], outputs: list[int], offsets: list[int], unit: int, common: list[Constant]
) -> KernelLaunch:
    side = 64 if unit <= 4 else 32
    distinct = list(dict.fromkeys(boxes))
    downs = [_down(box, unit) or 0 for box in distinct]
    squares, nests = [], []
    for box, down in zip(distinct, downs, strict=True):
        others = [d for d in range(len(box.sizes) - 1) if d != down]
        nests.append(
            tuple(
                tuple(row[d] for d in others)
                for row in (box.sizes, box.input_strides, box.output_strides)
            )
        )
        flat = blocks(box.sizes[-1], side) * blocks(box.sizes[down], side)
        squares.append(flat * prod(box.sizes[d] for d in others))
    rows = list(zip(distinct, downs, strict=True))
    return _box_launch(
        "transpose",
        boxes,
        outputs,
        offsets,
        unit,
        [
            *common,
            Constant("int", "kSide", side),
            Constant(WIDE, "kAcross", tuple(box.sizes[-1] for box in distinct)),
            Constant(WIDE, "kDown", tuple(box.sizes[down] for box, down in rows)),
            Constant(SIGNED, "kAcrossStride", tuple(box.input_strides[-1] for box in distinct)),
            Constant(SIGNED, "kDownStride", tuple(box.output_strides[down] for box, down in rows)),
            *_nest(nests, WIDE),
        ],
        [squares[distinct.index(box)] for box in boxes],
        shared_bytes=side * (side + 1) * unit,
        in_flight=side * side // THREADS * unit,
        reason=f"input and output are contiguous along different dimensions, {unit} bytes each",
    )


def _nest(nests: Sequence[Sequence[tuple[int, ...]]], index: str) -> list[Constant]:
    """Return the tables of loop nests, filled up in front to the deepest of them."""
    deep = max(1, *(len(sizes) for sizes, _, _ in nests))
    tables: list[list[int]] = [[], [], []]
    for nest in nests:
        for table, row, filler in zip(tables, nest, (1, 0, 0), strict=True):
            table += [filler] * (deep - len(row)) + list(row)
    return [
        Constant("int", "kDimensions", deep),
        Constant(index, "kSizes", tuple(tables[0])),
        Constant(SIGNED, "kInputStrides", tuple(tables[1])),
        Constant(SIGNED, "kOutputStrides", tuple(tables[2])),
    ]


def _box_launch(
    kernel: str,
    boxes: list[_Box],
    outputs: list[int],
    offsets: list[int],
    unit: int,
    constants: list[Constant],
    tiles: list[int],
    *,
    in_flight: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    distinct = list(dict.fromkeys(boxes))
    tables = [
        Constant("int", "kUnit", unit),
        Constant("int", "kBoxes", len(distinct)),
        Constant("unsigned char", "kOutputBoxes", tuple(distinct.index(box) for box in boxes)),
        Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
        Constant(SIGNED, "kOffsets", tuple(offsets)),
    ]
    return kernel_launch(
        kernel,
        outputs,
        [*constants, *tables],
        sum(tiles),
        in_flight=in_flight,
        total_bytes=sum(prod(box.sizes) * box.run_bytes for box in boxes),
        reason=reason,
        shared_bytes=shared_bytes,
    )
