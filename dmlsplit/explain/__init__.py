"""How a split runs: its geometry, kernels and expected time, and a picture of it."""
