"""The CUDA engine: planned kernels, compiled from cuda/, launched through CuPy.

engine.py carries out the launches of `planner/` with the kernels of raw_kernels.py. gpus.py has the
figures of known GPUs, nvml.py and libcuda.py have those of this machine, and installation.py says
what is wrong with its CUDA, and the fix.

==============  ================================================================================
plan            the launches of a geometry
program         a compiled geometry, with one variant for each alignment of addresses
variant         the launches of a program for one alignment
launch          one call of a `cupy.RawKernel`, or the planned values for it
form            the constants of a kernel that depend on the layout of outputs, not on their sizes
specialization  the compiled code of a kernel for some constants
entry           an element of a table among a launch's parameters
block           the threads of a launch that share memory
lane            a thread of a warp
unit            the bytes that a kernel moves as one element
vector          16 bytes, the most that one instruction of every supported GPU loads or stores
phase           an address modulo 16
tile            what a block copies: a part of the rows, or in `transpose` of a plane
in flight       bytes that loads have requested and not yet received
wavefront       one pass of a warp's access through the banks of shared memory, or through a cache
==============  ================================================================================

The words of one kernel are in the header of its file in cuda/.
"""
