// The words that NVIDIA's API headers expect of the compiler, for g++; its own come with the
// compiler's wheel, which is not needed for anything else.
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
