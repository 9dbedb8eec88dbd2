"""Splits of arrays on disk and of dask arrays: .npy, zarr, runs that can be taken up again."""
