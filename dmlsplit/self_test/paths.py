"""The path of a launch: which ways its constants and its arguments choose through a kernel.

The same compiled code copies in one round or in four, in one chunk or in many, and may have a tile
that holds only the ends of outputs. A test that runs all code may miss such a path.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.specialization import DIVISOR, Divisor
from dmlsplit.geometry import ceil_div

# The constants of a kernel, or the arguments of a launch, by name.
Values = Mapping[str, Any]
# A constant or an argument that decides which way a kernel takes, and its value.
Choice = tuple[str, int]
Choices = tuple[Choice, ...]
# The name of a kernel, and two choices of it.
Pair = tuple[str, Choice, Choice]


class Path(NamedTuple):
    """Which way a launch takes."""

    kernel: str
    constants: Choices
    arguments: Choices

    @property
    def pairs(self) -> set[Pair]:
        """Every two choices of the path.

        There are too many paths to try all of them. Mistakes depend on one or two choices.
        """
        choices = sorted((*self.constants, *self.arguments))
        return {(self.kernel, *pair) for pair in combinations(choices, 2)}


def path_of(launch: KernelLaunch) -> Path:
    """The path of a launch."""
    chosen = tuple(
        (constant.name, int(bool(constant.value)))
        for constant in launch.code.own_constants
        if constant.type == "bool" or constant.name == "kStagedAlign"
    )
    return Path(launch.code.kernel, chosen, argument_choices(launch))


def pairs_of(launches: Iterable[KernelLaunch]) -> set[Pair]:
    """The pairs of choices of launches."""
    return set().union(*(path_of(launch).pairs for launch in launches))


def argument_choices(launch: KernelLaunch) -> Choices:
    """What the arguments of a launch choose; of more than a few, the number does not matter."""
    constants = {constant.name: constant.value for constant in launch.code.own_constants}
    values = constants | arguments(launch)
    return tuple(_CHOICES[launch.code.kernel](launch, values).items())


def row_step(launch: KernelLaunch) -> int:
    """The rows of a tile or chunk, at whose multiples the path of a launch may change."""
    values = arguments(launch)
    return int(values.get("tile_rows") or values.get("chunk_rows") or 64)


def arguments(launch: KernelLaunch) -> dict[str, Any]:
    """The arguments of a launch by name, read back from its bytes; a table is a tuple."""
    values: dict[str, Any] = {}
    begin = 0
    for member in launch.code.members:
        layout = f"<{member.format}"
        entries: tuple[Any, ...] = struct.unpack_from(layout, launch.packed, begin)
        begin += struct.calcsize(layout)
        if member.type == DIVISOR:
            entries = tuple(map(Divisor, entries[::2], entries[1::2]))
        values[member.name] = entries if member.entries else entries[0]
    return values


def _rows(launch: KernelLaunch, values: Values) -> dict[str, int]:
    """The choices of the kernel `rows`."""
    rows = values["chunk_rows"]
    tile_bytes = values["tile_bytes"]
    tile_rows = [min(rows, ceil_div(tile_bytes, width)) for width in values["widths"] if width]
    return {
        "rounds": tile_bytes // (launch.threads * values["kLoads"] * VECTOR),
        "many chunks": int(values["last_chunk"] > 1),
        "shorter last chunk": int(values["last_rows"] < values["chunk_rows"]),
        "many tiles": int(values["chunk_tiles"] > len(launch.outputs) + 1),
        # A thread joins the ends of several rows of a tile.
        "more rows than threads": int(not values["kAligned"] and max(tile_rows) > launch.threads),
    }


def _tile(launch: KernelLaunch, values: Values) -> dict[str, int]:
    """The choices of the kernel `tile`."""
    groups = values["groups"]
    tile_rows = values["tile_rows"]
    full_tiles = values["full_tiles"]
    row_tiles = ceil_div(full_tiles * tile_rows + values["rest_rows"], tile_rows)
    return {
        "rounds": values["rounds"],
        "groups": min(groups, 2),
        "one run": int(values["run_vectors"] == values["read_vectors"]),
        "full tiles": min(full_tiles, 2),
        # With unaligned outputs, a tile after all rows, or one with few rows, holds their ends.
        "rest": int(values["rest_rows"] > 0),
        "tile of ends": launch.grid // groups - row_tiles,
    }


def _transpose(launch: KernelLaunch, values: Values) -> dict[str, int]:
    """The choices of the kernel `transpose`."""
    return {
        "loops": values["kLoops"],
        "planes": min(values["kPlanes"], 2),
        "many tiles": int(launch.grid > values["kEntries"] + 1),
    }


def _strided(launch: KernelLaunch, values: Values) -> dict[str, int]:
    """The choices of the kernel `strided`."""
    entries = len(launch.outputs) // values["kChannels"]
    return {
        "loops": values["kDimensions"],
        "nests": min(values["kNests"], 2),
        "many tiles": int(launch.grid > entries + 1),
    }


_CHOICES: Mapping[str, Callable[[KernelLaunch, Values], dict[str, int]]] = {
    "rows": _rows,
    "tile": _tile,
    "transpose": _transpose,
    "strided": _strided,
}
