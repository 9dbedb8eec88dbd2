"""How a split runs, as text and JSON: bytes, kernels, and the time at a GPU's bandwidth."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dmlsplit.backends.cuda.gpus import Gpu
from dmlsplit.backends.cuda.occupancy import blocks_of, in_flight_per_sm
from dmlsplit.backends.cuda.planner import KernelLaunch, plan
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT
from dmlsplit.geometry import SplitGeometry, StridedCopy
from dmlsplit.messages import counted, more, printable, wrapped

_SHOWN = 8  # the most outputs or launches in a text
# What a reader of a time must know.
UNMEASURED = "computed, not measured: no GPU has run dmlsplit yet"


class Explanation(NamedTuple):
    """The geometry, the kernels and the computed time of one split."""

    place: str
    desc: SplitOperatorDesc  # valid
    geometry: SplitGeometry
    launches: tuple[KernelLaunch, ...]  # for buffers whose addresses are multiples of 16
    gpu: Gpu

    @property
    def seconds(self) -> float | None:
        """The seconds for all bytes at peak bandwidth, a lower bound; None if it is unknown."""
        return self.gpu.seconds(self.geometry.total_bytes)


def explain(place: str, desc: SplitOperatorDesc, gpu: Gpu) -> Explanation:
    """Explain a valid descriptor."""
    geometry = descriptor_geometry(desc)
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT  # every binding has at least this alignment
    return Explanation(place, desc, geometry, plan(geometry, aligned, aligned, gpu.limits), gpu)


def explanation_text(explanation: Explanation) -> str:
    """An explanation as text, at most 80 columns wide."""
    head = wrapped(f"{printable(explanation.place)}: {explanation.desc}", "")
    lines = [*_geometry(explanation), *_launches(explanation), *_cost(explanation)]
    return "\n".join([head, *(wrapped(line, "  ") for line in lines)])


def explanations_text(explanations: Iterable[Explanation]) -> str:
    """Explanations as text, and what a reader of their times must know; empty if there is none."""
    texts = list(map(explanation_text, explanations))
    return "\n\n".join([*texts, wrapped(f"Times are {UNMEASURED}.", "")]) if texts else ""


def _geometry(explanation: Explanation) -> Iterator[str]:
    geometry = explanation.geometry
    rows = geometry.row_split
    sizes = [
        f"output {index}: {counted(tensor.element_count, 'element')}"
        for index, tensor in enumerate(explanation.desc.output_tensors[:_SHOWN])
    ]
    if rows is None:
        yield "geometry: strided; each output is a loop nest over runs of bytes"
        for size, piece in zip(sizes, geometry.pieces, strict=False):
            yield f"{size}, {_loops(piece)}"
    else:
        is_one = rows.rows == 1
        cut = "" if is_one else ", all cut at the same columns"
        yield f"geometry: {counted(rows.rows, 'row')} of {counted(rows.pitch, 'byte')}{cut}"
        for size, start, width in zip(sizes, rows.offsets, rows.widths, strict=False):
            end = f" to {start + width - 1}" if width > 1 else ""
            of_rows = "" if is_one else " of every row"
            yield f"{size}, {'bytes' if end else 'byte'} {start}{end}{of_rows}"
    yield from more(len(geometry.pieces), _SHOWN, "output")


def _loops(piece: StridedCopy) -> str:
    nest = ", ".join(f"{count} times (read +{s}, write +{t})" for count, s, t in piece.loops)
    start = f"{counted(piece.run_bytes, 'byte')} from byte {piece.input_offset}"
    return f"{start}, {nest}" if nest else start


def _launches(explanation: Explanation) -> Iterator[str]:
    launches, limits = explanation.launches, explanation.gpu.limits
    for launch in launches[:_SHOWN]:
        yield f"kernel: {launch.code.kernel} ({launch.reason})"
        yield (
            f"launch: {counted(launch.grid, 'block')} of {launch.block} threads, "
            f"{launch.shared_bytes} bytes of shared memory; at least "
            f"{counted(blocks_of(launch, limits), 'block')} fit an SM"
        )
        own = in_flight_per_sm(launch, limits)
        yield (
            f"in flight: {counted(own, 'byte') if own else 'less than 1 byte'} per SM; "
            f"{limits.in_flight_bytes} would saturate the memory"
        )
    yield from more(len(launches), _SHOWN, "launch")


def _cost(explanation: Explanation) -> Iterator[str]:
    total = explanation.geometry.total_bytes
    gpu = explanation.gpu
    yield f"bytes: {total} read, {total} written"
    if gpu.bandwidth is None or explanation.seconds is None:
        yield f"time: unknown, because the bandwidth of {printable(gpu.name)} is unknown"
    else:
        yield (
            f"time: {_duration(explanation.seconds)} at {gpu.bandwidth / 1e9:.0f} GB/s "
            f"({printable(gpu.name)}), plus the launch"
        )
    for assumption in gpu.assumed:
        yield f"assumed: {assumption}"


def _duration(seconds: float) -> str:
    """A time to three digits; below a microsecond, a launch takes longer than the copy."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"at least {seconds / size:.3g} {unit}"
    return "less than 1 us"


def explanation_json(explanations: Iterable[Explanation]) -> str:
    """Explanations as JSON."""
    return json.dumps({"schema": 1, "splits": list(map(_record, explanations))}, indent=2)


def _fields(value: object, names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names.split()}


def _record(explanation: Explanation) -> dict[str, Any]:
    """One entry of the JSON document, whose keys stay if a field is renamed."""
    geometry, rows = explanation.geometry, explanation.geometry.row_split
    return {
        "place": explanation.place,
        "descriptor": str(explanation.desc),
        "row_split": rows and _fields(rows, "rows pitch offsets widths"),
        "pieces": [
            {
                "shape": [loop.size for loop in piece.loops],
                "input_strides": [loop.input_stride for loop in piece.loops],
                "output_strides": [loop.output_stride for loop in piece.loops],
                "input_offset": piece.input_offset,
                "run_bytes": piece.run_bytes,
            }
            for piece in geometry.pieces
        ],
        "launches": [
            {
                "kernel": launch.code.kernel,
                **_fields(launch, "reason outputs grid block shared_bytes"),
                "resident_blocks": blocks_of(launch, explanation.gpu.limits),
                "bytes_in_flight_per_sm": in_flight_per_sm(launch, explanation.gpu.limits),
                "bytes_in_flight_per_thread": launch.bytes_in_flight,
                "total_bytes": launch.total_bytes,
            }
            for launch in explanation.launches
        ],
        "bytes_read": geometry.total_bytes,
        "bytes_written": geometry.total_bytes,
        "gpu": explanation.gpu.name,
        "bandwidth": explanation.gpu.bandwidth,
        "assumed": explanation.gpu.assumed,
        "seconds": explanation.seconds,
        "seconds_note": UNMEASURED,
    }
