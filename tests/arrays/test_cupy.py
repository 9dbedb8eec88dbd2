"""CuPy arrays, faked with only the attributes that are used; CuPy is not needed."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import CUPY, to_device, to_host, view
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.arrays.dlpack import cuda_view
from tests.support.fake_cuda import FakeArray, FakeDriver


class Array(FakeArray):
    """An array in fake device memory, as CuPy describes one."""

    __module__ = "cupy"
    # The library looks for this attribute on the type.
    __cuda_array_interface__: Any = None

    def __init__(self, made: FakeArray, device: int) -> None:
        super().__init__(made.host, device, stream=77)
        self.flags = made.host.flags


def test_viewing_an_array_does_not_call_the_driver(fake: FakeDriver) -> None:
    array = Array(fake.array(np.zeros((3, 4), "i2")[:, ::2]), 1)
    seen = view(array, "array")
    assert seen.owner is array
    assert seen.address == array.__cuda_array_interface__["data"][0]
    assert (seen.shape, seen.strides, seen.type, seen.item_bytes) == ((3, 2), (8, 4), "<i2", 2)
    assert (seen.device, seen.read_only) == ("cuda:1", False)
    assert fake.calls == []


def test_new_arrays_are_on_the_device_of_like(fake: FakeDriver) -> None:
    like = view(Array(fake.array(np.zeros(3, "f4")), 1), "array")
    (packed,), (address,) = CUPY.empty(like, NewArrays(((2, 3),)))
    (store,), _ = CUPY.empty(like, NewArrays(((6,),), np.dtype("i2")))
    strided = CUPY.strided(store, (2, 3), (2, 4))
    seen = cuda_view(packed, "packed", 1)
    assert (seen.address, seen.shape, seen.strides, seen.type) == (address, (2, 3), (12, 4), "<f4")
    assert (strided.shape, strided.strides, strided.dtype) == ((2, 3), (2, 4), np.int16)
    assert packed.data.device_id == strided.data.device_id == 1
    assert fake.calls == ["allocate"] * 2


def test_an_array_is_copied_to_a_device_and_back(fake: FakeDriver) -> None:
    host = np.arange(6)
    there = to_device(host, "cuda:1")
    assert view(there, "array").device == "cuda:1"
    assert to_host(there).tolist() == host.tolist()
    assert to_device(host, "cpu") is to_host(host) is host


def test_too_little_device_memory_is_reported(fake: FakeDriver) -> None:
    fake.memory_bytes = 11
    like = view(Array(fake.array(np.zeros(3, "f4")), 1), "array")
    said = "^an output cannot be allocated on cuda:1: 12 bytes are needed, 11 are free$"
    with pytest.raises(dml.OutOfMemoryError, match=said):
        CUPY.empty(like, NewArrays(((2,), (3,))))


def test_new_arrays_keep_a_structured_type(fake: FakeDriver) -> None:
    kind = np.dtype([("a", "u1"), ("b", "<f4")])
    seen = cuda_view(fake.array(np.zeros(3, kind)), "array", 0)
    assert seen.type == str(kind)
    made, _ = CUPY.empty(seen, NewArrays(((3,), (2,))))
    assert {each.dtype for each in made} == {kind}
