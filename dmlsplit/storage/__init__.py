"""Splits of arrays on disk: .npy files, and zarr arrays through dask."""
