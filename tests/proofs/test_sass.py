"""The machine code that NVRTC makes of every kernel for every architecture; no GPU is needed."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.occupancy import RESERVED, resident_blocks
from tests.counts import model
from tests.host_cuda import harness
from tests.proofs import adversary, forms
from tests.sass import launch as sass
from tests.sass import listing
from tests.support import kernel_cases, nvrtc
from tests.support.kernel_cases import Case
from tests.support.large_splits import LARGE
from tests.support.plans import constants_and_arguments

# The one that the figures are about; the oldest and the newest; then others.
ARCHES = ("sm_90", "sm_75", "sm_120", "sm_100", "sm_80", "sm_86", "sm_89")
MARKED = [
    ARCHES[0],
    *(pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHES[1:3]),
    *(pytest.param(arch, marks=pytest.mark.exhaustive) for arch in ARCHES[3:]),
]

MANY = 1000  # outputs, whose tables are addressed by other code


def main_launch(case: Case) -> KernelLaunch:
    """The launch that copies most."""
    return max(case.launches, key=lambda launch: launch.total_bytes)


def one_of_each() -> dict[str, KernelLaunch]:
    """A launch for each kind of code that large splits have; names begin with the kernel."""
    kinds: dict[Any, tuple[str, KernelLaunch]] = {}
    for name, case in LARGE.items():
        launch = main_launch(case)
        form, resident = forms.form_of(launch, forms.FINE), launch.code.resident
        kind = form, resident, len(launch.outputs) > MANY
        kinds.setdefault(kind, (name, launch))
    return dict(kinds.values())


LAUNCHES = one_of_each()

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def code_of(launch: KernelLaunch, builds: Path) -> sass.Code:
    return sass.compiled(launch.code.source, builds)


@pytest.fixture(scope="module", autouse=True)
def _disassembled(request: pytest.FixtureRequest, builds: Path) -> None:
    """The code of all chosen cases is disassembled at once, because that is faster."""
    case_names = kernel_cases.chosen(
        request, test_code_has_no_spill_or_call_and_the_planned_bytes_in_flight
    )
    sass.disassemble((LAUNCHES[name].code.source for name in case_names), builds)


def names(code: sass.Code) -> set[str]:
    return {instruction.name for instruction in code.listing.instructions}


def test_large_splits_reach_every_kernel() -> None:
    reached = {launch.code.kernel for launch in LAUNCHES.values()}
    assert reached == kernel_cases.KERNELS


def max_stack_bytes(launch: KernelLaunch, arch: str) -> int:
    """The bytes that a thread may keep on the stack: none, with one known exception.

    For most architectures, one to three specializations for windows of units of 4 bytes, of several
    nests whose rows have edges, keep one value of 8 bytes there: of some 560 instructions, one
    stores and one loads it. With one block less for each SM they would not, and would be slower on
    every GPU.
    """
    constants = constants_and_arguments(launch)
    is_window = constants.get("kWindow") and constants["kUnit"] == 4 and constants["kEdges"]
    is_exception = is_window and constants["kNests"] > 1 and arch not in ("sm_75", "sm_90")
    return 8 if is_exception else 0


def check_spills(launches: Iterable[KernelLaunch], builds: Path, arches: Iterable[str]) -> None:
    """Compile specializations, and compare their resources with the plans."""

    def check(job: tuple[KernelLaunch, str]) -> None:
        launch, arch = job
        resources = nvrtc.resources(nvrtc.compile_cubin(launch.code.source, arch, builds), builds)
        assert resources.stack_bytes <= max_stack_bytes(launch, arch), (arch, launch)
        assert resources.local_bytes == 0, (arch, launch)
        if arch == sass.ARCH:
            check_resources(launch, resources)

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        list(pool.map(check, product(launches, arches)))


@pytest.mark.parametrize("arch", MARKED)
def test_every_kernel_compiles_without_spills(arch: str, builds: Path) -> None:
    check_spills(LAUNCHES.values(), builds, [arch])


def check_resources(launch: KernelLaunch, resources: nvrtc.Resources) -> None:
    """Compare the resources of a launch with its plan."""
    assert resources.stack_bytes == 0
    reserved = RESERVED if launch.shared_bytes else 0
    assert resources.shared_bytes == launch.shared_bytes + reserved
    assert resident(launch, resources) >= launch.code.resident


def resident(launch: KernelLaunch, resources: nvrtc.Resources) -> int:
    """The blocks that an SM of an H200 holds."""
    size = launch.threads, resources.registers, launch.shared_bytes
    return resident_blocks(H200.limits, *size)


@pytest.mark.parametrize(
    "number", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 60))]
)
def test_random_plans_compile_without_spills_within_their_resources(
    number: int, builds: Path
) -> None:
    """The first and the last launch of a split."""
    case = adversary.case(number)
    check_spills({case.launches[0], case.launches[-1]}, builds, [sass.ARCH])


@pytest.mark.parametrize("name", LAUNCHES)
def test_code_has_no_spill_or_call_and_the_planned_bytes_in_flight(name: str, builds: Path) -> None:
    """No spills or calls, as many blocks on an SM, and as many loads in flight.

    A call would be a 64-bit division by a variable, which takes 117 instructions.
    """
    launch = LAUNCHES[name]
    code = code_of(launch, builds)
    opcodes = names(code)
    assert not [opcode for opcode in opcodes if re.match(r"LDL|STL|CALL", opcode)]
    check_resources(launch, code.resources)
    in_flight = code.listing.bytes_in_flight()
    enough = in_flight * launch.threads * resident(launch, code.resources)
    assert in_flight >= launch.bytes_in_flight or enough >= model.IN_FLIGHT_BYTES
    stored_bytes, loaded_bytes = vector_bytes(launch)
    assert stored_bytes < VECTOR or any(re.match(r"STG\.E\.\S*128", opcode) for opcode in opcodes)
    assert loaded_bytes < VECTOR or any(re.match(r"LDG\.E\.\S*128", opcode) for opcode in opcodes)


def vector_bytes(launch: KernelLaunch) -> tuple[int, int]:
    """The bytes that a thread can store and load at once, by the plan."""
    constants = constants_and_arguments(launch)
    if launch.code.kernel == "strided":
        return constants["kItemBytes"], VECTOR * (constants["kChannels"] > 1)
    return VECTOR, VECTOR


def test_spills_and_calls_in_machine_code_are_detected(builds: Path) -> None:
    """A kernel that has both is read."""
    bad = """
    extern "C" __global__ void bad(unsigned long long* at, unsigned long long by) {
        unsigned long long held[64];
        for (int i = 0; i < 64; ++i) held[i] = at[i * by] / by;
        for (int i = 0; i < 64; ++i) at[i] = held[held[i] % 64];
    }
    """
    code = sass.compiled(bad, builds)
    assert {"LDL", "STL", "CALL"} <= {
        instruction.opcode for instruction in code.listing.instructions
    }
    assert code.resources.stack_bytes >= 512


def test_a_rejected_source_shows_the_log_of_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(nvrtc.CompileError, match="no_such_word"):
        nvrtc.compile_cubin("no_such_word", sass.ARCH, tmp_path)


@pytest.mark.parametrize(
    ("code", "byte_count"),
    [
        (["LDG.E.128 R4, [R2]", "LDG.E.128 R8, [R2+16]", "STG.E.128 [R20], R4"], 32),
        (["LDG.E R4, [R2]", "STG.E [R20], R4", "LDG.E R4, [R2]", "STG.E [R20], R4"], 4),
        (["LDG.E.U8 R4, [R2]", "LDG.E.64 R6, [R4]"], 8),
        (["LDG.E R4, [R2]", "LDG.E R5, [R2]", "STS [R9], R4", "LDG.E R6, [R2]"], 8),
        (["LDG.E.128 R4, [R2]", "IADD3 R9, R7, R1, RZ", "LDG.E R10, [R2]"], 16),
        (["LDG.E.64 R4, [R2]", "BRA 0x90", "LDG.E.128 R8, [R2]", "STS [R9], R4"], 16),
    ],
)
def test_bytes_in_flight_are_the_most_loaded_before_a_wait(
    code: list[str], byte_count: int
) -> None:
    assert listing.parse(listing.printed(*code)).bytes_in_flight() == byte_count
