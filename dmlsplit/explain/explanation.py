"""How a split runs, as text: bytes, kernels, and the time at a GPU's bandwidth."""

from collections.abc import Iterable, Iterator, Sequence

from dmlsplit.backends.cuda.gpus import H200, Gpu
from dmlsplit.backends.cuda.launch import DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.occupancy import blocks_of, in_flight_per_sm
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT
from dmlsplit.geometry import SplitGeometry, StridedCopy
from dmlsplit.messages import counted, omitted_lines, printable, wrapped

# The most outputs, and the most launches, that are described.
_SHOWN = 8
# What a reader of a time must know.
UNMEASURED = "computed, not measured: no GPU has run dmlsplit yet"


def explanations_text(splits: Iterable[tuple[str, SplitOperatorDesc]], gpu: Gpu) -> str:
    """Explanations as text, and what a reader of their times must know; empty without splits."""
    texts = [explanation_text(location, desc, gpu) for location, desc in splits]
    return "\n\n".join([*texts, wrapped(f"Times are {UNMEASURED}.", "")]) if texts else ""


def explanation_text(location: str, desc: SplitOperatorDesc, gpu: Gpu) -> str:
    """The geometry, kernels and expected time of a valid split, at most 80 columns wide."""
    geometry = descriptor_geometry(desc)
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT  # every binding has at least this alignment
    launches = plan(geometry, aligned, aligned, gpu.limits)
    lines = [
        *_geometry_lines(desc, geometry),
        *_launch_lines(launches, gpu.limits),
        *_cost_lines(geometry.total_bytes, gpu),
    ]
    head = wrapped(f"{printable(location)}: {desc}", "")
    return "\n".join([head, *(wrapped(line, "  ") for line in lines)])


def _geometry_lines(desc: SplitOperatorDesc, geometry: SplitGeometry) -> Iterator[str]:
    """The rows or strides of a split, and what each output takes of them."""
    rows = geometry.row_split
    sizes = [
        f"output {index}: {counted(tensor.element_count, 'element')}"
        for index, tensor in enumerate(desc.output_tensors[:_SHOWN])
    ]
    if rows is None:
        yield "geometry: strided; each output is copied in runs of contiguous bytes"
        for size, piece in zip(sizes, geometry.pieces, strict=False):
            yield f"{size}, {_loops(piece)}"
    else:
        has_one_row = rows.rows == 1
        columns = "" if has_one_row else ", all cut at the same columns"
        yield f"geometry: {counted(rows.rows, 'row')} of {counted(rows.pitch, 'byte')}{columns}"
        for size, start, width in zip(sizes, rows.offsets, rows.widths, strict=False):
            end = f" to {start + width - 1}" if width > 1 else ""
            of_rows = "" if has_one_row else " of every row"
            yield f"{size}, {'bytes' if end else 'byte'} {start}{end}{of_rows}"
    yield from omitted_lines(geometry.output_count, _SHOWN, "output")


def _loops(piece: StridedCopy) -> str:
    """The loop nest of an output, in words."""
    run = f"of {counted(piece.run_bytes, 'byte')} from byte {piece.input_offset}"
    if not piece.loops:
        return f"one run {run}"
    counts, *strides = zip(*piece.loops, strict=True)
    read, write = (f"({', '.join(map(str, steps))})" for steps in strides)
    copies = f"{' x '.join(map(str, counts))} runs {run}"
    return f"{copies}, strides {read} in the input and {write} in the output"


def _launch_lines(launches: Sequence[KernelLaunch], limits: DeviceLimits) -> Iterator[str]:
    """Which kernels run, how many blocks they have, and how well these fill the GPU."""
    is_newer = limits.in_flight_bytes > H200.limits.in_flight_bytes
    reference = "a B200" if is_newer else "an H200"
    for launch in launches[:_SHOWN]:
        yield f"kernel: {launch.code.kernel} ({launch.reason})"
        yield (
            f"launch: {counted(launch.grid, 'block')} of {launch.threads} threads, "
            f"{launch.shared_bytes} bytes of shared memory; at least "
            f"{counted(blocks_of(launch, limits), 'block')} fit an SM"
        )
        size = in_flight_per_sm(launch, limits)
        yield (
            f"in flight: {counted(size, 'byte') if size else 'less than 1 byte'} per SM, "
            f"{_percent(size / limits.in_flight_bytes)} of the {limits.in_flight_bytes} that "
            f"saturate {reference}"
        )
    yield from omitted_lines(len(launches), _SHOWN, "launch")


def _cost_lines(total_bytes: int, gpu: Gpu) -> Iterator[str]:
    """The bytes that are moved, and the least time that takes."""
    seconds = gpu.seconds(total_bytes)
    bandwidth = gpu.bandwidth
    yield f"bytes: {total_bytes} read, {total_bytes} written"
    if bandwidth is None or seconds is None:
        yield f"time: unknown, because the bandwidth of {printable(gpu.name)} is unknown"
    else:
        yield (
            f"time: {_duration(seconds)} at {bandwidth / 1e9:.0f} GB/s ({printable(gpu.name)}), "
            "plus the launch"
        )
    for assumption in gpu.assumed:
        yield f"assumed: {assumption}"


def _percent(share: float) -> str:
    """A share in percent, to two digits: ``0.37 %``, ``38 %``, ``190 %``."""
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 10 else f"{round(percent)} %"


def _duration(seconds: float) -> str:
    """A time to three digits; below a microsecond, a launch takes longer than the copy."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"at least {seconds / size:.3g} {unit}"
    return "less than 1 us"
