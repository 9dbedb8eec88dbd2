"""Whether two elements of a strided tensor share an address."""

from collections.abc import Sequence

# After this many steps, the search gives up and calls the layout overlapping.
SEARCH_STEPS = 20_000


def may_overlap_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices may reach the same element.

    Two indices collide if a non-zero difference ``d`` with ``|d[i]| < sizes[i]`` has
    ``sum(d[i] * strides[i]) == 0``. The search visits dimensions by falling stride and keeps only
    remainders that smaller strides can still cancel, so that nested layouts (packed, padded,
    permuted) are decided at once. A search that grows too large answers True. Strides must not be
    negative.
    """
    if 0 in sizes:
        return False
    dims = zip(sizes, strides, strict=True)
    loops = sorted(((stride, size - 1) for size, stride in dims if size > 1), reverse=True)
    if any(stride == 0 for stride, _ in loops):
        return True
    # The most that strides not yet visited can add to or subtract from a remainder.
    reach = sum(stride * most for stride, most in loops)
    # Sums of the differences so far, and whether any difference was not zero.
    states = {(0, False)}
    steps = 0
    for stride, most in loops:
        reach -= stride * most
        following = set()
        for remainder, moved in states:
            # The differences that leave a remainder of at most `reach` on either side.
            low = max(-most, -((reach + remainder) // stride))
            high = min(most, (reach - remainder) // stride)
            steps += high - low + 1
            if steps > SEARCH_STEPS:
                return True
            following |= {(remainder + d * stride, moved or d != 0) for d in range(low, high + 1)}
        states = following
    return (0, True) in states
