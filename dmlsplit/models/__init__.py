"""Finds the splits of model files, without running anything and without NumPy."""
