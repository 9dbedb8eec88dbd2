"""CuPy's arrays, and memory of CUDA devices in general. Only the driver imports CuPy."""

from typing import Any

from dmlsplit.arrays.adapter import Adapter, Allocation, NewArrays, Shape, allocation_error
from dmlsplit.arrays.array_view import (
    ArrayView,
    device_name,
    device_number_of,
    dtype_of,
    new_array_view,
    type_string,
)
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import cupy_driver as driver


class _Cupy(Adapter):
    """CuPy, whose calls go through the driver."""

    def view(self, array: Any, name: str) -> ArrayView:
        # The CUDA array interface has the same values, but takes several times as long.
        dtype = array.dtype
        memory = array.data
        fields = (
            array,
            memory.ptr,
            array.shape,
            array.strides,
            type_string(dtype),
            dtype.itemsize,
            device_name(memory.device_id),
            False,
        )
        return new_array_view(ArrayView, fields)

    def empty(self, like: ArrayView, new: NewArrays, stream: Stream | None = None) -> Allocation:
        dtype = dtype_of(like.owner, like.type) if new.dtype is None else new.dtype
        remaining = iter(new.shapes)
        try:
            arrays = driver.load().empty(device_number_of(like.device), remaining, dtype)
        except (MemoryError, OverflowError, RuntimeError) as error:
            raise allocation_error(like, new.shapes, remaining, dtype, error) from None
        return arrays, [array.data.ptr for array in arrays]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        return driver.load().strided_view(packed, shape, strides)


CUPY = _Cupy()
