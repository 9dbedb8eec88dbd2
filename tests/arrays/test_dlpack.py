"""Arrays of libraries without an adapter of their own: DLPack and array interfaces."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import view
from dmlsplit.arrays.adapter import type_name
from tests.support.gpu_arrays import compiled_split


def test_an_object_with_only_numpys_interface_is_viewed() -> None:
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    array_view = view(SimpleNamespace(__array_interface__=array.__array_interface__), "array")
    assert array_view[1:] == view(array, "array")[1:]


@pytest.mark.parametrize(
    ("not_an_array", "message"),
    [
        (
            type("Tracer", (), {"__module__": "jax._src.interpreters"})(),
            r"array has the type jax\.Tracer;.*Fix: dmlsplit\.split, or ",
        ),
        (type("Ref", (), {"__module__": "jax._src.core"})(), r"jax\.Ref;.*Fix: array\[\.\.\.\]$"),
        # `numpy.asarray` would make a scalar of them.
        (b"abcd", r"Fix: numpy\.frombuffer\(\.\.\., 'u1'\)"),
    ],
)
def test_the_error_for_an_object_that_is_no_array_names_the_fix(
    not_an_array: Any, message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        view(not_an_array, "array")


@pytest.mark.parametrize("kind", [3, 4, 10])
def test_dlpack_devices_other_than_cpu_and_cuda_are_refused(kind: int) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return kind, 0

    with pytest.raises(dml.InvalidArgumentError) as error:
        view(Elsewhere(), "array")
    assert str(error.value) == (
        f"array has the type {type_name(Elsewhere())} on DLPack device type {kind}; "
        "it must be on the CPU or a CUDA device. Fix: copy it to the CPU"
    )


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


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The library of `Array`."""
    library = SimpleNamespace(from_dlpack=Array)
    monkeypatch.setitem(sys.modules, "other", library)
    return library


@pytest.mark.parametrize("kind", [Array, Standard])
def test_pieces_are_converted_by_the_librarys_from_dlpack(
    kind: type[Array], other: SimpleNamespace
) -> None:
    op, array = compiled_split((5,), (2, 3), axis=0, device="cpu", kind="INT64"), kind(np.arange(5))
    assert [type(piece) for piece in dml.split(array, 1)] == [kind]
    for pieces in (dml.split(array, (2, 3)), op(array), op(dml.BufferBinding(array))):
        assert [type(piece) for piece in pieces] == [kind] * 2
        assert [piece.array.tolist() for piece in pieces] == [[0, 1], [2, 3, 4]]


def test_pieces_are_arrays_of_numpy_if_the_library_has_no_from_dlpack(
    other: SimpleNamespace,
) -> None:
    del other.from_dlpack
    assert [type(piece) for piece in dml.split(Array(np.arange(5)), (2, 3))] == [np.ndarray] * 2


@pytest.mark.parametrize("device_source", ["device", "CPU"])
def test_an_array_that_its_library_does_not_share_is_refused(
    monkeypatch: pytest.MonkeyPatch, device_source: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not today")

    class Kept:
        __dlpack__ = refuse

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    if device_source == "device":
        monkeypatch.setattr(Kept, "__dlpack_device__", refuse)
    with pytest.raises(dml.InvalidArgumentError) as error:
        dml.split(Kept(), 1)
    assert str(error.value) == (
        f"array, a {type_name(Kept())}, cannot be shared without a copy: not today"
    )


def test_the_fix_for_a_type_that_numpy_lacks_is_another_type() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    array, outs = jnp.arange(4, dtype=jnp.bfloat16), [np.zeros(2, "u2"), np.zeros(2, "u2")]
    fix = "Fix: pass it as a type that NumPy has, such as a view of integers"
    with pytest.raises(dml.InvalidArgumentError, match=f"in DLTensor. {fix}$"):
        dml.split(array, 2, out=outs)
    dml.split(array.view(jnp.uint16), 2, out=outs)
    assert np.concatenate(outs).tolist() == array.view(jnp.uint16).tolist()


@pytest.mark.parametrize("output", [None, [0, 0], b"abcd"])
def test_an_output_that_is_not_an_array_is_not_to_be_converted(output: Any) -> None:
    """A converted copy would be filled in its place."""
    op = compiled_split((4,), (2, 2), axis=0, device="cpu", kind="INT64")
    array, outs = np.arange(4), [output, np.zeros(2, int)]
    for call in (lambda: dml.split(array, 2, out=outs), lambda: op.bind(array, outs)):
        fix = r"Fix: pass an array that can be written\.?$"
        with pytest.raises(dml.InvalidArgumentError, match=f"any library with DLPack. {fix}"):
            call()


def fails(*_: object, **__: object) -> None:
    raise AssertionError("a bug of the library")


MALFORMED: dict[str, dict[str, Any]] = {
    "no __dlpack__": {"__dlpack_device__": lambda self: (1, 0)},
    "no pair": {"__dlpack_device__": lambda self: 1},
    "no numbers": {"__dlpack_device__": lambda self: ("cpu", 0)},
    "a failure": {"__dlpack_device__": lambda self: (1, 0), "__dlpack__": fails},
    "no interface": {"__array_interface__": None},
    "no type": {"__array_interface__": {"shape": (2,), "typestr": "zz", "data": (0, False)}},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_an_array_whose_protocol_fails_is_refused(name: str) -> None:
    array = type("Malformed", (), MALFORMED[name])()
    text = r"array, a \w+\.Malformed, cannot be shared without a copy: [^.]+"
    with pytest.raises(dml.InvalidArgumentError, match=text):
        dml.split(array, 2)


INTERFACE = {"shape": (2, 4), "typestr": "<f4", "data": (4096, False), "version": 3}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shape", (-1, 100), r"shape is (-1, 100) and strides are (400, 4)"),
        ("shape", None, "shape is None; it must be a sequence of integers"),
        ("strides", (1,), "shape is (2, 4) and strides are (1,)"),
        ("strides", ("a", 4), "strides[0] is 'a' (str); it must be an integer"),
        ("data", None, "cannot unpack non-iterable NoneType object"),
        ("data", (0, False), "data is 0 and shape is (2, 4)"),
        ("data", (2**70, False), "data is 1180591620717411303424 and stream is 0"),
        ("data", (-1, False), "data is -1 and stream is 0"),
        ("typestr", "zz", "data type 'zz' not understood"),
        ("typestr", "|O", "typestr is object, for Python objects"),
        ("typestr", None, "typestr has the type NoneType; it must be str"),
        ("stream", "x", "stream is 'x' (str); it must be an integer"),
        ("stream", 2**70, "data is 4096 and stream is 1180591620717411303424"),
    ],
)
def test_a_malformed_cuda_array_interface_is_refused(field: str, value: Any, message: str) -> None:
    array = SimpleNamespace(__cuda_array_interface__=INTERFACE | {field: value})
    with pytest.raises(dml.InvalidArgumentError) as error:
        dml.split(array, 2)
    text = f"shared without a copy: its __cuda_array_interface__ is malformed: {message}"
    assert text in str(error.value)


def test_64_bit_arrays_are_refused_if_jax_would_truncate_them() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with jax.enable_x64(True):
        array = jax.numpy.arange(6) + (1 << 40)
    op = compiled_split((6,), (2, 4), axis=0, device="cpu", kind="INT64")
    with jax.enable_x64(True):
        assert [piece.tolist() for piece in op(array)] == [
            [1 << 40, (1 << 40) + 1],
            array[2:].tolist(),
        ]
    with jax.enable_x64(False), pytest.raises(dml.InvalidArgumentError) as error:
        op(array)
    assert str(error.value) == (
        "array has data type int64, but jaxlib would make pieces of int32. "
        "Fix: with JAX, jax.config.update('jax_enable_x64', True)"
    )


def test_the_error_for_a_lazy_array_advises_a_call_that_loads_only_the_pieces() -> None:
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    zarr_array = zarr.array(np.arange(12.0).reshape(3, 4), chunks=(2, 2))
    fix = r" zarr\.Array;.*Fix: dmlsplit\.split\(dask\.array\.from_zarr\(\.\.\.\), \.\.\.\)"
    with pytest.raises(dml.InvalidArgumentError, match=fix):
        dml.split(zarr_array, 2, 1)
    lazy = dml.split(da.from_zarr(zarr_array), 2, 1)
    assert isinstance(lazy[1], da.Array)
    np.testing.assert_array_equal(lazy[1], zarr_array[:, 2:])


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
