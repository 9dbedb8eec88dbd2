"""The machine code that NVRTC makes of every kernel for every architecture; no GPU is needed."""

import re
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks import model
from dmlsplit.backends.cuda import planner
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.occupancy import RESERVED, resident_blocks
from tests.host_cuda import harness
from tests.sass import launch as sass
from tests.sass import listing
from tests.support import kernel_cases, nvrtc
from tests.support.kernel_cases import COMPILING, Case

# The oldest, the newest, and the one that the figures are about; then others.
ARCHES = ("sm_75", "sm_90", "sm_120", "sm_80", "sm_100", "sm_86", "sm_89")
MARKED = [
    *ARCHES[:3],
    *(pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHES[3:5]),
    *(pytest.param(arch, marks=pytest.mark.exhaustive) for arch in ARCHES[5:]),
]

# One launch for each kind of code: a kernel with the branches that its constants select.
CASES = {
    "rows_aligned_uneven": Case((8192, 10240), (8192, 1024, 1024), element_bytes=2),
    "rows_aligned_equal": Case((16384, 28672), (14336, 14336), element_bytes=2),
    "rows_aligned_segments": Case((256, 1 << 20), (1,) * 256, axis=0, element_bytes=4),
    "rows_aligned_4095_pointers": Case((4094, 1 << 14), (1,) * 4094, axis=0, element_bytes=4),
    "rows_aligned_above_4_gib": Case((1 << 20, 4096), (3072, 1024), element_bytes=2),
    "rows_short_equal": Case((65536, 2408), (301,) * 8),
    "rows_short_uneven": Case((65536, 900), (101, 478, 321), misaligned=(1, 2)),
    "rows_long_rows": Case((4096, 50257), (25129, 25128), element_bytes=2),
    "rows_chunks": Case((65536, 4099), (1000, 3099)),
    "rows_rows_above_4_gib": Case((2, 5 << 30), ((3 << 30) - 1, (2 << 30) + 1)),
    "rows_4094_outputs": Case((64, 4094 * 601), (600, 602) * 2047),
    "rows_4094_outputs_above_4_gib": Case((4094 * ((1 << 20) + 1),), ((1 << 20) + 1,) * 4094),
    "tile_whole_rows": Case((32 * 25200, 85), (2, 2, 1, 80), element_bytes=2),
    "tile_padded": Case((1 << 22, 32), (1,) * 32, element_bytes=4, misaligned=(4, 4)),
    "tile_column_groups": Case((65536, 3000), (3,) * 1000),
    "tile_4094_outputs": Case((64, 4094 * 2), (1, 3) * 2047),
    "tile_vectors": Case((65536, 8000), (8,) * 1000, element_bytes=4),
    "tile_misaligned": Case((1 << 20, 7), (4, 3), misaligned=(1, 3)),
    "strided_interleaved_rgb": Case((1 << 24, 3), (1,) * 3),
    "strided_interleaved_2": Case((1 << 24, 2), (1,) * 2, element_bytes=2),
    "strided_interleaved_4": Case((1 << 24, 2), (1,) * 2, element_bytes=4),
    "strided_interleaved_8": Case((1 << 24, 2), (1,) * 2, element_bytes=8),
    "strided_staged_rgb": Case((1 << 24, 3), (1,) * 3, misaligned=(0, 1)),
    "strided_staged_most": Case((1 << 23, 21), (3,) * 7, misaligned=(1, 1)),
    "strided_staged_alone": Case((1 << 23, 21), (7,) * 3),
    "strided_edges_of_one_nest_above_4_gib": Case(
        (2, (2 << 30) + 2), ((1 << 30) + 1,) * 2, strides=((1 << 33) + 1, 2)
    ),
    "transpose_4": Case((8192, 8192), (4096, 4096), element_bytes=4, strides=(1, 8192)),
    "transpose_1": Case((8192, 8192), (4096, 4096), strides=(1, 8192)),
    "transpose_2": Case((8192, 8192), (4096, 4096), element_bytes=2, strides=(1, 8192)),
    "transpose_8": Case((8192, 8192), (4096, 4096), element_bytes=8, strides=(1, 8192)),
    "transpose_16": Case((4096, 4096), (2048, 2048), element_bytes=16, strides=(1, 4096)),
    "transpose_words": Case((8191, 8190), (4095, 4095), element_bytes=4, strides=(1, 8191)),
    "transpose_any_bytes": Case((8191, 8190), (4095, 4095), strides=(1, 8191)),
    "transpose_any_halves": Case((8191, 8190), (4095, 4095), element_bytes=2, strides=(1, 8191)),
    "transpose_rows_of_elements": Case((1 << 22, 32), (1,) * 32, element_bytes=4),
    "transpose_rows_of_bytes": Case((1 << 20, 61), (1,) * 61),
    "transpose_4000_elements": Case((65536, 4000), (1,) * 4000),
    "transpose_16_boxes": Case((640, 1144), tuple(range(64, 80)), strides=(1, 640)),
    "transpose_4094_outputs": Case((64, 4094 * 65), (64, 66) * 2047, strides=(1, 64)),
    "strided_vectors": Case((4096, 1024), (512, 512), element_bytes=4, strides=(0, 1)),
    "strided_bytes": Case((8192, 60), (20, 40), strides=(-64, -1)),
    "strided_4094_outputs": Case(
        (9, 255 * 136 + 105), (*tuple(range(1, 17)) * 255, *range(1, 15)), strides=(7, -1)
    ),
    "strided_windows": Case((8192, 32768), (16384, 16384), strides=(65536, 2)),
    "strided_windows_of_odd_rows": Case((8192, 32769), (16384, 16385), strides=(65539, 2)),
    "strided_windows_down": Case((8192, 32770), (16385, 16385), strides=(32771, -1)),
    "strided_channels_of_odd_rows": Case(
        (256, 375, 500, 3), (1, 1, 1), axis=3, strides=(375 * 1501, 1501, 3, 1)
    ),
    "strided_far_units": Case((4096, 4096), (2048, 2048), strides=(4096 * 16, 16)),
    "strided_above_4_gib": Case((3, 3 << 30), (1 << 30, 2 << 30), strides=(3 << 31, 2)),
    "strided_edges_above_4_gib": Case(
        (2, (1 << 31) + 257), ((1 << 31) - 1, 258), strides=((1 << 33) + 1, 2)
    ),
    "strided_nests_with_far_strides": Case(
        (1, 22, 60),
        (12, 10),
        axis=1,
        element_bytes=8,
        strides=(64424509500, 1, 1073741825),
        misaligned=(140, 36, 68),
    ),
    "strided_1500_outputs_above_4_gib": Case(
        (2, 64, 393266250, 17),
        (33, 1, 1048576, 100) * 375,
        axis=2,
        element_bytes=4,
        strides=(0, 0, -1, 0),
    ),
    "strided_eight": Case(
        (8, 3, 2, 3, 8, 2, 3, 5),
        (1, 2),
        axis=3,
        element_bytes=2,
        strides=(3000, 700, 301, 90, 44, 21, 6, 1),
    ),
}
KERNELS = {"rows", "tile", "transpose", "strided"}


pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def launch_of(name: str) -> planner.KernelLaunch:
    """The launch that copies most of a case; its kernel is the first word of the name."""
    launch = max(CASES[name].launches, key=lambda launch: launch.total_bytes)
    assert launch.code.kernel == name.partition("_")[0]
    return launch


def code_of(launch: planner.KernelLaunch, builds: Path) -> sass.Code:
    return sass.compiled(launch.code.source, builds)


@pytest.fixture(scope="module", autouse=True)
def _disassembled(request: pytest.FixtureRequest, builds: Path) -> None:
    chosen = kernel_cases.chosen(request, test_code_neither_spills_nor_calls)
    sass.disassemble((launch_of(name).code.source for name in chosen), builds)


def names(code: sass.Code) -> set[str]:
    return {instruction.name for instruction in code.listing.instructions}


each = pytest.mark.parametrize("name", CASES)


def test_the_cases_reach_every_kernel() -> None:
    assert {launch_of(name).code.kernel for name in CASES} == KERNELS


@pytest.mark.parametrize("arch", MARKED)
def test_every_kernel_compiles_without_spills(arch: str, builds: Path) -> None:
    def resources(name: str) -> nvrtc.Resources:
        cubin = nvrtc.compile_cubin(launch_of(name).code.source, arch, builds)
        return nvrtc.resources(cubin, builds)

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        found = list(pool.map(resources, CASES))
    for name, used in zip(CASES, found, strict=True):
        assert (used.stack_bytes, used.local_bytes) == (0, 0), name


COUNTS = st.sampled_from([1, 2, 3, 5, 16, 40, 300, 1500, 4094, 5000])
WIDTHS = st.sampled_from([1, 2, 3, 5, 8, 12, 16, 33, 64, 100, 129, 600, 4096, 1 << 20])
ALIGNMENTS = st.sampled_from([0, 0, 0, 1, 2, 4, 8])
# More than any device has; outputs have memory before a split is planned.
MOST_BYTES = 1 << 40


@st.composite
def large_cases(draw: st.DrawFn) -> Case:
    """Splits of any size that a device may hold, because nothing is run."""
    count, pattern = draw(COUNTS), draw(st.lists(WIDTHS, min_size=1, max_size=4))
    sizes = tuple(pattern[i % len(pattern)] for i in range(count))
    outer = draw(st.lists(st.sampled_from([2, 3, 7, 31, 64, 4096]), max_size=2))
    shape = (*outer, sum(sizes), *draw(st.lists(st.sampled_from([3, 4, 17]), max_size=1)))
    strides = None
    if draw(st.booleans()):
        steps, step = [0] * len(shape), 1
        for d in draw(st.permutations(range(len(shape)))):
            steps[d] = step * draw(st.sampled_from([1, 1, 1, -1, 0]))
            step = step * shape[d] + draw(st.sampled_from([0, 0, 1, 16]))
        strides = tuple(steps)
    misaligned = draw(ALIGNMENTS), draw(ALIGNMENTS)
    element_bytes = draw(st.sampled_from([1, 2, 4, 8, 16]))
    assume(prod(shape) * element_bytes <= MOST_BYTES)
    return Case(shape, sizes, len(outer), element_bytes, strides, None, misaligned)


def check_resources(launch: planner.KernelLaunch, used: nvrtc.Resources) -> None:
    """Compare the resources of a launch with its plan."""
    assert used.stack_bytes == 0
    reserved = RESERVED if launch.shared_bytes else 0
    assert used.shared_bytes == launch.shared_bytes + reserved
    assert resident(launch, used) >= launch.code.resident


def resident(launch: planner.KernelLaunch, used: nvrtc.Resources) -> int:
    """The blocks that an SM of an H200 holds."""
    size = launch.block, used.registers, launch.shared_bytes
    return resident_blocks(H200.limits, *size)


def check_machine_code(case: Case, builds: Path) -> None:
    """Check the first and the last launch of a split."""
    for launch in {case.launches[0], case.launches[-1]}:
        cubin = nvrtc.compile_cubin(launch.code.source, sass.ARCH, builds)
        check_resources(launch, nvrtc.resources(cubin, builds))


@settings(COMPILING, max_examples=12)
@given(case=large_cases())
def test_any_plan_compiles(builds: Path, case: Case) -> None:
    check_machine_code(case, builds)


@pytest.mark.slow
@settings(COMPILING, max_examples=40)
@given(case=large_cases())
def test_many_more_plans_compile(builds: Path, case: Case) -> None:
    check_machine_code(case, builds)


@each
def test_code_neither_spills_nor_calls(name: str, builds: Path) -> None:
    """A call would be a 64-bit division by a variable, which takes 117 instructions."""
    for opcode in names(code_of(launch_of(name), builds)):
        assert not re.match(r"LDL|STL|CALL", opcode), opcode


@each
def test_resources_allow_the_planned_blocks(name: str, builds: Path) -> None:
    launch = launch_of(name)
    check_resources(launch, code_of(launch, builds).resources)


@each
def test_loads_are_in_flight_together(name: str, builds: Path) -> None:
    """There are as many as the plan assumes, or as many as an H200 needs."""
    launch = launch_of(name)
    code = code_of(launch, builds)
    found = code.listing.bytes_in_flight()
    blocks = resident(launch, code.resources)
    enough = found * launch.block * blocks >= model.IN_FLIGHT_BYTES
    assert enough or found >= launch.bytes_in_flight


ALIGNED = r"rows_aligned|strided_interleaved|transpose_(\d+|rows_of_elements|4000_elements)$"


@pytest.mark.parametrize("name", [name for name in CASES if re.match(f"{ALIGNED}|rows|tile", name)])
def test_16_bytes_are_stored_at_once_and_loaded_where_aligned(name: str, builds: Path) -> None:
    opcodes = " ".join(names(code_of(launch_of(name), builds)))
    assert re.search(r"\bSTG\.E\.\S*128", opcodes)
    assert re.search(r"\bLDG\.E\.\S*128", opcodes) or not re.match(ALIGNED, name)


def test_spills_and_calls_would_be_noticed(builds: Path) -> None:
    """A kernel that has both is read."""
    bad = """
    extern "C" __global__ void bad(unsigned long long* at, unsigned long long by) {
        unsigned long long held[64];
        for (int i = 0; i < 64; ++i) held[i] = at[i * by] / by;
        for (int i = 0; i < 64; ++i) at[i] = held[held[i] % 64];
    }
    """
    code = sass.compiled(bad, builds)
    assert {"LDL", "STL", "CALL"} <= {found.opcode for found in code.listing.instructions}
    assert code.resources.stack_bytes >= 512


def test_a_rejected_source_shows_the_log_of_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(nvrtc.CompileError, match="no_such_word"):
        nvrtc.compile_cubin("no_such_word", sass.ARCH, tmp_path)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (["LDG.E.128 R4, [R2]", "LDG.E.128 R8, [R2+16]", "STG.E.128 [R20], R4"], 32),
        (["LDG.E R4, [R2]", "STG.E [R20], R4", "LDG.E R4, [R2]", "STG.E [R20], R4"], 4),
        (["LDG.E.U8 R4, [R2]", "LDG.E.64 R6, [R4]"], 8),
        (["LDG.E R4, [R2]", "LDG.E R5, [R2]", "STS [R9], R4", "LDG.E R6, [R2]"], 8),
        (["LDG.E.128 R4, [R2]", "IADD3 R9, R7, R1, RZ", "LDG.E R10, [R2]"], 16),
        (["LDG.E.64 R4, [R2]", "BRA 0x90", "LDG.E.128 R8, [R2]", "STS [R9], R4"], 16),
    ],
)
def test_bytes_in_flight_end_where_a_load_is_waited_for(code: list[str], wanted: int) -> None:
    assert listing.parse(listing.printed(*code)).bytes_in_flight() == wanted
