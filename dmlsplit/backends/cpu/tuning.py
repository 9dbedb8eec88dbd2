"""The CPU engine's thresholds, which change speed only.

They were found with ``python -m benchmarks cpu`` and ``latency``, mostly on two virtual Xeon
processors with NumPy 2.4, by varying one at a time and comparing every case. They interact.
"""

# Runs up to this are one item of type ``V<n>``; longer ones are copied as bytes. Wide items save
# overhead in NumPy's inner loop, but few of them hold the interpreter lock (LOCKED_ITEMS).
WIDEST_ITEM = 2048

# From this size, several threads pay. With 1 MiB they pay only if calls follow each other within
# 100 us (threads.py). Overhead counts as bytes: two for an item, one for a byte of a longer run.
PARALLEL_BYTES = 2 << 20

# The caller's task is its share and this, because helpers begin about 8 us later, and threads that
# end at the same moment wait for the interpreter lock. The other tasks are not shorter than
# LEAST_TASK_BYTES, because each acquires the lock. No assignment exceeds TASK_BYTES.
HEAD_START_BYTES = 128 << 10
LEAST_TASK_BYTES = 1 << 20
TASK_BYTES = 64 << 20

# Outputs with runs from this length share few cache lines of the input. They are copied one after
# the other, because longer assignments acquire the lock less often.
LONG_RUN = 512

# Up to this size the assignments are made when buffers are bound; beyond it they need much memory.
PREPARED_BYTES = 256 << 20

# Up to this size a program keeps the assignments of its last copies, which depend on addresses
# alone; every call finds those out and checks them again. Beyond it, making them is below 1 % of a
# copy. New outputs often take turns between a few places, where those of earlier calls were freed.
KEPT_BYTES = 16 << 20
KEPT_COPIES = 4

# A block is written output by output, so its input is read once per output and must stay in the
# second-level cache. Halving 256 KiB made rows of one byte a tenth faster. A block has at least 32
# rows: otherwise thousands of outputs would need far more pages than TLB entries, for a few bytes.
BLOCK_BYTES = 128 << 10
BLOCK_ROWS = 32
# A split up to this size is one block: all of its input stays in the cache.
CACHED_BYTES = 1 << 20

# An indexed assignment costs about as much as this many plain ones, and more to prepare.
FEW_OUTPUTS = 48

# NumPy holds the interpreter lock during assignments of up to 500 items, however wide
# (NPY_BEGIN_THREADS_THRESHOLDED in its source). From UNLOCKED_BYTES, such an assignment copies
# bytes, which are more than 500 items but slower per byte.
LOCKED_ITEMS = 500
UNLOCKED_BYTES = 32 << 10

# One window covers outputs within the same 32 GiB only. Correctness needs a limit, with margin:
# NumPy refuses arrays that extend over 2^63 bytes, and indices must stay small.
REACH_BYTES = 1 << 35
