"""Plans for strided splits: one loop nest per output."""

from collections.abc import Iterator

from dmlsplit.backends.cuda.launch import Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner.forms import Nest, form_of, nest_of
from dmlsplit.backends.cuda.planner.strided import strided_launches
from dmlsplit.backends.cuda.planner.transposed import down_loop, launch_parts, transpose
from dmlsplit.geometry import SplitGeometry


def are_windows(geometry: SplitGeometry, assumed: Assumptions) -> bool:
    """Whether all outputs are single units a few apart, which windows are faster for than tiles."""
    nests = (nest_of(piece, assumed) for piece in geometry.pieces if piece.run_bytes)
    return all(abs(nest.step) > 1 and form_of(nest, 1, assumed).window_step for nest in nests)


def nest_launches(geometry: SplitGeometry, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Launches for a geometry that is not packed, for each kernel and unit apart."""
    by_unit: dict[int, dict[Nest, list[int]]] = {}
    others: dict[Nest, list[tuple[int, int]]] = {}
    for index, piece in enumerate(geometry.pieces):
        if not piece.run_bytes:
            continue
        nest = nest_of(piece, assumed)
        is_window = form_of(nest, 1, assumed).window_step is not None
        if is_window or down_loop(nest) is None:
            others.setdefault(nest, []).append((index, piece.input_offset))
        else:
            by_unit.setdefault(nest.unit, {}).setdefault(nest, []).append(index)
    for alike in by_unit.values():
        for part in launch_parts(alike, assumed):
            yield transpose(part, geometry.pieces, assumed)
    yield from strided_launches(others, assumed)
