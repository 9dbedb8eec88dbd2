"""How close a kernel comes to the speed of a plain copy, predicted from what it executes.

For 512 bytes, which one warp copies in vectors of 16, an SM has

    T = 512 / (copy / 2 / SMs / clock)

clocks at the speed of a plain copy, where `copy` counts bytes read and written. A kernel takes

    T + 0.114 (issue - 16)

clocks, where `issue` is its instructions per warp and 512 bytes and 16 are those of the plain
copy. It never takes less than its busiest unit: an SM issues 4 instructions per clock, its ALU and
IMAD pipes take 2 each, and its L1 cache passes one wavefront. The predicted fraction is T over the
kernel's clocks.

0.114 clocks is the cost of each instruction more than the copy's while memory is the limit. It
comes from two transposes of the same bytes on a GH200 with 137 and 74 instructions per 512 bytes,
which reach 75.4 % and 82.8 % of the memory's speed (pytorch/pytorch#194310). With only these two
points, the fraction is off by up to 0.04, and by more for kernels with barriers or long loops. The
formula does not cover launches too small to fill a GPU, or a last wave of few blocks. It assumes
that a B200 executes the same instructions as an H100.
"""

from dataclasses import dataclass

WARP_BYTES = 512
COPY_INSTRUCTIONS = 16  # of the plain copy kernel, per warp and 512 bytes
CLOCKS_PER_INSTRUCTION = 0.114
ISSUES, ALU_LANES, IMAD_LANES = 4, 2, 2  # warps' instructions per SM and clock


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
GPUS = (
    Gpu("H100", 132, 1.7, 3.0),
    Gpu("H200", 132, 1.7, 4.3),
    Gpu("B200", 148, 1.85, 0.9 * 7.67),
)


def clocks(gpu: Gpu, issue: float, alu: float, imad: float, wavefronts: float) -> float:
    """The predicted clocks of an SM for 512 bytes."""
    extra = max(0.0, issue - COPY_INSTRUCTIONS)
    busiest = max(issue / ISSUES, alu / ALU_LANES, imad / IMAD_LANES, wavefronts)
    return max(gpu.copy_clocks + CLOCKS_PER_INSTRUCTION * extra, busiest)
