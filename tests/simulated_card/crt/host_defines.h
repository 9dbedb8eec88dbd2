// The macros that NVIDIA's API headers expect, for g++. NVIDIA's own file is in the wheel of its
// compiler, which the simulated card does not need otherwise.
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDA_CB
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __specialization_static
#define __location__(word)
