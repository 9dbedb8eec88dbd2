"""Splits that take, with little data, every path that the arguments of a launch can choose.

dmlsplit/self_test/paths.py says what arguments choose. The self-test's splits for GPUs of a few
SMs take every two choices together; those of a table here take the combinations that are left.
"""

from collections.abc import Iterable

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.self_test.cases import cases
from dmlsplit.self_test.paths import Choices, Pair, argument_choices, pairs_of
from tests.support.kernel_cases import Case
from tests.support.kernel_splits import ONE_SM, of_self_test

Way = tuple[str, Choices] | Pair  # of a kernel: all that arguments choose, or two choices

# Memory that few bytes in flight keep busy, so that a block takes many rounds.
FEW_SMS = H200.limits._replace(sm_count=8, in_flight_bytes=1 << 10)
LONG, UNEVEN = (99001, 98999), (1, 2, 5, 40)
TABLE = {
    "four rounds of long rows": Case((1, 198000), LONG, misaligned=(0, 3, 5), limits=ONE_SM),
    "two rounds of long rows": Case((1, 120000), (60001, 59999), misaligned=(0, 3), limits=ONE_SM),
    "one tile of four rounds": Case((1, 99000), (50000, 49000), misaligned=(0, 3), limits=FEW_SMS),
    "four rounds of vectors": Case((1, 262144), (196608, 65536), limits=FEW_SMS),
    "four rounds of equal columns": Case((1, 17 * 70000), (70000,) * 17, limits=FEW_SMS),
    "four rounds in each chunk": Case((600, 1100), (512, 588), misaligned=(1, 3), limits=FEW_SMS),
    "four rounds in equal chunks": Case((537, 1100), (512, 588), limits=FEW_SMS),
    "four rounds of many rows": Case((2100, 300), (130, 170), misaligned=(1, 3), limits=FEW_SMS),
    "two rounds in whole chunks": Case((354, 812), (512, 100, 100, 100), limits=ONE_SM),
    "three rounds of padded rows": Case((1928, 60), (20, 40), strides=(64, 1), limits=ONE_SM),
    "four rounds of padded rows": Case((2594, 60), (20, 40), strides=(64, 1), limits=ONE_SM),
    "a part of a tile of padded rows": Case((28, 60), (20, 40), strides=(64, 1)),
    "a whole tile of padded rows and a part": Case((129, 60), (20, 40), strides=(64, 1)),
    "four rounds of narrow columns": Case((3500, 48), UNEVEN, limits=ONE_SM),
    "two rounds of narrow columns": Case((2300, 48), UNEVEN, limits=ONE_SM),
    "four rounds of whole tiles of groups": Case((512, 750), (3,) * 250, limits=ONE_SM),
    "four rounds of whole tiles": Case((768, 255), (3,) * 85, limits=ONE_SM),
    "four rounds of whole tiles of two groups": Case((512, 384), (3,) * 128, limits=ONE_SM),
    "four rounds of groups": Case((600, 750), (3,) * 250, limits=ONE_SM),
    "three rounds of groups": Case((512, 600), (3,) * 200, limits=ONE_SM),
    "a tile of ends after a part of one": Case((118, 48), (1,) * 48, misaligned=(0, 4)),
    "the same in two groups": Case((60, 100), (1,) * 100, misaligned=(0, 4)),
    "two loops around rows of two lengths": Case(
        (40, 3, 60), (25, 35), strides=(600, 190, 3), output_strides=((100, 30, 1), (120, 37, 1))
    ),
    "three loops around many rows": Case((48, 3, 2, 24), (12, 12), strides=(530, 175, 85, 3)),
    "five loops around many rows": Case(
        (6, 3, 2, 2, 3, 24), (12, 12), strides=(3170, 1055, 525, 260, 85, 3)
    ),
    "windows in six loops": Case(
        (4, 4, 2, 3, 4, 4, 1, 2), (1,), 6, 8, (0, 416, 1664, 24, 3328, -2, 0, 0)
    ),
    "leads of a single row": Case((66, 1), (1,), strides=(3, 1), misaligned=(1, 3)),
    "aligned planes in two loops": Case(
        (3, 2, 9, 24), (8, 16), element_bytes=2, strides=(543, 269, 1, 11)
    ),
    "planes of two sizes": Case((300, 90), (30, 60), strides=(1, 300), misaligned=(1, 3)),
}


def splits() -> list[Case]:
    """All of them: each is run on the processor.

    The self-test's other splits are its layouts, which `kernel_splits.SMALL` has, and numbers of
    rows, whose paths these take too.
    """
    of_few_sms = [case for case in cases(H200.limits) if case.sm_count]
    in_loops = [case for case in cases(H200.limits) if " loops" in case.name and not case.sm_count]
    return [*map(of_self_test, [*of_few_sms, *in_loops]), *TABLE.values()]


def ways(launches: Iterable[KernelLaunch]) -> set[Way]:
    """What the arguments of launches choose, and every two choices of a path."""
    launch_list = list(launches)
    return {
        *(
            (kernel_launch.code.kernel, argument_choices(kernel_launch))
            for kernel_launch in launch_list
        ),
        *pairs_of(launch_list),
    }
