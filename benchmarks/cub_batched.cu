// CUB DeviceMemcpy::Batched as a split: one range per (row, output). The ranges are computed on
// the fly from a small table per output, so that no list of pointers is read from memory.
#include <cstdint>
#include <cub/device/device_memcpy.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

struct Table {
  const char* source;
  char* const* targets;          // outputs entries, on the device
  const std::int64_t* offsets;   // bytes, likewise
  const std::int64_t* widths;    // bytes, likewise
  std::int64_t pitch;            // bytes of an input row
  std::uint32_t outputs;
};

struct Source {
  Table t;
  __host__ __device__ const void* operator()(std::uint32_t i) const {
    return t.source + (i / t.outputs) * t.pitch + t.offsets[i % t.outputs];
  }
};
struct Target {
  Table t;
  __host__ __device__ void* operator()(std::uint32_t i) const {
    return t.targets[i % t.outputs] + (i / t.outputs) * t.widths[i % t.outputs];
  }
};
struct Width {
  Table t;
  __host__ __device__ std::uint32_t operator()(std::uint32_t i) const {
    return static_cast<std::uint32_t>(t.widths[i % t.outputs]);
  }
};

// With temp == nullptr only *temp_bytes is written.
extern "C" int split_batched(void* temp, std::size_t* temp_bytes, const void* source,
                             void* const* targets, const std::int64_t* offsets,
                             const std::int64_t* widths, std::int64_t pitch,
                             std::uint32_t rows, std::uint32_t outputs, cudaStream_t stream) {
  Table t{static_cast<const char*>(source), reinterpret_cast<char* const*>(targets), offsets,
          widths, pitch, outputs};
  thrust::counting_iterator<std::uint32_t> first(0);
  return cub::DeviceMemcpy::Batched(temp, *temp_bytes,
                                    thrust::make_transform_iterator(first, Source{t}),
                                    thrust::make_transform_iterator(first, Target{t}),
                                    thrust::make_transform_iterator(first, Width{t}),
                                    rows * outputs, stream);
}
