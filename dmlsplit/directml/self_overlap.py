"""Whether two elements of a strided tensor share an address."""

from functools import lru_cache

# After this many steps, the search gives up and assumes that the layout overlaps.
SEARCH_STEPS = 20_000


# Cached, because thousands of outputs of one descriptor often have one layout.
@lru_cache(maxsize=1024)
def may_overlap_itself(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices may have the same address.

    Two indices collide if a non-zero difference ``d`` with ``|d[i]| < sizes[i]`` has
    ``sum(d[i] * strides[i]) == 0``. The search visits dimensions by falling stride and keeps only
    remainders that smaller strides can still cancel, so nested layouts (packed, padded, permuted)
    are decided at once. If the search grows too large, the answer is True. Strides must not be
    negative.
    """
    if 0 in sizes:
        return False
    dims = zip(sizes, strides, strict=True)
    loops = sorted(((stride, size - 1) for size, stride in dims if size > 1), reverse=True)
    if any(stride == 0 for stride, _ in loops):
        return True
    # The most that the strides not yet visited can add to a remainder, or subtract from it.
    reach = sum(stride * last for stride, last in loops)
    # Sums of the differences so far, and whether any difference was not zero.
    states = {(0, False)}
    steps = 0
    for stride, last in loops:
        reach -= stride * last
        next_states = set()
        for remainder, moved in states:
            # Only these differences leave a remainder from `-reach` to `reach`.
            low = max(-last, -((reach + remainder) // stride))
            high = min(last, (reach - remainder) // stride)
            steps += high - low + 1
            if steps > SEARCH_STEPS:
                return True
            next_states |= {(remainder + d * stride, moved or d != 0) for d in range(low, high + 1)}
        states = next_states
    return (0, True) in states
