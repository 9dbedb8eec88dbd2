"""The interpreter of machine code: warps, waiting, memory, and refusals."""

from pathlib import Path

import numpy as np
import pytest

from tests.sass import kernels, listing
from tests.sass.listing import UnknownCodeError
from tests.sass.machine import Machine
from tests.sass.threads import SassError, Threads
from tests.support import nvrtc

Numbers = np.ndarray


pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def run(body: str, arrays: list[Numbers], builds: Path, grid: int = 1, block: int = 64) -> Machine:
    """Run a kernel body, where `in` and `out` are 32-bit arrays and `i` is the thread's index."""
    source = (
        "typedef unsigned u32; typedef unsigned long long u64;\n"
        f'extern "C" __global__ void kernel(const u32* in, u32* out) {{\n'
        f"const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;\n{body}\n}}"
    )
    return kernels.run(source, arrays, builds, grid=grid, block=block)


LANES = np.arange(64) % 32
DRAWN = np.random.default_rng(9).integers(0, 2**32, 64, np.uint32)


def test_diverged_threads_reconverge(builds: Path) -> None:
    """Each thread takes its own number of Collatz steps to reach 1."""
    body = """
    u32 x = in[i], steps = 0;
    while (x != 1) {
        if (x & 1) x = 3 * x + 1; else x /= 2;
        ++steps;
        if (steps > 60) break;
    }
    out[i] = steps;"""
    numbers = np.arange(1, 65, dtype=np.uint32)
    out = np.zeros(64, np.uint32)
    run(body, [numbers, out], builds)

    def steps(x: int) -> int:
        count = 0
        while x != 1 and count <= 60:
            x, count = 3 * x + 1 if x & 1 else x // 2, count + 1
        return count

    step_counts = np.array([steps(x) for x in range(1, 65)])
    assert np.array_equal(out, step_counts)


def test_threads_may_exit_before_other_threads_reach_a_barrier(builds: Path) -> None:
    body = """
    __shared__ u32 kept[64];
    if (lane >= 24) return;
    kept[threadIdx.x] = in[i];
    if (in[i] & 2) kept[threadIdx.x] += 1;
    __syncthreads();
    out[i] = kept[(threadIdx.x + 32) % 64];"""
    out = np.zeros(64, np.uint32)
    run(body, [DRAWN, out], builds)
    thread_values = DRAWN + (DRAWN >> 1 & 1)
    assert np.array_equal(out, np.where(LANES < 24, np.roll(thread_values, 32), 0))


@pytest.mark.parametrize(
    ("kind", "size"),
    [("unsigned char", 1), ("unsigned short", 2), ("u32", 4), ("uint2", 8), ("uint4", 16)],
)
def test_elements_of_every_size_pass_through_shared_memory(
    kind: str, size: int, builds: Path
) -> None:
    body = f"""
    __shared__ {kind} kept[128];
    const {kind}* source = ({kind}*)in; {kind}* target = ({kind}*)out;
    kept[threadIdx.x] = source[i];
    __syncthreads();
    target[i] = kept[127 - threadIdx.x];"""
    data = np.random.default_rng(1).integers(0, 256, (3, 128, size), np.uint8)
    out = np.zeros_like(data)
    run(body, [data, out], builds, grid=3, block=128)
    assert np.array_equal(out, data[:, ::-1])


def test_tables_of_constants_are_read_by_an_index(builds: Path) -> None:
    wide = [(n * 0x9E3779B97F4A7C15) % 2**64 for n in range(40)]
    tables = f"""
    static __constant__ u64 wide[] = {{{", ".join(f"{n}ull" for n in wide)}}};
    static __constant__ unsigned short half[] = {{{", ".join(str(n % 65521) for n in wide)}}};
    static __constant__ signed char byte[] = {{{", ".join(str(n % 256 - 128) for n in wide)}}};"""
    source = f"""typedef unsigned long long u64;
    {tables}
    extern "C" __global__ void kernel(const unsigned* in, long long* out) {{
        const unsigned at = in[threadIdx.x] % 40;
        out[threadIdx.x] = wide[at];
        out[64 + threadIdx.x] = half[at];
        out[128 + threadIdx.x] = byte[at];
    }}"""
    out = np.zeros((3, 64), np.int64)
    machine = kernels.run(source, [DRAWN, out], builds)
    table_index = DRAWN % 40
    assert np.array_equal(out[0].view(np.uint64), np.array(wide, np.uint64)[table_index])
    assert np.array_equal(out[1], [wide[n] % 65521 for n in table_index])
    assert np.array_equal(out[2], [wide[n] % 256 - 128 for n in table_index])
    distinct = sum(len(set(part)) for part in table_index.reshape(2, 32).tolist())
    assert machine.threads.counts["constant_wavefronts"] == 3 * distinct


def test_parameters_beyond_32_kib_are_read(builds: Path) -> None:
    """Parameters begin at 0x210 of their bank; nvdisasm prints offsets above 0x7fff as negative."""
    source = """
    struct Table { unsigned* out; unsigned values[8180]; };
    extern "C" __global__ void kernel(const __grid_constant__ Table table) {
        table.out[threadIdx.x] = table.values[8116 + threadIdx.x];
        table.out[64 + threadIdx.x] = table.values[8175];
    }"""
    out = np.zeros(128, np.uint32)
    memory = kernels.Arrays([out])
    values = [n << 32 | n for n in range(4090)]
    kernels.run_in(source, memory, [*memory.addresses, *values], builds)
    assert np.array_equal(out[:64], np.arange(8116, 8180) // 2)
    assert set(out[64:]) == {8175 // 2}


def test_arithmetic_on_block_indices_gives_the_values_of_python(builds: Path) -> None:
    body = """
    const u64 first = blockIdx.x * 0x123456789abull + in[0];
    const u32 b = blockIdx.x, q = b / 7, r = b % 7;
    const u64 square = (u64)b * b * 12345;
    out[4 * i] = (u32)(first / 1000); out[4 * i + 1] = (u32)(first >> 35);
    out[4 * i + 2] = b > 3 ? (u32)first : ~b;
    out[4 * i + 3] = q * 3 + min(q, r) + max((int)q, -3) + (b < 5 ? q : r)
        + (u32)(square >> 3) + __byte_perm(b, q, 0x1032) + (square < 777) + (b && r);"""
    out = np.zeros((19, 64, 4), np.uint32)
    run(body, [DRAWN, out], builds, grid=19)
    for b in range(19):
        first, q, r, square = b * 0x123456789AB + int(DRAWN[0]), b // 7, b % 7, b * b * 12345
        third = first if b > 3 else ~b
        last = q * 3 + min(q, r) + q + (q if b < 5 else r)
        last += (square >> 3) + (b << 16) + (square < 777) + bool(b and r)
        assert (out[b] == [n % 2**32 for n in (first // 1000, first >> 35, third, last)]).all()


def run_code(*lines: str) -> Threads:
    threads = Threads([0], 32, {}, 0, kernels.Arrays([]))
    Machine(listing.parse(listing.printed(*lines, "EXIT")), threads).run()
    return threads


def test_rare_predicate_instructions_work_as_documented() -> None:
    """R2P, P2R, PLOP3, USEL and UPLOP3, which compilers rarely use, work as documented."""
    threads = run_code(
        "MOV R1, 0x2d",
        "R2P PR, R1, 0x1f",
        "PLOP3.LUT P4, P5, P0, P1, P2, 0x80, 0xfe",  # and, or
        "P2R R2, PR, RZ, 0x7f",
        "UMOV UR1, 0x7",
        "UISETP.GE.U32.AND UP0, UP1, UR1, 0x7, UPT",
        "UPLOP3.LUT UP2, UPT, UP0, UP1, UPT, 0x2a, 0x0",  # c and not both a and b
        "USEL UR2, UR1, 0x3, UP2",
        "USEL UR3, UR1, 0x3, UP1",
    )
    # P0, P2 and P3 from R1; P4 = P0 & P1 & P2; P5 = P0 | P1 | P2.
    assert set(threads.registers[2].flat) == {0b101101}
    assert [int(threads.uniform_registers[n, 0, 0]) for n in (1, 2, 3)] == [7, 7, 3]


def test_votes_of_a_warp_are_those_of_the_threads_that_take_part() -> None:
    threads = run_code(
        "S2R R1, SR_LANEID",
        "ISETP.GE.U32.AND P0, PT, R1, 0x5, PT",
        "VOTEU.ANY UP0, P0",
        "VOTEU.ALL UP1, P0",
        "@P0 VOTEU.ALL UP2, P0",
        "USEL UR1, 0x1, 0x2, UP0",
        "USEL UR2, 0x1, 0x2, UP1",
        "USEL UR3, 0x1, 0x2, UP2",
    )
    assert [int(threads.uniform_registers[n, 0, 0]) for n in (1, 2, 3)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROB R0, R1", "the opcode FROB"),
        ("IADD3.FROB R0, R1, R2, RZ", r"the modifier \.FROB"),
        ("IADD3 R0, R1, R2", "this form"),
        ("IADD3 R0, R1, |R2|, RZ", r"the operand \|R2\|"),
        ("LDG.E R0, [R2+0x4]", r"the address \[R2"),
        ("LDC R0, c[0x7][R1]", "constant bank 7"),
        ("S2R R0, SR_CLOCKLO", "the special register SR_CLOCKLO"),
        ("BRA 0x90", "the target"),
        ("BAR.RED.POPC.DEFER_BLOCKING 0x0, P0", r"the modifier \.RED"),
        ("HFMA2.MMA R0, R1, R2, 1, 1", "HFMA2 that calculates"),
        ("SHFL.IDX PT, R0, R1, R2, 0x1f", "the opcode SHFL"),
        ("LOP3.LUT R0, R1, R2, R3, 0x80, P1", "the predicate P1"),
        ("@P9 MOV R0, R1", "the predicate P9"),
    ],
)
def test_unknown_machine_code_is_rejected_and_named(text: str, message: str) -> None:
    with pytest.raises(UnknownCodeError, match=f"{message}.* is not known"):
        run_code(text)


def test_instructions_are_counted_for_warps_that_issue_them(builds: Path) -> None:
    """A warp whose threads diverge issues both sides; a false predicate still takes a slot."""
    out = np.zeros(64, np.uint32)
    machine = run("if (threadIdx.x < 32) out[i] = in[i] * in[i + 32];", [DRAWN, out], builds)
    assert np.array_equal(out[:32], (DRAWN[:32] * DRAWN[32:]).astype(np.uint32))
    by_opcode = {
        i.opcode: int(n) for i, n in zip(machine.listing.instructions, machine.issued, strict=True)
    }
    assert by_opcode["STG"] == 1
    assert by_opcode["S2R"] == 2
    assert machine.threads.counts["global_loads"] == 2
    assert machine.threads.counts["global_load_bytes"] == 2 * 128


def test_an_endless_loop_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sass.machine.MAX_STEPS", 1000)
    with pytest.raises(SassError, match="not at an end"):
        run_code("BRA 0x0")
