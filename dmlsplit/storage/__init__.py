"""Splits of arrays on disk (.npy, and zarr in runs that can be resumed) and of dask arrays."""
