"""DirectML's Split operator, bit for bit, on CUDA and on the CPU."""
