"""How a split is carried out: its geometry, kernels and time, and a picture of it."""
