"""The CPU engine's thresholds, which change speed only.

They were found with ``python -m benchmarks cpu`` and ``latency``, mostly on two virtual Xeon
processors with NumPy 2.4, by varying one at a time and comparing every case. They interact:

- A split of `PARALLEL_BYTES` or more uses several threads. Its rows are cut into tasks of
  `LEAST_TASK_BYTES` to `TASK_BYTES`, and tasks into blocks of `BLOCK_BYTES`. Up to
  `PREPARED_BYTES` this happens when buffers are bound.
- A block is one indexed assignment to all outputs, or one plain assignment for each output if there
  are fewer than `FEW_OUTPUTS` and the block holds all rows.
- `COPIED_BYTES` and `FEW_PARTS` apply only if outputs are on both sides of the input in memory: an
  indexed assignment then costs a copy of the input.
"""

# Runs up to this are one item of type ``V<n>``; longer ones are copied as bytes. Wide items save
# overhead in NumPy's inner loop, but few of them hold the interpreter lock (LOCKED_ITEMS).
WIDEST_ITEM = 2048

# From this size, several threads pay. Waking a helper and waiting for it costs 0.1 to 0.3 ms. The
# size has been 1 to 8 MiB; measure again when handing out work becomes cheaper. ITEM_BYTES is the
# overhead of an item in bytes, which makes narrow rows count as more work.
PARALLEL_BYTES = 4 << 20
ITEM_BYTES = 2

# Bounds of a task. Each acquires the interpreter lock a few times, so there should be few; but
# threads end together only if the last tasks are short. The upper bound also limits the indices.
TASK_BYTES = 64 << 20
LEAST_TASK_BYTES = 1 << 20

# Up to this size the assignments are made when buffers are bound, which makes a dispatch cheaper.
# Beyond it that is negligible, and all the indices together would need much memory.
PREPARED_BYTES = 256 << 20

# A block is written output by output, so its input is read once per output and must stay in the
# second-level cache. Halving 256 KiB made rows of one byte a tenth faster. A block has at least 32
# rows: otherwise thousands of outputs would need far more pages than TLB entries, for a few bytes.
BLOCK_BYTES = 128 << 10
BLOCK_ROWS = 32
# A split up to this size is one block, because all of its input stays in the cache. Above, blocks
# halve the time of equal outputs of 32 to 64 bytes; at 1 MiB they gain nothing and cost 30 us.
CACHED_BYTES = 1 << 20

# An indexed assignment costs about as much as this many plain ones, and more to prepare.
FEW_OUTPUTS = 128

# NumPy first copies the input of an indexed assignment that is inside the window of the outputs.
# That costs one assignment per this many bytes: a small input is copied, a large one gets separate
# assignments for the outputs on each side.
COPIED_BYTES = 1024
# With several threads, at most this many short assignments: each holds the interpreter lock, so
# more of them cost more than the copy.
FEW_PARTS = 8

# NumPy holds the interpreter lock during assignments of up to 500 items, however wide
# (NPY_BEGIN_THREADS_THRESHOLDED in its source): two threads ran one at a time on 4 to 16 MiB.
# From UNLOCKED_BYTES, such an assignment copies bytes, which are more than 500 items but slower per
# byte, so smaller ones do not.
LOCKED_ITEMS = 500
UNLOCKED_BYTES = 32 << 10

# One window covers outputs within the same 32 GiB only. Correctness needs a limit, with margin:
# NumPy refuses arrays that extend over 2^63 bytes, and indices must stay small.
REACH_BYTES = 1 << 35
