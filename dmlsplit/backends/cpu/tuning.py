"""The CPU engine's thresholds: how each was found, and what it trades.

All were found with ``python -m benchmarks cpu`` and ``latency``, mostly on two virtual Xeon
processors with NumPy 2.4: one was changed, and every case compared. They change speed only, never
bytes. They interact:

- A split goes to several threads from `PARALLEL_BYTES` on. Its rows are cut into tasks of
  `LEAST_TASK_BYTES` to `TASK_BYTES`, and a task into blocks of `BLOCK_BYTES`, the smallest of the
  three. Up to `PREPARED_BYTES` all of this is done when buffers are bound.
- A block is one indexed assignment to all outputs, or one plain assignment for each output if there
  are fewer than `FEW_OUTPUTS` and the block holds all rows.
- `COPIED_BYTES` and `FEW_PARTS` apply only if outputs are at both lower and higher addresses than
  the input, where an indexed assignment costs a copy of the input.
"""

# Runs up to this are one item of type ``V<n>``, longer ones are copied as bytes. Wide items save
# the overhead of NumPy's inner loop, but a few of them hold the interpreter lock (LOCKED_ITEMS).
WIDEST_ITEM = 2048

# From this size on, several threads pay: waking a helper and being woken by it cost 0.1 to 0.3 ms.
# It has been 1 to 8 MiB: measure again when handing out work becomes cheaper. ITEM_BYTES is the
# overhead of an item in terms of bytes, so that narrow rows count as more work.
PARALLEL_BYTES = 4 << 20
ITEM_BYTES = 2

# Bounds of a task. Each takes the interpreter lock a few times, so there should be few; but threads
# end at the same time only if the last tasks are short. The upper one limits a task's indices, too.
TASK_BYTES = 64 << 20
LEAST_TASK_BYTES = 1 << 20

# Up to this size the assignments of a task are made when buffers are bound: a dispatch saves their
# cost. Beyond it the cost is lost among the bytes, and all the indices together would take memory.
PREPARED_BYTES = 256 << 20

# A block's rows are written to one output after the other, so its input is read once per output:
# it must stay in the second-level cache. Halving 256 KiB made rows of one byte a tenth faster.
# At least 32 rows: with thousands of outputs a block would otherwise be a row or two, and their
# pages, far more than there are TLB entries, would be visited for a few bytes at a time.
BLOCK_BYTES = 128 << 10
BLOCK_ROWS = 32
# Up to this size a split is one block: all of its input stays in the cache. Above, blocks of equal
# outputs of 32 to 64 bytes take half the time; at 1 MiB they gain nothing, and cost a call 30 us.
CACHED_BYTES = 1 << 20

# An indexed assignment costs about as much as this many plain ones, and more when it is made.
FEW_OUTPUTS = 128

# NumPy copies the input of an indexed assignment first if it is inside the window of the outputs.
# That copy takes as long as one more assignment per this many bytes, so that a small input is
# copied and a large one gets assignments for the outputs on each side.
COPIED_BYTES = 1024
# With several threads, no more than this many short assignments: each holds the interpreter lock,
# so threads hinder each other, and the copy is cheaper after all.
FEW_PARTS = 8

# NumPy keeps the interpreter lock through assignments of up to 500 items, whatever their width
# (NPY_BEGIN_THREADS_THRESHOLDED in its source): two threads ran one at a time on 4 to 16 MiB.
# From UNLOCKED_BYTES on such an assignment is made of bytes, which are more than 500: slower per
# byte than wide items, and so not worth it below.
LOCKED_ITEMS = 500
UNLOCKED_BYTES = 32 << 10

# One window covers outputs within the same 32 GiB only. This is a limit of correctness with a large
# margin: NumPy refuses arrays whose strides reach over 2^63 bytes, and indices must stay small.
REACH_BYTES = 1 << 35
