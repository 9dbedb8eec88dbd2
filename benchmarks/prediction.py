"""How close a kernel comes to the speed of a plain copy, predicted from what it executes.

For 512 bytes, which one warp copies in vectors of 16, an SM has

    T = 512 / (copy / 2 / SMs / clock)

clocks at the speed of a plain copy, where `copy` counts bytes read and written. A kernel takes

    T + 0.114 (issue - 16 + sectors - 16)

of them, where `issue` is its instructions per warp and 512 bytes, `sectors` those of 32 bytes that
the L1 cache serves to its loads, and 16 are the plain copy's of both; but never less than its
busiest unit: an SM issues 4 instructions per clock, its ALU and IMAD pipes take 2 each, its L1
cache serves 4 sectors, and its banks pass one wavefront. The predicted fraction is T over that.
Where a kernel has to read more than it writes, as of every second element, it is compared with a
copy of that much: T and what is the copy's grow by the same factor.

0.114 clocks is what an instruction beyond the copy's costs while memory is the limit. It comes
from two transposes of the same bytes on a GH200 with 137 and 74 instructions per 512 bytes, which
reach 75.4 % and 82.8 % of the memory's speed (pytorch/pytorch#194310). Two points: the fraction
is off by up to 0.04, by more for kernels with barriers or long loops. That a sector costs as much,
as an SM handles four per clock of both, is an assumption: it ranks kernels, such as five loads of a
word at a stride of 16 bytes (80 sectors) behind two of 16 bytes (32).

It cannot see the memory itself. Where blocks write to many places at once, rows of memory are
opened for few bytes each, and address translations miss: splits into hundreds of outputs, or along
long strides, may be slower than predicted by more than that. `benchmarks model` counts these rows
for each block, but nothing here says what they cost. Nor does the formula see launches too small to
fill a GPU, or a last wave of few blocks. A B200 is taken to execute what an H100 does.
"""

from dataclasses import dataclass

WARP_BYTES = 512
COPY_INSTRUCTIONS = COPY_SECTORS = 16  # of the plain copy kernel, per warp and 512 bytes
CLOCKS_PER_INSTRUCTION = CLOCKS_PER_SECTOR = 0.114
ISSUES, ALU_LANES, IMAD_LANES = 4, 2, 2  # warps' instructions per SM and clock
SECTORS = 4  # per SM and clock


@dataclass(frozen=True, slots=True)
class Gpu:
    """The properties of a GPU that the formula uses.

    Attributes
    ----------
    name : str
    sm_count : int
    clock : float
        Of its SMs under load, in GHz.
    copy : float
        Speed of a plain copy, read and written bytes together, in TB/s.
    """

    name: str
    sm_count: int
    clock: float
    copy: float

    @property
    def copy_clocks(self) -> float:
        """Clocks that an SM has for 512 bytes at the speed of a copy."""
        return WARP_BYTES * 2 * self.sm_count * self.clock / (self.copy * 1000)


# H100 and H200 SXM: measured with a copy kernel (for H100 see also vllm-project/vllm#49436).
# B200: an assumption, 90 % of its peak of 7.67 TB/s.
GPUS = (Gpu("H100", 132, 1.7, 3.0), Gpu("H200", 132, 1.7, 4.3), Gpu("B200", 148, 1.85, 0.9 * 7.67))


def fraction(
    gpu: Gpu,
    *,
    issue: float,
    sectors: float,
    alu: float,
    imad: float,
    wavefronts: float,
    work: float = 1,
) -> float:
    """The predicted fraction of the speed of a copy.

    `work` is the bytes that must be read and written, over those of a copy of what is written.
    """
    instructions = max(0.0, issue - work * COPY_INSTRUCTIONS)
    served = max(0.0, sectors - work * COPY_SECTORS)
    copy = work * gpu.copy_clocks
    taken = copy + CLOCKS_PER_INSTRUCTION * instructions + CLOCKS_PER_SECTOR * served
    units = issue / ISSUES, sectors / SECTORS, alu / ALU_LANES, imad / IMAD_LANES, wavefronts
    return copy / max(taken, *units)
