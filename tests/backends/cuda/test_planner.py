"""The kernel that a geometry gets, and its launch."""

from dataclasses import replace

import pytest

from dmlsplit.backends.cuda.gpus import H200, find_gpu
from dmlsplit.backends.cuda.specialization import NORMAL, STREAMING
from dmlsplit.geometry import SplitGeometry, ceil_div
from tests.support.descriptors import packed_split
from tests.support.large_splits import LARGE
from tests.support.plans import constants_and_arguments, kernels, planned

QKV = packed_split((8192, 10240), axis=1, sizes=(8192, 1024, 1024), element_bytes=2)
RGB = packed_split((2160, 3840, 3), axis=2, sizes=(1, 1, 1))
HEADS = packed_split((25200, 85), axis=1, sizes=(2, 2, 1, 80), element_bytes=2)
VOCABULARY = packed_split((4096, 50257), axis=1, sizes=(25129, 25128), element_bytes=2)
LABELS = packed_split((4096, 4000), axis=1, sizes=(2,) * 2000, element_bytes=2)
TRANSPOSED = packed_split(
    (512, 512), axis=1, sizes=(256, 256), element_bytes=4, input_strides=(4, 2048)
)
BROADCAST = packed_split(
    (512, 512), axis=1, sizes=(256, 256), element_bytes=4, input_strides=(0, 4)
)
EVERY_SECOND_BYTE = packed_split((1 << 20,), axis=0, sizes=(1 << 20,), input_strides=(2,))
THREE_OF_FOUR = packed_split((4096, 3), axis=1, sizes=(1, 1, 1), input_strides=(4, 1))

# A geometry, and its kernels if all addresses are aligned, and if they are not.
KERNELS = {
    "wide outputs": (QKV, "rows", "rows"),
    "more outputs than a launch has": (
        packed_split((1 << 18,), axis=0, sizes=(64,) * 4096, element_bytes=4),
        "rows rows", "rows rows"),
    "narrow outputs": (packed_split((4096, 1600), axis=1, sizes=(8,) * 200, element_bytes=4),
        "tile", "tile"),
    "few narrow outputs": (packed_split((4096, 40), axis=1, sizes=(8,) * 5, element_bytes=4),
        "tile", "tile"),
    "fewer narrow outputs": (packed_split((4096, 32), axis=1, sizes=(8,) * 4, element_bytes=4),
        "rows", "tile"),
    "few rows": (packed_split((16, 1600), axis=1, sizes=(8,) * 200, element_bytes=4),
        "tile", "tile"),
    "pairs": (packed_split((1 << 20, 2), axis=1, sizes=(1, 1), element_bytes=8),
        "strided", "strided"),
    "7 outputs of 3 bytes": (packed_split((1 << 20, 21), axis=1, sizes=(3,) * 7),
        "strided", "strided"),
    "8 outputs of 3 bytes": (packed_split((1 << 20, 24), axis=1, sizes=(3,) * 8), "tile", "tile"),
    "channels": (RGB, "strided", "strided"),
    "3 rows of channels": (packed_split((3, 3), axis=1, sizes=(1, 1, 1)), "tile", "tile"),
    "heads of a detector": (HEADS, "tile", "tile"),
    "a vocabulary": (VOCABULARY, "rows", "rows"),
    "2000 labels": (LABELS, "transpose", "tile tile"),
    "narrow outputs on both sides": (packed_split((99, 5000), axis=1, sizes=(1, 2, 4990, 7)),
        "rows tile", "rows tile"),
    "17 bytes on both sides": (packed_split((99, 5000), axis=1, sizes=(17, 4966, 17)),
        "rows", "rows"),
    "17 bytes on both sides of many rows": (
        packed_split((99_999, 5000), axis=1, sizes=(17, 4966, 17)), "rows tile", "rows tile"),
    "400 bytes on both sides": (packed_split((99, 5000), axis=1, sizes=(400, 4200, 400)),
        "rows", "rows"),
    "transposed": (TRANSPOSED, "transpose", "strided"),
    "broadcast": (BROADCAST, "strided", "strided"),
    # Rows of one byte and a gap; so are three channels of four.
    "every second byte": (EVERY_SECOND_BYTE, "strided", "strided"),
    "3 channels of 4": (THREE_OF_FOUR, "strided", "strided"),
}  # fmt: skip


@pytest.mark.parametrize(("geometry", "aligned", "misaligned"), KERNELS.values(), ids=KERNELS)
def test_the_kernel_follows_from_geometry_and_alignment(
    geometry: SplitGeometry, aligned: str, misaligned: str
) -> None:
    assert kernels(geometry) == aligned.split()
    # Only the outputs' alignment matters to windows.
    source_misaligned = aligned if aligned == "strided" else misaligned
    assert kernels(geometry, 2, 16) == source_misaligned.split()
    assert kernels(geometry, 16, 2) == misaligned.split()


def test_the_arguments_of_a_wide_aligned_launch_describe_its_chunks_and_tiles() -> None:
    (launch,) = planned(QKV)
    parameters = constants_and_arguments(launch)
    chunk_rows, last_chunk = parameters["chunk_rows"], parameters["last_chunk"]
    # The whole chunks, of `chunk_rows` each, and the last one have all 8192 rows.
    assert chunk_rows * last_chunk + parameters["last_rows"] == 8192
    # In a chunk, tiles of `tile_bytes` cover each output.
    tiles = [
        ceil_div(chunk_rows * width, parameters["tile_bytes"]) for width in (16384, 2048, 2048)
    ]
    assert parameters["chunk_tiles"] == sum(tiles)
    # Each output's first tile; no tile reaches the unused fourth entry.
    assert parameters["tile_starts"] == (0, tiles[0], tiles[0] + tiles[1], 2**32 - 1)
    # A block is a tile.
    assert launch.grid == (last_chunk + 1) * sum(tiles)


def test_the_tables_of_a_wide_launch_describe_its_columns() -> None:
    """The size of a table is a power of four: beside three outputs, the fourth entry is unused."""
    (launch,) = planned(QKV)
    parameters = constants_and_arguments(launch)
    assert launch.outputs == (0, 1, 2)
    assert parameters["kOutputs"] == 4
    assert parameters["pitch"] == 20480
    assert parameters["offsets"] == (0, 16384, 18432, 0)
    assert parameters["widths"] == (16384, 2048, 2048, 0)


def test_the_constants_of_a_launch_say_that_it_is_aligned_and_has_uneven_outputs_in_rows() -> None:
    (launch,) = planned(QKV)
    parameters = constants_and_arguments(launch)
    assert (parameters["kAligned"], parameters["kOneRow"], parameters["kEqual"]) == (1, 0, 0)
    assert launch.reason == "wide outputs, aligned to 16 bytes"


def test_small_outputs_stay_in_the_cache_and_share_the_specialization_of_large_ones() -> None:
    (small,) = planned(packed_split((64, 10240), axis=1, sizes=(8192, 1024, 1024), element_bytes=2))
    (large,) = planned(
        packed_split((64 << 10, 10240), axis=1, sizes=(8192, 1024, 1024), element_bytes=2)
    )
    assert (small.is_streaming, large.is_streaming) == (False, True)
    assert small.code.source == large.code.source
    policies = [
        int.from_bytes(kernel_launch.argument_bytes[:8], "little")
        for kernel_launch in (small, large)
    ]
    assert policies == [NORMAL, STREAMING]


def test_pieces_without_elements_get_no_pointer() -> None:
    (launch,) = planned(packed_split((4, 64), axis=1, sizes=(0, 32, 0, 32)))
    assert launch.outputs == (1, 3)
    assert planned(packed_split((0, 64), axis=1, sizes=(32, 32))) == ()


@pytest.mark.parametrize("geometry", [LABELS, packed_split((4, 4097), axis=1, sizes=(1,) * 4097)])
def test_outputs_that_do_not_fit_the_parameters_get_more_launches(geometry: SplitGeometry) -> None:
    """Drivers before CUDA 12.1 take 4096 bytes of parameters, newer ones 32764."""
    few = planned(geometry, limits=H200.limits._replace(parameter_bytes=32764))
    many = planned(geometry, limits=H200.limits._replace(parameter_bytes=4096))
    assert len(few) < len(many)


@pytest.mark.parametrize("misaligned", [1, 16])
@pytest.mark.parametrize("width", [1, 16, 601, (1 << 20) + 1])
@pytest.mark.parametrize("rows", [1, 40])
def test_4094_outputs_need_at_most_8_launches(rows: int, width: int, misaligned: int) -> None:
    sizes = tuple(width + i % 3 for i in range(4094))
    launches = planned(
        packed_split((rows, sum(sizes)), axis=1, sizes=sizes),
        misaligned,
        misaligned,
    )
    # If the tables are arguments, a launch has as many outputs as they have room for.
    assert len(launches) <= (4 if "rows" in {launch.code.kernel for launch in launches} else 8)


def test_outputs_beyond_four_gigabytes_have_64_bit_offsets_and_widths() -> None:
    (launch,) = planned(packed_split((3 << 33,), axis=0, sizes=(1 << 33, 2 << 33), element_bytes=8))
    types = {member.name: member.type for member in launch.code.members}
    assert types["offsets"] == types["widths"] == "unsigned long long"
    assert launch.grid == (3 << 33) * 8 // (64 << 10)


@pytest.mark.parametrize("gpu", ["T4", "L4", "H200"])
def test_blocks_that_an_sm_must_hold_have_no_more_threads_than_it(gpu: str) -> None:
    """Otherwise, the compiler would ignore their number, which limits registers."""
    limits = find_gpu(gpu).limits
    for case in LARGE.values():
        for launch in replace(case, limits=limits).launches:
            assert launch.code.resident >= 1
            assert launch.code.resident * launch.code.max_threads <= limits.threads_per_sm
