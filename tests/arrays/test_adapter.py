"""The type of an array chooses its adapter, and choosing imports nothing."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import CUPY, NUMPY, TORCH, adapter_of, is_native, view
from dmlsplit.arrays.adapter import NewArrays


def test_each_library_has_an_adapter(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    class Tensor:
        pass

    class Parameter(Tensor):
        pass

    class Stream:
        __module__ = "cupy.cuda"

    class Array:
        __module__ = "cupy"
        __cuda_array_interface__ = None

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    assert adapter_of(np.zeros(1)) is NUMPY
    assert adapter_of(np.memmap(tmp_path / "x", np.uint8, "w+", shape=(1,))) is NUMPY
    assert adapter_of(Tensor()) is adapter_of(Parameter()) is TORCH
    assert adapter_of(Array()) is CUPY
    assert all(is_native(array) for array in (np.zeros(1), Tensor(), Parameter(), Array()))
    assert not any(is_native(array) for array in (Stream(), np.float32(1), [1]))


def test_viewing_a_view_returns_the_view_itself() -> None:
    array_view = view(np.zeros(4), "array")
    assert view(array_view, "array") is array_view


@pytest.mark.parametrize("bits", [62, 64])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_names_the_allocation_that_failed(failing: int, bits: int) -> None:
    shapes = [(3,), (5,), (7, 2)]
    shapes[failing] = (1 << 45, 1 << bits - 47)
    with pytest.raises(dml.OutOfMemoryError, match=f"an output of {1 << bits} bytes does not fit"):
        NUMPY.empty(view(np.zeros(1, "f4"), "array"), NewArrays(tuple(shapes)))
