"""Arrays of libraries without an adapter of their own: DLPack and array interfaces."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import view
from dmlsplit.arrays.adapter import type_name
from dmlsplit.arrays.dlpack import cuda_view
from tests.support.fake_cuda import FakeArray, FakeDriver
from tests.support.gpu_arrays import operator


def bare(array: FakeArray, **changes: Any) -> Any:
    """An object that has only the array interface, which does not name the device."""
    return SimpleNamespace(__cuda_array_interface__={**array.__cuda_array_interface__, **changes})


def test_a_cuda_array_is_viewed_at_its_own_address(fake: FakeDriver) -> None:
    array = fake.array(np.zeros((3, 4), "i2")[:, ::2], device=1)
    seen = view(array, "array")
    assert (seen.shape, seen.strides, seen.type, seen.item_bytes) == ((3, 2), (8, 4), "<i2", 2)
    assert seen.address == array.__cuda_array_interface__["data"][0]
    assert (seen.device, seen.read_only) == ("cuda:1", False)


def test_an_interface_without_strides_means_a_packed_array(fake: FakeDriver) -> None:
    seen = view(bare(fake.array(np.zeros((3, 4), "i2")), strides=None), "array")
    assert seen.strides == (8, 2)
    assert seen.device == "cuda:1"  # The driver knows the device of the address.


def test_the_current_stream_waits_for_the_stream_of_a_foreign_array(fake: FakeDriver) -> None:
    foreign = bare(fake.array(np.zeros(4)), stream=77)
    view(foreign, "array")
    assert "1 waits for 77" in fake.calls
    fake.calls.clear()
    ours = {"__module__": "cupy", "dtype": np.dtype("f8"), **vars(foreign)}
    cuda_view(type("ndarray", (), ours)(), "array", 1)
    assert not fake.calls  # CuPy's current stream is the one that splits.


def test_an_address_that_no_device_owns_is_refused(fake: FakeDriver) -> None:
    lost = bare(fake.array(np.zeros(4)), data=(0, False))
    with pytest.raises(dml.InvalidArgumentError) as caught:
        view(lost, "array")
    assert str(caught.value) == (
        "array claims to be on a CUDA device, but no device owns its address 0x0"
    )


def test_an_object_with_only_numpys_interface_is_viewed() -> None:
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    seen = view(SimpleNamespace(__array_interface__=array.__array_interface__), "array")
    assert seen[1:] == view(array, "array")[1:]


@pytest.mark.parametrize("is_jax", [False, True])
def test_arrays_of_jax_or_without_an_interface_go_through_dlpack(
    fake: FakeDriver, is_jax: bool
) -> None:
    """JAX's interface does not name a stream, so DLPack waits; its arrays are never written."""
    alias = fake.array(np.zeros(4, "f4"))
    parts = {"alias": alias, "__dlpack_device__": lambda _: (2, 0)}
    if is_jax:
        interface = alias.__cuda_array_interface__
        parts |= {"__module__": "jaxlib", "__cuda_array_interface__": interface}
    seen = view(type("Array", (), parts)(), "array")
    assert (seen.owner, seen.read_only) == (alias, is_jax)
    assert fake.calls == ["from_dlpack"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            type("Tracer", (), {"__module__": "jax._src.interpreters"})(),
            r"array is a jax\.Tracer;.*Fix: dmlsplit\.split, or ",
        ),
        (type("Ref", (), {"__module__": "jax._src.core"})(), r"jax\.Ref;.*Fix: array\[\.\.\.\]$"),
        # `numpy.asarray` would make a scalar of them.
        (b"abcd", r"Fix: numpy\.frombuffer\(\.\.\., 'u1'\)"),
    ],
)
def test_the_error_for_an_object_that_is_no_array_names_the_fix(given: Any, message: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        view(given, "array")


def test_a_masked_array_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="array is masked"):
        view(bare(fake.array(np.zeros(4)), mask=object()), "array")


def test_read_only_device_memory_cannot_be_an_output(fake: FakeDriver) -> None:
    source, out = fake.array(np.zeros(4)), fake.array(np.zeros(4))
    address, _ = out.__cuda_array_interface__["data"]
    out.__cuda_array_interface__["data"] = (address, True)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\]: read_only is True"):
        dml.split(source, 1, out=[out])
    assert not fake.launched


def test_overlap_is_found_in_device_memory(fake: FakeDriver) -> None:
    store = fake.array(np.zeros((4, 8), "f4"))
    source = fake.array(np.zeros((4, 8), "f4"))
    left, right = (FakeArray(store.host[:, s], 0) for s in (slice(0, 4), slice(3, 7)))
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        dml.split(source, 2, 1, out=[left, right])
    apart = FakeArray(store.host[:, 4:], 0)
    dml.split(source, 2, 1, out=[left, apart])
    assert len(fake.launched) == 1


@pytest.mark.parametrize("kind", [3, 4, 10])
def test_dlpack_devices_other_than_cpu_and_cuda_are_refused(kind: int) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return kind, 0

    with pytest.raises(dml.InvalidArgumentError) as caught:
        view(Elsewhere(), "array")
    assert str(caught.value) == (
        f"array is a {type_name(Elsewhere())} on DLPack device type {kind}; "
        "it must be on the CPU or a CUDA device"
    )


@pytest.mark.parametrize("is_binding", [False, True])
def test_an_operator_waits_once_for_the_stream_of_its_input(
    fake: FakeDriver, is_binding: bool
) -> None:
    op = operator((4,), (1, 3), 0, "cuda:1")
    source = bare(fake.array(np.zeros(4, "f4"), device=1), stream=77)
    fake.calls.clear()
    found = op(dml.BufferBinding(source) if is_binding else source, stream=5)
    assert fake.calls.count("device_of") == fake.calls.count("1 waits for 77") == 1
    assert fake.calls.index("enter 5") < fake.calls.index("1 waits for 77")
    assert fake.calls.index("1 waits for 77") < fake.calls.index("leave 5")
    assert [piece.shape for piece in found] == [(1,), (3,)]


def test_pieces_are_converted_by_the_librarys_from_dlpack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Array:
        """The minimum that DLPack requires of an array, in a library called ``other``."""

        __module__ = "other.arrays"

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    class Standard(Array):
        """An array of the array API standard, which names its namespace."""

        def __array_namespace__(self) -> Any:
            return SimpleNamespace(from_dlpack=Standard)

    module = SimpleNamespace(from_dlpack=Array)
    monkeypatch.setitem(sys.modules, "other", module)
    op = operator((5,), (2, 3), 0, "cpu", "INT64")
    for kind in (Array, Standard):
        given = kind(np.arange(5))
        assert [type(piece) for piece in dml.split(given, 1)] == [kind]
        for found in (dml.split(given, (2, 3)), op(given), op(dml.BufferBinding(given))):
            assert [(type(piece), piece.array.tolist()) for piece in found] == [
                (kind, [0, 1]),
                (kind, [2, 3, 4]),
            ]
    del module.from_dlpack
    assert [type(piece) for piece in dml.split(Array(np.arange(5)), (2, 3))] == [np.ndarray] * 2


@pytest.mark.parametrize("asked", ["device", "CPU", "CUDA"])
def test_an_array_that_its_library_does_not_share_is_refused(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not today")

    class Kept:
        __dlpack__ = refuse

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1 if asked == "CPU" else 2), 0

    if asked == "device":
        monkeypatch.setattr(Kept, "__dlpack_device__", refuse)
    monkeypatch.setattr(fake, "from_dlpack", refuse)
    with pytest.raises(dml.InvalidArgumentError) as caught:
        dml.split(Kept(), 1)
    assert str(caught.value) == (
        f"array, a {type_name(Kept())}, cannot be shared without a copy: not today. "
        "Fix: view its bytes as an integer type of the same size"
    )


def test_a_lost_device_is_reported_with_cudas_error(fake: FakeDriver) -> None:
    class CudaError(RuntimeError):
        status = 700

    class Array:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise CudaError

    with pytest.raises(dml.DmlError, match="array cannot be shared on cuda:None"):
        dml.split(Array(), 1)


def test_64_bit_arrays_are_refused_if_jax_would_truncate_them() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with jax.enable_x64(True):
        array = jax.numpy.arange(6) + (1 << 40)
    op = operator((6,), (2, 4), 0, "cpu", "INT64")
    with jax.enable_x64(True):
        assert [piece.tolist() for piece in op(array)] == [
            [1 << 40, (1 << 40) + 1],
            array[2:].tolist(),
        ]
    with jax.enable_x64(False), pytest.raises(dml.InvalidArgumentError) as caught:
        op(array)
    assert str(caught.value) == (
        "array has data type int64, but jaxlib would make pieces of int32. "
        "Fix: with JAX, jax.config.update('jax_enable_x64', True)"
    )


def test_the_error_for_a_lazy_array_advises_a_call_that_loads_only_the_pieces() -> None:
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    stored = zarr.array(np.arange(12.0).reshape(3, 4), chunks=(2, 2))
    fix = (
        r"array is a zarr\.Array;.*Fix: dmlsplit\.split\(dask\.array\.from_zarr\(\.\.\.\), \.\.\.\)"
    )
    with pytest.raises(dml.InvalidArgumentError, match=fix):
        dml.split(stored, 2, 1)
    lazy = dml.split(da.from_zarr(stored), 2, 1)
    assert isinstance(lazy[1], da.Array)
    np.testing.assert_array_equal(lazy[1], stored[:, 2:])


@pytest.mark.parametrize("kind", ["DataArray", "Variable"])
def test_an_xarray_object_is_refused_and_its_data_can_be_split(kind: str) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    lazy = pytest.importorskip("dask.array", reason="Dask is not installed").arange(6, chunks=2)
    wrapped = xarray.DataArray(lazy, dims="x")
    wrapped = wrapped if kind == "DataArray" else wrapped.variable
    with pytest.raises(dml.InvalidArgumentError, match=rf"xarray\.{kind};.*array in its \.data"):
        dml.split(wrapped, 2)
    pieces = dml.split(wrapped.data, 2)
    assert type(pieces[0]) is type(lazy)
    assert pieces[1].compute().tolist() == [3, 4, 5]
