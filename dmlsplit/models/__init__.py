"""Finds the splits of model files, without running anything and without NumPy.

A *site* is a split that a scan found, and a *gap* the reason why the shape of a value is unknown. A
*lowering* is the split in DirectML's terms. discovery.py chooses the scanner of a file.
"""
