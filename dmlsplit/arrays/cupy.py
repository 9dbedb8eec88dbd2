"""CuPy's arrays, and memory of CUDA devices in general. Only the driver imports CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Shape, Shapes, allocate, package_of, type_name
from dmlsplit.arrays.array_view import ArrayView, device_number, type_string
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides


class _Cupy(Adapter):
    def view(self, array: Any, name: str) -> ArrayView:
        # The interface names the current stream, which is the one that will be used.
        return cuda_view(array, array.__cuda_array_interface__, array.device.id)

    def empty(self, like: ArrayView, shapes: Shapes, dtype: str | None = None) -> list[Any]:
        number, make = device_number(like.device), driver.load().empty
        kind = _dtype(like.owner, like.type) if dtype is None else np.dtype(dtype)
        return allocate(like, lambda shape, kind: make(number, shape, kind, None, 0), shapes, kind)

    def strided(self, like: ArrayView, shape: Shape, strides: Shape, dtype: str, size: int) -> Any:
        number, make, kind = device_number(like.device), driver.load().empty, np.dtype(dtype)
        (made,) = allocate(
            like, lambda *_: make(number, shape, kind, strides, size), [(size,)], np.dtype("u1")
        )
        return made

    def addresses(self, made: list[Any]) -> list[int]:
        return [int(array.__cuda_array_interface__["data"][0]) for array in made]

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
        bool(read_only) or is_immutable,
        f"cuda:{number}",
    )


def _dtype(array: Any, typestr: str) -> np.dtype:
    """Return NumPy's type of the elements; the array knows types that have no type string."""
    own = getattr(array, "dtype", None)
    return own if isinstance(own, np.dtype) else np.dtype(typestr)


CUPY = _Cupy()
