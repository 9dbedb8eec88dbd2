"""The kernel that a geometry gets, and its launch."""

from dataclasses import replace

import pytest

from dmlsplit.backends.cuda.gpus import H200, find_gpu
from dmlsplit.backends.cuda.launch import NORMAL, STREAMING
from dmlsplit.geometry import SplitGeometry, ceil_div
from tests.support.descriptors import packed
from tests.support.large_splits import LARGE
from tests.support.plans import kernels, known, planned

QKV = packed((8192, 10240), 1, (8192, 1024, 1024), 2)
RGB = packed((2160, 3840, 3), 2, (1, 1, 1), 1)
HEADS = packed((25200, 85), 1, (2, 2, 1, 80), 2)
VOCABULARY = packed((4096, 50257), 1, (25129, 25128), 2)
LABELS = packed((4096, 4000), 1, (2,) * 2000, 2)
TRANSPOSED = packed((512, 512), 1, (256, 256), 4, input_strides=(4, 2048))
BROADCAST = packed((512, 512), 1, (256, 256), 4, input_strides=(0, 4))
EVERY_SECOND_BYTE = packed((1 << 20,), 0, (1 << 20,), 1, input_strides=(2,))
THREE_OF_FOUR = packed((4096, 3), 1, (1, 1, 1), 1, input_strides=(4, 1))

# A geometry, and its kernels if all addresses are aligned, and if they are not.
KERNELS = {
    "wide outputs": (QKV, "rows", "rows"),
    "more outputs than a launch has": (packed((1 << 18,), 0, (64,) * 4096, 4), "rows rows",
                                       "rows rows"),
    "narrow outputs": (packed((4096, 1600), 1, (8,) * 200, 4), "tile", "tile"),
    "few narrow outputs": (packed((4096, 40), 1, (8,) * 5, 4), "tile", "tile"),
    "fewer narrow outputs": (packed((4096, 32), 1, (8,) * 4, 4), "rows", "tile"),
    "few rows": (packed((16, 1600), 1, (8,) * 200, 4), "tile", "tile"),
    "pairs": (packed((1 << 20, 2), 1, (1, 1), 8), "strided", "strided"),
    "7 outputs of 3 bytes": (packed((1 << 20, 21), 1, (3,) * 7, 1), "strided", "strided"),
    "8 outputs of 3 bytes": (packed((1 << 20, 24), 1, (3,) * 8, 1), "tile", "tile"),
    "channels": (RGB, "strided", "strided"),
    "3 rows of channels": (packed((3, 3), 1, (1, 1, 1), 1), "tile", "tile"),
    "heads of a detector": (HEADS, "tile", "tile"),
    "a vocabulary": (VOCABULARY, "rows", "rows"),
    "2000 labels": (LABELS, "transpose", "tile tile"),
    "narrow outputs on both sides": (packed((99, 5000), 1, (1, 2, 4990, 7), 1), "rows tile",
                                     "rows tile"),
    "17 bytes on both sides": (packed((99, 5000), 1, (17, 4966, 17), 1), "rows tile",
                               "rows tile"),
    "400 bytes on both sides": (packed((99, 5000), 1, (400, 4200, 400), 1), "rows", "rows"),
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
    parameters = known(launch)
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
    parameters = known(launch)
    assert launch.outputs == (0, 1, 2)
    assert parameters["kOutputs"] == 4
    assert parameters["pitch"] == 20480
    assert parameters["offsets"] == (0, 16384, 18432, 0)
    assert parameters["widths"] == (16384, 2048, 2048, 0)


def test_the_constants_of_a_launch_say_that_it_is_aligned_and_has_uneven_outputs_in_rows() -> None:
    (launch,) = planned(QKV)
    parameters = known(launch)
    assert (parameters["kAligned"], parameters["kOneRow"], parameters["kEqual"]) == (1, 0, 0)
    assert launch.reason == "wide outputs, aligned to 16 bytes"


def test_small_outputs_stay_in_the_cache_and_share_the_specialization_of_large_ones() -> None:
    (small,) = planned(packed((64, 10240), 1, (8192, 1024, 1024), 2))
    (large,) = planned(packed((64 << 10, 10240), 1, (8192, 1024, 1024), 2))
    assert (small.is_streaming, large.is_streaming) == (False, True)
    assert small.code.source == large.code.source
    policies = [
        int.from_bytes(kernel_launch.argument_bytes[:8], "little")
        for kernel_launch in (small, large)
    ]
    assert policies == [NORMAL, STREAMING]


def test_pieces_without_elements_get_no_pointer() -> None:
    (launch,) = planned(packed((4, 64), 1, (0, 32, 0, 32), 1))
    assert launch.outputs == (1, 3)
    assert planned(packed((0, 64), 1, (32, 32), 1)) == ()


@pytest.mark.parametrize("geometry", [LABELS, packed((4, 4097), 1, (1,) * 4097, 1)])
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
    launches = planned(packed((rows, sum(sizes)), 1, sizes, 1), misaligned, misaligned)
    # If the tables are arguments, a launch has as many outputs as they have room for.
    assert len(launches) <= (4 if "rows" in {launch.code.kernel for launch in launches} else 8)


def test_outputs_beyond_four_gigabytes_have_64_bit_offsets_and_widths() -> None:
    (launch,) = planned(packed((3 << 33,), 0, (1 << 33, 2 << 33), 8))
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
