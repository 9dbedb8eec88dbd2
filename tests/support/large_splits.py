"""Splits that fill a GPU, or more than that; only parts of them run. A name begins with a kernel.

The benchmarks' workloads are among them.
"""

from benchmarks import cases
from benchmarks.workloads import WORKLOADS
from tests.support.kernel_cases import WRAPS, Case

GIB = 1 << 30
RGB = (256, 480, 640, 3)


def of_workload(workload: cases.Case, misaligned: tuple[int, int] | None = None) -> Case:
    """This split with strides in elements."""
    width = workload.element_bytes

    def elements(strides: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return strides and tuple(step // width for step in strides)

    return Case(
        workload.shape,
        workload.sizes,
        workload.axis,
        width,
        elements(workload.strides),
        tuple(map(elements, workload.output_strides)),
        misaligned or workload.misaligned,
    )


# At least one input or output has more than 4 GiB.
FAR = {
    "rows_aligned": Case((1 << 20, 4096), (3072, 1024), element_bytes=2, tag=WRAPS),
    "rows_aligned_segments": Case((2, 3 * GIB), (1, 1), axis=0, tag=WRAPS),
    "rows_misaligned": Case((1 << 20, 6001), (5000, 1001), tag=WRAPS),
    "rows_columns": Case((2, 5 * GIB), (3 * GIB - 1, 2 * GIB + 1), tag=WRAPS),
    "tile": Case((64_000_001, 85), (2, 3, 80), tag=WRAPS),
    "tile_groups": Case((2_000_001, 3000), (3,) * 1000, tag=WRAPS),
    "strided_interleaved": Case((3 * GIB + 5, 3), (1, 1, 1), tag=WRAPS),
    "transpose": Case((70_001, 70_003), (35_000, 35_003), strides=(1, 70_001), tag=WRAPS),
    "transpose_elements": Case((100_000_003, 64), (1,) * 64, tag=WRAPS),
    "strided_staged": Case((3 * GIB + 5, 3), (1, 1, 1), misaligned=(0, 1)),
    "strided_source": Case((5, 4096), (2048, 2048), strides=(2 * GIB, -1), tag=WRAPS),
    "strided_targets": Case(
        (5, 4096), (2048,) * 2, -1, 2, output_strides=((2 * GIB, 1),) * 2, tag=WRAPS
    ),
}
LARGE = {
    **{f"workload_{workload.at:.0f}": of_workload(workload) for workload in WORKLOADS},
    **FAR,
    # Rows, pitches, chunks and offsets in outputs reach 31 and 32 bits.
    "rows_beside_narrow_outputs": Case(
        (4, (1 << 25) + 1605), ((1 << 25) + 5, *(16,) * 100), tag=WRAPS
    ),
    "rows_in_chunks": Case((1 << 20, 6001), (5000, 1001), misaligned=(3, 5), tag=WRAPS),
    "rows_as_wide_as_chunks": Case((3, GIB - 1), (GIB - 1602, 1601), misaligned=(1, 0), tag=WRAPS),
    "rows_of_one_output": Case((7, GIB // 2 - 3), (GIB // 2 - 3,), misaligned=(0, 9), tag=WRAPS),
    "rows_equal": Case((5, 17 * ((1 << 24) + 1)), ((1 << 24) + 1,) * 17, tag=WRAPS),
    "rows_short": Case((1 << 24, 2408), (301,) * 8, misaligned=(3, 5), tag=WRAPS),
    "rows_many": Case((1 << 18, 300 * 601), (600, 602) * 150, tag=WRAPS),
    "rows_one_segment": Case(((1 << 33) + 5,), (1, (1 << 33) + 4), tag=WRAPS),
    "tile_misaligned": Case((64_000_001, 85), (2, 3, 80), misaligned=(1, 7), tag=WRAPS),
    "tile_aligned": Case((64_000_001, 84), (4, 80), tag=WRAPS),
    "tile_groups_of_three": Case((5_000_001, 1200), (3,) * 400, tag=WRAPS),
    "tile_far_rows": Case((999, 173), (40, 4, 31, 14, 84), strides=((1 << 32) + 1, 1), tag=WRAPS),
    "tile_one_row": Case(
        (5000, 173), (1, 2, 3, 167), axis=1, strides=((1 << 24) - 1, 1), tag=WRAPS
    ),
    "strided_below_2_to_30": Case((2, GIB // 2 - 1), (GIB // 2 - 1,), strides=(GIB, 2), tag=WRAPS),
    "strided_above_2_to_30": Case(
        (2, GIB + 1), (GIB - 257, 258), strides=(2 * GIB + 5, 2), tag=WRAPS
    ),
    "strided_staged_pairs": Case((GIB + 77, 6), (3, 3), misaligned=(1, 7), tag=WRAPS),
    "strided_far_units": Case(
        (3, (1 << 28) + 3), (5, (1 << 28) - 2), strides=(1 << 33, 9), tag=WRAPS
    ),
    # Tables of thousands of outputs.
    "rows_4094_outputs": Case((64, 4094 * 601), (600, 602) * 2047),
    "rows_4094_outputs_above_4_gib": Case((4094 * ((1 << 20) + 1),), ((1 << 20) + 1,) * 4094),
    "tile_4094_outputs": Case((64, 4094 * 2), (1, 3) * 2047),
    "transpose_4000_elements": Case((65536, 4000), (1,) * 4000),
    "transpose_4094_outputs": Case((64, 4094 * 65), (64, 66) * 2047, strides=(1, 64)),
    "strided_4094_outputs": Case(
        (9, 255 * 136 + 105), (*tuple(range(1, 17)) * 255, *range(1, 15)), strides=(7, -1)
    ),
    "strided_1500_outputs_above_4_gib": Case(
        (2, 64, 393266250, 17), (33, 1, 1048576, 100) * 375, 2, 4, strides=(0, 0, -1, 0)
    ),
    # Other programs.
    "tile_padded": Case((1 << 22, 32), (1,) * 32, element_bytes=4, misaligned=(4, 4)),
    "tile_of_few_outputs": Case((1 << 20, 7), (4, 3), misaligned=(1, 3)),
    "strided_interleaved_2": Case((1 << 24, 2), (1,) * 2, element_bytes=2),
    "strided_staged_most": Case((1 << 23, 21), (3,) * 7, misaligned=(1, 1)),
    "strided_staged_alone": Case((1 << 23, 21), (7,) * 3),
    "strided_edges_of_one_nest_above_4_gib": Case(
        (2, (2 << 30) + 2), ((1 << 30) + 1,) * 2, strides=((1 << 33) + 1, 2)
    ),
    "transpose_1": Case((8192, 8192), (4096, 4096), strides=(1, 8192)),
    "transpose_2": Case((8192, 8192), (4096, 4096), element_bytes=2, strides=(1, 8192)),
    "transpose_8": Case((8192, 8192), (4096, 4096), element_bytes=8, strides=(1, 8192)),
    "transpose_16": Case((4096, 4096), (2048, 2048), element_bytes=16, strides=(1, 4096)),
    "transpose_words": Case((8191, 8190), (4095, 4095), element_bytes=4, strides=(1, 8191)),
    "transpose_any_bytes": Case((8191, 8190), (4095, 4095), strides=(1, 8191)),
    "transpose_any_halves": Case((8191, 8190), (4095, 4095), element_bytes=2, strides=(1, 8191)),
    "transpose_16_boxes": Case((640, 1144), tuple(range(64, 80)), strides=(1, 640)),
    "strided_vectors": Case((4096, 1024), (512, 512), element_bytes=4, strides=(0, 1)),
    "strided_bytes": Case((8192, 60), (20, 40), strides=(-64, -1)),
    "strided_windows_down": Case((8192, 32770), (16385, 16385), strides=(32771, -1)),
    "strided_above_4_gib": Case((3, 3 << 30), (1 << 30, 2 << 30), strides=(3 << 31, 2)),
    "strided_edges_above_4_gib": Case(
        (2, (1 << 31) + 257), ((1 << 31) - 1, 258), strides=((1 << 33) + 1, 2)
    ),
    "strided_nests_with_far_strides": Case(
        (1, 22, 60), (12, 10), 1, 8, (64424509500, 1, 1073741825), misaligned=(140, 36, 68)
    ),
    "strided_eight": Case(
        (8, 3, 2, 3, 8, 2, 3, 5), (1, 2), 3, 2, (3000, 700, 301, 90, 44, 21, 6, 1)
    ),
    # Elements some steps apart.
    "strided_second_byte": Case((8192, 32768), (16384,) * 2, strides=(65536, 2)),
    "strided_second_half": Case((8192, 16384), (8192,) * 2, -1, 2, (32768, 2)),
    "strided_second_word": Case((8192, 8192), (4096,) * 2, -1, 4, (16384, 2)),
    "strided_second_double": Case((8192, 4096), (2048,) * 2, -1, 8, (8192, 2)),
    "strided_second_word_at_8": Case(
        (8192, 8192), (4096,) * 2, -1, 4, (16384, 2), misaligned=(8, 0)
    ),
    "strided_fourth_half": Case((8192, 16384), (8192,) * 2, -1, 2, (65536, 4)),
    "strided_fourth_byte": Case((8192, 32768), (16384,) * 2, strides=(131072, 4)),
    "strided_sixteenth_byte": Case((8192, 32768), (16384,) * 2, strides=(1 << 19, 16)),
    "strided_odd_rows": Case((8192, 32769), (16384, 16385), strides=(65539, 2)),
    "strided_bytes_reversed": Case((8192, 32768), (16384,) * 2, strides=(32768, -1)),
    "strided_words_reversed": Case((8192, 8192), (4096,) * 2, -1, 4, (8192, -1)),
    "strided_broadcast_elements": Case((8192, 16384), (8192,) * 2, -1, 2, (1, 0)),
    "strided_permuted_odd_rows": Case(
        (64, 128, 32768), (16384,) * 2, strides=(32771, 64 * 32771, 1)
    ),
    "strided_rgb_of_odd_rows": Case(RGB, (1,) * 3, 3, strides=(480 * 1921, 1921, 3, 1)),
    "strided_rgb_with_edges": Case(
        (256, 375, 500, 3), (1,) * 3, 3, strides=(375 * 1501, 1501, 3, 1)
    ),
    "strided_pairs_of_padded_rows": Case((4096, 4096, 2), (1, 1), 2, 4, (8200, 2, 1)),
    "strided_padded_outputs": Case((8192, 8192), (4096,) * 2, -1, 4, None, ((4097, 1), (4100, 1))),
    "strided_second_words_of_outputs": Case(
        (8192, 8192), (4096,) * 2, -1, 4, None, ((8192, 2),) * 2
    ),
}
