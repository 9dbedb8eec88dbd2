"""Splits inside the transforms and compilers of PyTorch and JAX, and of dask arrays."""
