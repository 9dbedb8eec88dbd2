"""Thresholds that only a GPU can tell, and that none has told yet.

They are estimates, from counts of instructions and sectors. `python -m benchmarks gpu --planner`
times splits on both sides of each of them, planned with either choice, and prints a table to
correct this one by.
"""

# Outputs of this width in bytes, or more, go to `rows` rather than to `tile`.
WIDE_BYTES = 96
# For more equal outputs than this, a block of `rows` finds its output by a division. For fewer,
# searching the tables is about as fast, and needs no other specialization.
FEW_OUTPUTS = 16
# Rows that begin or end inside a vector are copied by `strided` as vectors, and unit by unit at
# their edges, if they have at least this many units. docs/design/017-transposes.md names splits
# that lose.
MIN_EDGED_UNITS = 48
# The most vectors in a window from which `strided` fills all outputs, if threads store from
# registers.
MAX_DIRECT = 8
# The most vectors in such a window if items go through shared memory before they are stored.
MAX_STAGED = 22
# Rows of elements go to `tile` if they would fill less than this of the tiles of `transpose`, which
# then loses in wavefronts what it saves in instructions.
MIN_FILL = 0.6
