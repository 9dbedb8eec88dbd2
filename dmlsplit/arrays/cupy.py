"""CuPy's arrays, and memory of CUDA devices in general. Only the driver imports CuPy."""

from functools import partial
from typing import Any

from dmlsplit.arrays.adapter import Adapter, Allocation, Shape, allocate, not_allocated
from dmlsplit.arrays.array_view import (
    ArrayView,
    device_name,
    device_number,
    dtype_of,
    type_string,
    view_of,
)
from dmlsplit.arrays.packing import Packing
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import driver


class _Cupy(Adapter):
    def view(self, array: Any, name: str) -> ArrayView:
        # The CUDA array interface has the same values, but takes several times as long.
        dtype, memory = array.dtype, array.data
        typestr, device = type_string(dtype), device_name(memory.device_id)
        address, shape, strides, width = memory.ptr, array.shape, array.strides, dtype.itemsize
        return view_of(ArrayView, (array, address, shape, strides, typestr, width, device, False))

    def empty(self, like: ArrayView, packing: Packing, stream: Stream | None = None) -> Allocation:
        cuda, number = driver.load(), device_number(like.device)
        dtype = dtype_of(like.owner, like.type) if packing.dtype is None else packing.dtype
        if packing.offsets:
            try:
                return cuda.parts(number, packing.shapes, dtype, packing.offsets, packing.size)
            except (MemoryError, RuntimeError) as error:
                raise not_allocated(like, packing.size, error) from None
        arrays = allocate(like, partial(cuda.empty, number), packing.shapes, dtype)
        return arrays, [array.data.ptr for array in arrays]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        return driver.load().strided(packed, shape, strides)


CUPY = _Cupy()
