"""Reads and writes files: atomic writes, parsed documents, .npy headers, wrong kinds of files."""
