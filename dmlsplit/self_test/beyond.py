"""Splits beyond 4 GiB: of inputs whose few rows are far apart, and into outputs of many bytes.

A kernel that calculates a place with 32 bits passes all smaller splits.
"""

from collections.abc import Iterator
from dataclasses import replace

from dmlsplit.backends import Backend
from dmlsplit.messages import counted
from dmlsplit.self_test import large
from dmlsplit.self_test.byte_comparison import CaseResult, compare
from dmlsplit.self_test.case import Case
from dmlsplit.self_test.environment import Check, CheckState
from dmlsplit.self_test.kernels import case_bind
from dmlsplit.self_test.memory import GpuMemory, Memory

# The widest output exceeds 4 GiB, by more bytes than a block or chunk of any kernel has.
OUTPUT_BYTES = 1 << 32
MORE_BYTES = 1 << 25
# Only one part in this number of such an output is compared, to save the time of reading it back.
STEP = 8


def _pair(near: Case, pitch: int) -> tuple[Case, Case]:
    """A split, and the same one with slices that are `pitch` bytes apart."""
    assert near.strides
    return near, replace(near, strides=(pitch, *near.strides[1:]))


# Splits of few bytes, and the same ones with slices of the first dimension that are far apart.
FAR = (
    _pair(Case("rows beyond 4 GiB", (3, 4096), (1000, 3096), strides=(4096, 1)), 2**31 + 4099),
    _pair(Case("chunks beyond 4 GiB", (18, 4096), (1000, 3096), strides=(4096, 1)), 2**28 + 4099),
    _pair(Case("narrow columns beyond 4 GiB", (9, 60), (20, 40), strides=(60, 1)), 2**29 + 61),
    _pair(Case("steps beyond 4 GiB", (3, 800), (300, 500), strides=(2400, 3)), 2**31 + 2403),
    _pair(
        Case("lines beyond 4 GiB", (9, 16), (8, 8), strides=(16, 1), output_strides=((1, 9),) * 2),
        2**29 + 17,
    ),
    _pair(Case("planes beyond 4 GiB", (3, 40, 70), (30, 40), strides=(2800, 1, 40)), 2**31 + 2801),
)
# A slice of splits into outputs beyond 4 GiB, of which there are as many as needed.
SLICES = (
    Case("wide outputs", (1, 16384), (15360, 1024)),
    Case("wide outputs at odd addresses", (1, 16362), (15361, 1001), phases=(1, 3)),
    Case("narrow outputs", (1, 60), (3, 57)),
    Case("narrow outputs at odd addresses", (1, 60), (3, 57), phases=(1, 3)),
    Case("steps of broadcast rows", (1, 30000), (300, 29700), strides=(0, 2)),
    Case("planes of a broadcast input", (1, 100, 300), (100, 200), strides=(0, 1, 100)),
    Case("a single row", (2, 100003), (1, 1), phases=(0, 5), axis=0),
    Case("odd pixels", (1, 6), (3, 3), phases=(1, 1)),
)


def large_cases() -> Iterator[Case]:
    """Splits whose widest output has OUTPUT_BYTES and more."""
    for case in SLICES:
        slice_bytes = max(tensor.size for tensor in case.output_tensors)
        count = (OUTPUT_BYTES + MORE_BYTES) // slice_bytes
        sizes = (1, count) if case.axis == 0 else case.sizes
        shape = (sum(sizes) if case.axis == 0 else count, *case.shape[1:])
        yield replace(case, name=f"{case.name} beyond 4 GiB", shape=shape, sizes=sizes)


def compare_beyond(backend: Backend, memory: Memory) -> Iterator[CaseResult | Check]:
    """Compare the splits beyond 4 GiB that fit the memory; a last check counts the others.

    On the CPU, which has no kernels, only inputs are beyond 4 GiB.
    """
    missing = []
    for near, far in FAR:
        result = _compare_far(near, far, backend, memory)
        if result is None:
            missing.append(far.source.size)
        else:
            yield result
    for case in large_cases() if isinstance(memory, GpuMemory) else ():
        result = _compare_large(case, backend, memory)
        if result is None:
            missing.append(large.source_bytes(case) + large.target_bytes(case))
        else:
            yield result
    if missing:
        sizes = f"{min(missing) / 1e9:.1f} to {max(missing) / 1e9:.1f} GB"
        text = f"{counted(len(missing), 'split')} of {sizes} not tested: there is no room in memory"
        yield Check("beyond 4 GiB", CheckState.WARN, text)


def _compare_far(near: Case, far: Case, backend: Backend, memory: Memory) -> CaseResult | None:
    """Run `far` on the slices of `near`, whose outputs are the same; None if there is no room."""
    spread = memory.reserve(far.source.size)
    if spread is None:
        return None
    data = near.data()
    slice_count, *_ = near.shape
    near_stride, *_ = near.source.strides
    far_stride, *_ = far.source.strides
    for number in range(slice_count):
        slice_data = data[number * near_stride :][:near_stride]
        memory.write(spread, slice_data, number * far_stride)
    return compare(near, backend.compile(far.geometry).bind, memory, spread.address)


def _compare_large(case: Case, backend: Backend, memory: Memory) -> CaseResult | None:
    """Run a split of which a part of the outputs is compared; None if there is no room."""
    source = memory.reserve(large.source_bytes(case))
    target = source and memory.reserve(large.target_bytes(case))
    if not source or not target:
        return None
    bind = case_bind(case, backend.compile(case.geometry))
    large.prepared_copy(case, bind, memory, source, target)()
    return large.compare_outputs(case, memory, target, STEP)
