"""The splits of peers' own tests, by `dml.split` of each library's arrays, equal those of NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from tests.peers.cuts import CUPY, JAX, NUMPY, PUBLISHED, Cut
from tests.support.each import each

CUTS = [*NUMPY, *CUPY, *JAX]
PARTITIONS = [cut for cut in CUTS if cut.is_partition]


def ramp(cut: Cut) -> np.ndarray:
    return (np.arange(np.prod(cut.shape), dtype="i4") % 100).reshape(cut.shape)


def layouts(library: str, values: np.ndarray) -> list[Any]:
    """Equal values, packed and with other strides, made without CuPy's own kernels."""
    of_library = pytest.importorskip(library).asarray
    return [
        of_library(values),
        of_library(values.T.copy()).T,
        of_library(values.repeat(2, -1))[..., ::2],
        of_library(values[::-1].copy())[::-1],
    ]


def assert_equal(found: list[Any], wanted: list[np.ndarray], kind: type) -> None:
    for one, two in zip(found, wanted, strict=True):
        assert (type(one), one.dtype, one.shape) == (kind, two.dtype, two.shape)
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("cut", [*CUTS, *PUBLISHED])
def test_counts_and_positions_agree_with_array_split(library: str, cut: Cut) -> None:
    wanted = np.array_split(ramp(cut), cut.at, cut.axis)
    for array in layouts(library, ramp(cut)):
        if not cut.is_partition:
            with pytest.raises(dml.InvalidArgumentError, match="they must be at least 0 and add"):
                dml.split(array, cut.sizes(wanted), cut.axis)
            continue
        assert_equal(dml.split(array, cut.sizes(wanted), cut.axis), wanted, type(array))
        is_count = isinstance(cut.at, int)
        if is_count and not cut.shape[cut.axis] % cut.at:
            assert_equal(dml.split(array, cut.at, cut.axis), wanted, type(array))
        elif is_count:
            with pytest.raises(dml.InvalidArgumentError, match=rf"^count is {cut.at}; it must"):
                dml.split(array, cut.at, cut.axis)


@pytest.mark.parametrize("cut", PARTITIONS)
@each(chunk=[1, 3, -1, "uneven"])
def test_dask_pieces_equal_those_of_numpy_in_type_chunks_and_values(
    cut: Cut, chunk: int | str
) -> None:
    """Dask's own `assert_eq` compares them."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    values, chunks = ramp(cut), chunk
    if chunk == "uneven":
        chunks = tuple((n // 3, n - n // 3) if n > 2 else (n,) for n in cut.shape)
    wanted = np.array_split(values, cut.at, cut.axis)
    found = dml.split(da.from_array(values, chunks), cut.sizes(wanted), cut.axis)
    for one, two in zip(found, wanted, strict=True):
        da.utils.assert_eq(one, two, scheduler="sync")


@pytest.mark.parametrize("transform", ["call", "jit", "vmap"])
@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut.is_inside])  # JAX refuses others
def test_pieces_equal_those_of_jax_in_eager_compiled_and_vmapped_calls(
    transform: str, cut: Cut
) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    made: Callable[[Any], Any] = getattr(jax, transform, lambda function: function)
    array = jax.numpy.asarray(ramp(cut), "f4")
    sizes = cut.sizes(jax.numpy.array_split(array, cut.at, cut.axis))
    if transform == "vmap":
        array = jax.numpy.stack([array, -array])
    found = made(lambda array: dml.split(array, sizes, cut.axis))(array)
    theirs = made(lambda array: jax.numpy.array_split(array, cut.at, cut.axis))(array)
    for one, two in zip(found, theirs, strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype, one.sharding) == (two.shape, two.dtype, two.sharding)
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


@pytest.mark.parametrize("cut", PARTITIONS)
def test_pieces_of_strict_array_api_arrays_equal_those_of_numpy(cut: Cut) -> None:
    xp = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    info, wanted = xp.__array_namespace_info__(), np.array_split(ramp(cut), cut.at, cut.axis)
    for device in info.devices():
        for dtype in info.dtypes(device=device).values():
            array = xp.astype(xp.asarray(ramp(cut), device=device), dtype)
            found = dml.split(array, cut.sizes(wanted), cut.axis)
            for one, two in zip(found, wanted, strict=True):
                assert (type(one), one.dtype, one.device) == (type(array), dtype, device)
                assert one.shape == two.shape
                assert bool(xp.all(one == xp.astype(xp.asarray(two, device=device), dtype)))


# Calls that must throw according to published tests.
@pytest.mark.parametrize(
    ("shape", "cut", "axis"),
    [
        ((), 1, 0),
        ((2, 6), 2, 2),
        ((2, 6), (0,), 1),
        ((2, 6), 0, 1),
        ((2, 5), 2, 1),
        ((2, 5), (2,), 1),
        ((2, 6), (2, 2, 3), 1),
        ((4, 4), (3, -1), 0),
        ((2, 2), (1, 2), 0),
        ((4, 4), (-1, -2), 0),
    ],
)
def test_arguments_that_published_tests_refuse_are_refused(
    shape: tuple[int, ...], cut: int | tuple[int, ...], axis: int
) -> None:
    with pytest.raises(dml.InvalidArgumentError):
        dml.split(np.zeros(shape, np.float32), cut, axis)
