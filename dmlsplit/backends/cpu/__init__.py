"""The CPU engine: NumPy assignments between windows on memory, on several threads."""
