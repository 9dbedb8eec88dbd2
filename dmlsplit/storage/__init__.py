"""Splits of .npy files on disk.

A *block* is the part of an array that is read at once, and a *draft* a piece that is still written
under a hidden name.
"""
