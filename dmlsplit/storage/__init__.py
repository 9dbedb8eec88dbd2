"""Splits of .npy files on disk."""
