"""How close a kernel comes to the speed of a plain copy, predicted from what it executes.

For 512 bytes, which one warp copies in vectors of 16 bytes, an SM has

    T = 512 / (copy / 2 / SMs / clock)

clocks at the speed of a plain copy, where `copy` counts bytes read and written. A kernel takes

    (T^3 + U^3)^(1/3)

of them, where U are the clocks of its busiest unit: per clock, an SM issues 4 instructions, its ALU
and IMAD pipes take 2 each, its L1 cache serves 4 sectors, and its banks pass one wavefront. Where
one of the two is much longer, it hides the other. If both are nearly full, neither is,
because each sometimes waits for the other: with T = U, the sum is 1.26 T. The exponent is an
estimate. Instructions cost nothing else. A kernel that must read more than it writes, such as
every second element, is compared with a copy of what it reads: T grows by that factor.

A launch takes longer where its blocks leave something unused (`launch_clocks`):

- *Occupancy.* Memory is busy if an SM has `Gpu.in_flight` bytes in flight. The blocks that fit on
  an SM may have fewer; T then grows in proportion.
- *Whole blocks.* An SM copies whole blocks. In a launch of up to `EVEN_WAVES` waves, the units of
  the SM with the most blocks limit the launch; in longer ones, SMs that are ahead take more blocks.
  Memory does not have to wait, because all SMs share it.
- *Tail.* If not all blocks fit at once, they end at different times, and while the last ones run,
  half of the block slots are empty. That costs half of the time in which a block waits for its
  loads, round by round.
- *Start.* The first bytes arrive after `WAIT`.

The predicted fraction is the time of a copy, which takes these too, over that of all launches. The
copy has 256 threads in a block with four vectors each, and 32 registers in a thread.

The formula ignores barriers, and the memory itself. Where blocks write to many addresses at once,
DRAM rows are activated for few bytes each, and the TLB misses: splits into hundreds of outputs, or
along long strides, may be slower than predicted by more than that. `tests.counts.model` counts
these rows for each block, but nothing here says what they cost. The formula also ignores that small
splits are in the L2 cache, and how long a launch takes. All GPUs are assumed to execute what an
H100 does.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dmlsplit.backends.cuda.gpus import find_gpu
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.occupancy import resident_blocks
from dmlsplit.backends.cuda.planner.times import EVEN_WAVES, side_by_side
from dmlsplit.geometry import ceil_div

WARP_BYTES = 512
COPY_THREADS, COPY_REGISTERS, COPY_IN_FLIGHT = 256, 32, 256 * 64  # of its blocks
ISSUES, ALU_LANES, IMAD_LANES = 4, 2, 2  # warps' instructions per SM and clock
SECTORS = 4  # per SM and clock
# What a load takes while memory is busy: an assumption, about twice what it takes on an idle H100.
WAIT = 500  # ns


@dataclass(frozen=True, slots=True)
class Gpu:
    """The properties of a GPU that the formula uses.

    Attributes
    ----------
    name : str
    limits : DeviceLimits
    clock : float
        Of its SMs under load, in GHz.
    copy : float
        Speed of a plain copy, read and written bytes together, in TB/s.
    in_flight : int
        Bytes that an SM must have in flight to keep memory busy.
    """

    name: str
    limits: DeviceLimits
    clock: float
    copy: float
    in_flight: int

    @property
    def copy_clocks(self) -> float:
        """Clocks that an SM has for 512 bytes at the speed of a copy."""
        return WARP_BYTES * 2 * self.limits.sm_count * self.clock / (self.copy * 1000)


def _gpu(name: str, clock: float, copy: float, in_flight_kib: int) -> Gpu:
    return Gpu(name, find_gpu(name).limits, clock, copy, in_flight_kib << 10)


# H100 and H200 SXM: measured with a copy kernel (for H100 see also vllm-project/vllm#49436).
# Others: an assumption, 90 % of the peak at the boost clock. Bytes in flight: NVIDIA's tuning of
# DeviceTransform in CUB, by compute capability; that of 8.0 stands for 8.9.
GPUS = (
    _gpu("H100", 1.7, 3.0, 32),
    _gpu("H200", 1.7, 4.3, 48),
    _gpu("B200", 1.85, 0.9 * 7.67, 64),
    _gpu("RTX 4090", 2.52, 0.9 * 1.008, 16),
    _gpu("L4", 2.04, 0.9 * 0.3, 16),
    _gpu("T4", 1.59, 0.9 * 0.32, 12),
)


@dataclass(frozen=True, slots=True)
class Executed:
    """What a kernel executes per warp and 512 bytes."""

    issue: float
    sectors: float
    alu: float
    imad: float
    wavefronts: float


COPY = Executed(issue=16, sectors=16, alu=0, imad=0, wavefronts=8)  # of the plain copy kernel


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a launch.

    Attributes
    ----------
    count : int
    resident : int
        Those that fit an SM.
    in_flight : int
        Bytes that one requests before it waits for the first.
    total_bytes : int
        Bytes that all of them copy.
    """

    count: int
    resident: int
    in_flight: int
    total_bytes: int


def steady(gpu: Gpu, executed: Executed, work: float = 1) -> float:
    """The predicted fraction of a copy's speed while memory is busy.

    `work` is the bytes that must be read and written, over those of a copy of what is written.
    """
    copy = work * gpu.copy_clocks
    return copy / side_by_side(copy, _unit_clocks(executed))


def fraction(
    gpu: Gpu, launches: Iterable[tuple[Executed, Blocks]], moved_bytes: float, work: float = 1
) -> float:
    """The predicted fraction of the speed of a copy.

    The copy moves `moved_bytes`, which are `work` times the bytes of all launches.
    """
    taken = sum(launch_clocks(gpu, executed, blocks, work).total for executed, blocks in launches)
    return min(1.0, copy_clocks(gpu, moved_bytes) / taken)


def copy_clocks(gpu: Gpu, total_bytes: float) -> float:
    """The clocks of a plain copy."""
    count, resident = ceil_div(int(total_bytes), COPY_IN_FLIGHT), _copy_resident(gpu.limits)
    blocks = Blocks(count, resident, COPY_IN_FLIGHT, int(total_bytes))
    return launch_clocks(gpu, COPY, blocks).total


def _copy_resident(limits: DeviceLimits) -> int:
    return resident_blocks(limits, COPY_THREADS, COPY_REGISTERS)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a launch.

    Attributes
    ----------
    start : float
        Until the first bytes arrive.
    copy : float
        At the speed of a copy.
    latency : float
        Beyond that, because too few bytes are in flight.
    units : float
        Beyond both, because a unit of the SM is busy, too.
    tail : float
        While the last blocks run.
    """

    start: float
    copy: float
    latency: float
    units: float
    tail: float

    @property
    def total(self) -> float:
        """From the first load to the last store."""
        return self.start + self.copy + self.latency + self.units + self.tail

    @property
    def cause(self) -> str:
        """What costs most besides the copy itself."""
        return max(CAUSES, key=lambda name: float(getattr(self, name)))


# In words.
CAUSES = {
    "latency": "too few bytes in flight",
    "units": "a busy unit of the SM",
    "tail": "the last blocks",
}


def launch_clocks(gpu: Gpu, executed: Executed, blocks: Blocks, work: float = 1) -> Clocks:
    """The clocks of a launch; `work` as in `steady`."""
    sm_count, wait = gpu.limits.sm_count, WAIT * gpu.clock
    block_slots = sm_count * blocks.resident
    # What a block reads: `work` is the mean of what is read and written.
    block_bytes = blocks.total_bytes / blocks.count * (2 * work - 1)
    own = min(blocks.in_flight, block_bytes)
    waits = gpu.in_flight / (own * min(blocks.count, block_slots) / sm_count)
    units, tail = _unit_clocks(executed), 0.0
    if blocks.count <= EVEN_WAVES * block_slots:
        units *= ceil_div(blocks.count, sm_count) * sm_count / blocks.count
    if blocks.count > block_slots:
        tail = block_bytes / own * wait / 2 * min(1, waits)
    warps, copy = blocks.total_bytes / sm_count / WARP_BYTES, work * gpu.copy_clocks
    memory = copy * max(1.0, waits)
    return Clocks(
        start=wait,
        copy=warps * copy,
        latency=warps * (memory - copy),
        units=warps * (side_by_side(memory, units) - memory),
        tail=tail,
    )


def _unit_clocks(executed: Executed) -> float:
    """Clocks of the busiest unit."""
    lanes = executed.alu / ALU_LANES, executed.imad / IMAD_LANES
    return max(executed.issue / ISSUES, executed.sectors / SECTORS, *lanes, executed.wavefronts)
