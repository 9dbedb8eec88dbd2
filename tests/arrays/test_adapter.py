"""The type of an array chooses its adapter, and choosing imports nothing."""

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import CUPY, NUMPY, TORCH, adapter_of, is_native, view
from dmlsplit.arrays.adapter import allocate
from dmlsplit.arrays.packing import Packing
from tests.support.gpu_arrays import operator


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


def test_a_view_is_not_viewed_again() -> None:
    seen = view(np.zeros(4), "array")
    assert view(seen, "array") is seen


class _Storage:
    """Memory that knows its size."""

    def __init__(self, size: int) -> None:
        self.nbytes = lambda: size


class _Packed(np.ndarray):
    """A tensor whose library packs two elements in a byte, but computes `nbytes` from the type."""

    def untyped_storage(self) -> _Storage:
        return _Storage(self.nbytes // 2)


class _Small(np.ndarray):
    """An array with fewer elements than requested."""


@pytest.mark.parametrize("kind", [_Packed, _Small])
def test_no_byte_is_written_beyond_what_was_allocated(
    kind: type[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = np.zeros(4096, np.uint8)

    class Library(type(NUMPY)):  # type: ignore[misc]
        allocated_bytes = (TORCH if kind is _Packed else NUMPY).allocated_bytes

        def empty(self, like: Any, wanted: Packing, stream: Any = None) -> Any:
            part = memory.view(kind)[: 1 if kind is _Small else 300]
            return [part] * len(wanted.shapes), [part.ctypes.data] * len(wanted.shapes)

    # More runs than `slices` accepts, so that the engine writes.
    source = np.ones((300, 4), np.uint8)
    monkeypatch.setattr("dmlsplit.prepared_split.adapter_of", lambda _: Library())
    with pytest.raises(dml.InvalidArgumentError, match=r"an output of 600 bytes was given only"):
        dml.split(source, (0, 1, 2, 1), 1)
    assert not memory.any()
    op = operator(source.shape, (1, 2, 1), 1, "cpu", "UINT8")
    with pytest.raises(dml.InvalidArgumentError, match=r"an output of 600 bytes was given only"):
        op(source)
    assert not memory.any()


def test_types_that_torch_packs_are_noticed() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # They are deprecated.
        made = torch.empty(8, dtype=torch.quint4x2)
    assert (made.nbytes, TORCH.allocated_bytes(made)) == (8, 4)
    assert TORCH.allocated_bytes(torch.empty(8)) == 32
    assert NUMPY.allocated_bytes(np.empty(8, np.float32)) == 32


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_names_the_allocation_that_failed(failing: int) -> None:
    shapes = [(3,), (5,), (7, 2)]

    def make(rest: Any, dtype: np.dtype) -> list[np.ndarray]:
        next(shape for shape in rest if shape == shapes[failing])
        raise MemoryError

    wanted = [12, 20, 56][failing]
    with pytest.raises(dml.OutOfMemoryError, match=f"an output of {wanted} bytes does not fit"):
        allocate(view(np.zeros(1), "array"), make, shapes, np.dtype("f4"))
