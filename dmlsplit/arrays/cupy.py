"""CuPy's arrays, and memory of CUDA devices in general. Only the driver imports CuPy."""

from functools import partial
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Shape, allocate, not_allocated, package_of, type_name
from dmlsplit.arrays.array_view import (
    ArrayView,
    device_name,
    device_number,
    type_string,
    view_of,
)
from dmlsplit.arrays.packing import Packing
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides


class _Cupy(Adapter):
    def view(self, array: Any, name: str) -> ArrayView:
        # Its interface would say the same, and take several times as long.
        dtype, memory = array.dtype, array.data
        return view_of(
            (
                array,
                memory.ptr,
                array.shape,
                array.strides,
                type_string(dtype),
                dtype.itemsize,
                device_name(memory.device_id),
                False,
            )
        )

    def empty(self, like: ArrayView, wanted: Packing) -> tuple[list[Any], list[int]]:
        found, number = driver.load(), device_number(like.device)
        kind = _dtype(like.owner, like.type) if wanted.dtype is None else np.dtype(wanted.dtype)
        if wanted.is_shared:
            try:
                return found.parts(number, wanted.shapes, kind, wanted.offsets, wanted.size)
            except (MemoryError, RuntimeError) as error:
                raise not_allocated(like, wanted.size, error) from None
        make = partial(found.empty, number)
        made = allocate(like, make, wanted.shapes, kind)
        return made, [array.data.ptr for array in made]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        return driver.load().strided(packed, shape, strides)

    def packed(self, array: Any, name: str) -> Any:
        if package_of(array) != "cupy":
            raise InvalidArgumentError(
                f"{name} is a {type_name(array)} on a CUDA device; there it must be an array of "
                "CuPy or PyTorch. Fix: cupy.asarray(...)"
            )
        return super().packed(array, name)


def cuda_view(
    array: Any, interface: dict[str, Any], number: int, is_immutable: bool = False
) -> ArrayView:
    """Describe an array on CUDA device `number` by its CUDA array interface."""
    address, read_only = interface["data"]
    dtype = _dtype(array, interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or packed_byte_strides(shape, dtype.itemsize)
    return ArrayView(
        array,
        address,
        shape,
        tuple(strides),
        type_string(dtype),
        dtype.itemsize,
        device_name(number),
        bool(read_only) or is_immutable,
    )


def _dtype(array: Any, typestr: str) -> np.dtype:
    """Return NumPy's type of the elements; the array knows types that have no type string."""
    own = getattr(array, "dtype", None)
    return own if isinstance(own, np.dtype) else np.dtype(typestr)


CUPY = _Cupy()
