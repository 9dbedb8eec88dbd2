"""Cases for the real DirectML, its answers, and their differences from dmlsplit's rules."""
