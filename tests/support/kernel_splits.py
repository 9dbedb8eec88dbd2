"""Small splits that reach every kernel: the proofs run all of them whole, against NumPy."""

from math import prod

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.self_test import cases as self_test
from dmlsplit.self_test.case import Case as SelfTestCase
from tests.support.kernel_cases import MACHINE, Case, small_parameters


def evens(total: int, parts: int) -> tuple[int, ...]:
    return (total // parts,) * parts


def wide(phase: int, element_bytes: int = 1) -> Case:
    """Rows of 4099 + `phase` bytes, so that every relative phase of input and output occurs."""
    first = 1500 + phase
    return Case((9, first + 2599), (first, 2599), element_bytes=element_bytes)


def narrow(width: int, outputs: int) -> Case:
    rows = max(131, 40_000 // (width * outputs)) | 1
    return Case((rows, width * outputs), (width,) * outputs)


def elements(width: int, outputs: int, rows: int) -> Case:
    return Case((rows, outputs), (1,) * outputs, element_bytes=width)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def of_self_test(case: SelfTestCase) -> Case:
    layout = case.shape, case.sizes, case.axis, case.width, case.strides, case.output_strides
    sm_count = case.sm_count or H200.limits.sm_count
    limits, tag = H200.limits._replace(sm_count=sm_count), "" if case.sm_count else MACHINE
    return Case(*layout, (case.phases[0], *case.output_phases), limits, tag)


ONE_SM = H200.limits._replace(sm_count=1)  # so that few bytes take several rounds and chunks


# Bytes of an output, and how many outputs there are.
NARROW = [
    *"1x1 1x7 1x40 2x5 3x3 3x40 5x9 6x2 7x1 8x33 12x6".split(),
    *"13x4 17x11 20x3 24x40 31x2 33x5 47x3 48x7 63x2 64x40".split(),
]
# Bytes of an element, elements in a row, and rows.
ELEMENTS = [
    *"1x16x3000 1x61x517 1x256x250 2x12x1500 2x51x300".split(),
    *"4x85x95 4x200x127 8x24x127".split(),
]
SMALL = {
    **{
        case.name.replace(",", "").replace(" ", "_"): of_self_test(case)
        for case in self_test.LAYOUTS
    },
    # Axis 0, or one row: every output is one segment.
    "one_row": Case((50000,), (20000, 29999, 1)),
    "one_output": Case((7, 1000), (1000,)),
    "one_byte": Case((1,), (1,)),
    "two_bytes": Case((2,), (1, 1)),
    "empty_pieces": Case((6, 96), (0, 64, 0, 32, 0)),
    "empty_segments": Case((4, 33), (0, 4, 0), axis=0),
    # Wide rows, aligned.
    "qkv": Case((24, 5120), (4096, 512, 512), element_bytes=2),
    "halves": Case((33, 8192), (4096, 4096), element_bytes=2),
    "one_vector_each": Case((300, 48), (16, 16, 16)),
    "more_than_a_block_of_columns": Case((3, 70000), (48000, 22000), element_bytes=4),
    # Wide rows, misaligned.
    **{f"wide_phase_{phase}": wide(phase) for phase in range(16)},
    "wide_odd_elements_2": wide(1, 2),
    "wide_odd_elements_4": wide(1, 4),
    "wide_odd_elements_8": wide(2, 8),
    "odd_vocabulary": Case((5, 50257), (25129, 25128), element_bytes=2),
    "uneven_parameters": Case((3, 30011), (1, 7, 1000, 5003, 24000), tag=MACHINE),
    "five_wide": Case((4, 16005), (1001, 5000, 3004, 6000, 1000)),
    # Rows of a few vectors, of which many hold the end of a row.
    **{
        f"short_{width}_at_{m}": Case((600, 8 * width), (width,) * 8, misaligned=(m, 16 - m))
        for m, width in enumerate((96, 101, 206, 478), 1)
    },
    "short_uneven": Case((300, 800), (100, 0, 398, 17, 285), misaligned=(0, 3)),
    "short_few_rows": Case((3, 900), (450, 301, 149)),
    "seven_aligned": Case((40, 2048), (16, 1024, 32, 512, 48, 400, 16)),
    "rows_joined_in_more_rows_than_threads": Case((200, 617), (17, 600), misaligned=(1, 3)),
    "rows_of_one_more_than_a_tile": Case((63, 1300), (500, 800), misaligned=(0, 3)),
    # Narrow rows.
    "tile_of_ends": Case((1024, 48), (1, 2, 5, 40), misaligned=(1, 3, 5, 9, 15)),
    "tiles_in_rounds": Case((2300, 48), (1, 2, 5, 40), misaligned=(1, 3, 5, 9, 15), limits=ONE_SM),
    **{f"narrow_{size}": narrow(*numbers(size)) for size in NARROW},
    "head_85": Case((257, 85), (2, 2, 1, 80), element_bytes=2, tag=MACHINE),
    "box_144": Case((97, 144), (64, 80), element_bytes=2),
    "five_uneven": Case((333, 40), (3, 9, 1, 20, 7)),
    "nine_uneven": Case((77, 120), (3, 9, 1, 20, 7, 33, 2, 11, 34), element_bytes=2),
    "uneven_4_4_2_160": Case((65, 170), (4, 4, 2, 160)),
    "thousand_pieces": Case((40, 8000), evens(8000, 1000), element_bytes=4),
    "thousand_bytes": Case((70, 1000), evens(1000, 1000)),
    **{
        f"tall_{size}": Case((301, prod(numbers(size))), numbers(size)[:1] * numbers(size)[1])
        for size in "1x64 1x250 2x300 3x120 2x32 1x33".split()
    },
    # Vectors that end in the rows of the next tile, or after the last row.
    **{
        f"narrow_targets_at_{m}": Case((1111, 40), (3, 1, 20, 16), misaligned=(0, m))
        for m in (1, 8, 15)
    },
    "narrow_words_misaligned": Case((301, 33), (1,) * 33, element_bytes=4, misaligned=(4, 12)),
    "narrow_pairs_misaligned": Case((999, 50), (3, 2, 45), element_bytes=2, misaligned=(2, 6)),
    "tall_misaligned": Case((140, 64), (1,) * 64, misaligned=(2, 1)),
    # So many narrow outputs that their vectors go through shared memory.
    "crowded_rows": Case((1003, 40), (8,) * 5, element_bytes=4),
    "crowded_uneven_rows": Case((517, 60), (4, 12, 4, 8, 4, 20, 8), element_bytes=4, tag=MACHINE),
    "slabs_of_a_row_in_groups": Case((11, 720), (20,) * 36, element_bytes=4, tag=MACHINE),
    "slabs_of_a_padded_row": Case((11, 720), (20,) * 36, element_bytes=4, strides=(724, 1)),
    "crowded_columns": Case((70, 1600), (8,) * 200, element_bytes=4),
    "crowded_uneven_columns": Case((41, 2000), (4, 8, 12, 16) * 50, element_bytes=4),
    "crowded_vectors": Case((33, 3000), (4,) * 750, element_bytes=4),
    # One element per output: rows are transposed.
    **{f"elements_{size}": elements(*numbers(size)) for size in ELEMENTS},
    "elements_of_words": Case((259, 32), (1,) * 32, element_bytes=4, tag=MACHINE),
    "elements_padded": Case((301, 28), (1,) * 28, element_bytes=4, strides=(35, 1)),
    "elements_with_empty_pieces": Case((301, 28), (0, *(1,) * 28, 0), element_bytes=4),
    "elements_small_parameters": small_parameters(Case((250, 480), (1,) * 480)),
    # Pixels, complex numbers, points.
    "rgba": Case((1, 32, 64, 4), (1, 1, 1, 1)),
    "pairs_of_2": Case((1001, 2), (1, 1), element_bytes=2),
    "pairs_of_halves_at_odd_elements": Case((257, 4), (2, 2), element_bytes=2, misaligned=(2, 0)),
    "points_of_4": Case((515, 3), (1, 1, 1), element_bytes=4),
    "complex64": Case((1025, 2), (1, 1), element_bytes=4),
    # Thousands of outputs.
    "outputs_4097": Case((4097, 5), (1,) * 4097, axis=0),
    "outputs_5000_narrow": Case((9, 5000), (1,) * 5000, element_bytes=2),
    "outputs_700_small_parameters": small_parameters(Case((700, 40), (1,) * 700, axis=0)),
    "columns_700_small_parameters": small_parameters(Case((20, 2100), (3,) * 700)),
    # Strided.
    # Planes of whole tiles, with edges, and with lines at any alignment, for every element size.
    **{
        f"planes_{width}_{shape}": Case(
            (down, sum(sizes)), sizes, element_bytes=width, strides=(1, down + gap)
        )
        for shape, down, sizes, gap, widths in [
            ("whole", 128, (128, 256), 0, (1, 2, 4, 8, 16)),
            ("edges", 144, (128, 80), 0, (1, 2, 4, 8, 16)),
            ("odd", 131, (65, 130), 0, (1, 2, 4, 8)),
            ("padded", 100, (40, 9), 3, (1,)),
            ("long", 9, (400, 8), 0, (1, 2, 8)),
        ]
        for width in widths
    },
    "planes_in_long_odd_lines": Case((9, 2001), (1000, 1001), strides=(1, 9)),
    "planes_of_lines_closer_than_a_vector": Case((34, 513), (17, 17), axis=0, strides=(1, 5)),
    "planes_small_parameters": small_parameters(
        Case((16, 2000), (8,) * 250, element_bytes=2, strides=(1, 16))
    ),
    "planes_in_loops": Case(
        (3, 5, 70, 2, 40), (30, 40), axis=2, element_bytes=2, strides=(28000, 5600, 1, 2800, 70)
    ),
    "planes_turned_round": Case(
        (3, 70, 40), (30, 40), axis=1, element_bytes=4, strides=(-2800, 1, -70)
    ),
    "planes_with_overlapping_lines": Case((90, 70), (30, 40), element_bytes=1, strides=(1, 3)),
    "planes_into_padded_outputs": Case(
        (70, 60), (25, 35), strides=(1, 70), output_strides=((48, 1), (37, 1))
    ),
    "transposed_bytes": Case((70, 90), (31, 59), strides=(1, 70)),
    "transposed_output": Case(
        (40, 66), (33, 33), element_bytes=2, output_strides=((1, 40), (1, 40))
    ),
    "broadcast_rows": Case((17, 64), (16, 48), element_bytes=4, strides=(0, 1)),
    "broadcast_elements": Case((17, 64), (16, 48), element_bytes=2, strides=(1, 0)),
    "broadcast_all": Case((5, 6), (2, 4), element_bytes=8, strides=(0, 0)),
    "padded_input": Case((19, 60), (20, 40), element_bytes=4, strides=(64, 1)),
    "padded_odd_input": Case((19, 60), (21, 39), strides=(67, 1)),
    "padded_steps": Case((19, 60), (20, 40), element_bytes=2, output_strides=((50, 2), (90, 2))),
    "reversed_input": Case((90, 60), (20, 40), strides=(-64, -1), tag=MACHINE),
    "reversed_outputs": Case((40, 30), (10, 20), -1, 2, None, ((13, 1), (-24, 1)), tag=MACHINE),
    "permuted_rank_5": Case((2, 3, 4, 5, 6), (1, 3), 2, 2, (500, 160, 35, 6, 1), tag=MACHINE),
    "reversed_rows": Case((21, 64), (32, 32), strides=(-64, 1)),
    "reversed_elements": Case((21, 64), (24, 40), element_bytes=2, strides=(64, -1)),
    "permuted_input": Case((6, 10, 14), (4, 6), axis=1, element_bytes=4, strides=(10, 1, 60)),
    "permuted_outputs": Case(
        (6, 10, 14), (4, 6), axis=1, element_bytes=4, output_strides=((4, 1, 24), (6, 1, 36))
    ),
    "channels_last": Case((2, 9, 7, 5), (4, 5), axis=1, element_bytes=2, strides=(315, 1, 45, 9)),
    "eight_dimensions": Case((2, 3, 2, 3, 2, 2, 3, 5), (1, 2), axis=3, element_bytes=2),
    "eight_strided_dimensions": Case(
        (2, 3, 2, 3, 2, 2, 3, 5),
        (1, 2),
        axis=3,
        element_bytes=2,
        strides=(3000, 700, 301, 90, 44, 21, 6, 1),
        tag=MACHINE,
    ),
    # Strided, in vectors: rows from windows of the input, whose ends are copied separately.
    "every_second_byte": Case((40, 1024), (512, 512), strides=(2048, 2), tag=MACHINE),
    "every_second_byte_of_odd_rows": Case((40, 1501), (700, 801), strides=(3005, 2), tag=MACHINE),
    "every_third_half": Case((9, 1200), (600, 600), element_bytes=2, strides=(3601, 3)),
    "every_fourth_byte": Case((7, 2048), (1024, 1024), strides=(8195, 4)),
    "every_second_word_of_odd_rows": Case((5, 803), (803,), element_bytes=4, strides=(1607, 2)),
    "every_second_double": Case((5, 600), (300, 300), element_bytes=8, strides=(1201, 2)),
    "bytes_reversed": Case((9, 1111), (300, 811), strides=(1112, -1), tag=MACHINE),
    "halves_reversed_by_two": Case(
        (9, 800), (384, 416), element_bytes=2, strides=(1601, -2), tag=MACHINE
    ),
    "bytes_reversed_by_four": Case((4, 1024), (1024,), strides=(4096, -4)),
    "broadcast_long_rows": Case((3, 700), (300, 400), strides=(1, 0)),
    "padded_odd_long_rows": Case((9, 2000), (999, 1001), strides=(2011, 1)),
    "padded_outputs_long_rows": Case(
        (9, 2000), (999, 1001), element_bytes=2, output_strides=((1003, 1), (1024, 1)), tag=MACHINE
    ),
    "two_of_rgba_halves": Case(
        (3, 5, 264, 3), (1, 2), axis=3, element_bytes=2, strides=(6000, 1100, 4, 1)
    ),
    # The first and the last channel have the same nest, but are not adjacent in the input.
    "first_and_last_of_rgba": Case((3, 264, 4), (1, 2, 1), element_bytes=2, strides=(1100, 4, 1)),
    "rgb_of_odd_rows_misaligned": Case(
        (5, 640, 3), (1,) * 3, axis=2, strides=(1921, 3, 1), misaligned=(1, 3)
    ),
    "pairs_of_padded_rows": Case((7, 300, 2), (1, 1), axis=2, element_bytes=4, strides=(602, 2, 1)),
    "windows_of_few_outputs_and_many": Case((3, 20 * 256), (256,) * 20, strides=(10240, 2)),
    "mixed_strided_and_packed": Case(
        (8, 12), (4, 4, 4), element_bytes=4, output_strides=(None, (9, 2), (1, 8))
    ),
    "strided_with_empty_piece": Case((8, 12), (0, 5, 7), element_bytes=4, strides=(1, 8)),
    # Base addresses that are not aligned.
    **{
        f"qkv_source_at_{m}": Case((9, 1024), (768, 128, 128), misaligned=(m, 0)) for m in (1, 4, 8)
    },
    **{f"qkv_targets_at_{m}": Case((9, 1024), (768, 128, 128), misaligned=(0, m)) for m in (2, 15)},
    **{f"wide_both_at_{m}": Case((4, 6000), (5000, 1000), misaligned=(m, m)) for m in range(1, 16)},
    "rgb_misaligned": Case((999, 3), (1, 1, 1), misaligned=(1, 3)),
    # Of 504 items, an output at a multiple of 16 has its last vector in a block of its own.
    "rgb_with_a_phase_each": Case((16 * 504, 3), (1, 1, 1), misaligned=(0, 16, 1, 7), tag=MACHINE),
    "rgb_just_above_a_block": Case((16 * 256 + 9, 3), (1, 1, 1), misaligned=(5, 3, 8, 16)),
    "threes_misaligned": Case(
        (4099, 21), (3,) * 7, misaligned=(1, 1, 2, 3, 4, 5, 16, 15), tag=MACHINE
    ),
    "threes_of_words_misaligned": Case(
        (1040, 9), (3,) * 3, element_bytes=4, misaligned=(4, 4, 8, 16)
    ),
    "fives_of_halves": Case((777, 20), (5,) * 4, element_bytes=2),
    "twenties_at_odd_addresses": Case((513, 40), (20,) * 2, misaligned=(0, 1, 9)),
    "complex64_misaligned": Case((999, 2), (1, 1), element_bytes=4, misaligned=(4, 8)),
    "narrow_misaligned": Case((131, 85), (4, 1, 80), misaligned=(7, 9)),
    "segments_that_end_with_a_vector": Case((1536,), (529, 1007), axis=0, misaligned=(0, 0, 1)),
    "segments_shorter_than_their_lead": Case(
        (4000,), (2000, 1, 5, 1994), misaligned=(3, 7, 9, 2, 1)
    ),
    "segments_misaligned": Case((10, 1000), (3, 7), axis=0, misaligned=(3, 5)),
    "transposed_misaligned": Case(
        (40, 50), (20, 30), element_bytes=2, strides=(1, 40), misaligned=(2, 6)
    ),
}
