"""CuPy's arrays, and memory of CUDA devices in general. Only the driver imports CuPy."""

from functools import partial
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Made, Shape, allocate, not_allocated, type_name
from dmlsplit.arrays.array_view import ArrayView, device_name, device_number, type_string, view_of
from dmlsplit.arrays.packing import Packing
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import InvalidArgumentError


class _Cupy(Adapter):
    def view(self, array: Any, name: str) -> ArrayView:
        # The CUDA array interface has the same values, but takes several times as long.
        dtype, memory = array.dtype, array.data
        kind, device = type_string(dtype), device_name(memory.device_id)
        at, shape, strides, width = memory.ptr, array.shape, array.strides, dtype.itemsize
        return view_of(ArrayView, (array, at, shape, strides, kind, width, device, False))

    def empty(self, like: ArrayView, wanted: Packing, stream: Stream | None = None) -> Made:
        found, number = driver.load(), device_number(like.device)
        kind = dtype_of(like.owner, like.type) if wanted.dtype is None else wanted.dtype
        if wanted.offsets:
            try:
                return found.parts(number, wanted.shapes, kind, wanted.offsets, wanted.size)
            except (MemoryError, RuntimeError) as error:
                raise not_allocated(like, wanted.size, error) from None
        made = allocate(like, partial(found.empty, number), wanted.shapes, kind)
        return made, [array.data.ptr for array in made]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        return driver.load().strided(packed, shape, strides)

    def packed(self, array: Any, name: str) -> Any:
        if not type_name(array).startswith("cupy."):
            raise InvalidArgumentError(
                f"{name} is a {type_name(array)} on a CUDA device; there it must be a CuPy "
                "or PyTorch array. Fix: cupy.asarray(...)"
            )
        return super().packed(array, name)


def dtype_of(array: Any, typestr: str) -> np.dtype:
    """The type of an array with this type string."""
    # Some types have no type string; only the array knows them.
    own = getattr(array, "dtype", None)
    return own if isinstance(own, np.dtype) else np.dtype(typestr)


CUPY = _Cupy()
