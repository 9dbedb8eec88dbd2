"""The CUDA engine: planned kernels, compiled from cuda/, launched through CuPy."""
