"""`dml.split` of JAX arrays, in jit or not, gives the pieces of `jax.numpy.split` or refuses."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from tests.support.jax_splits import own, random

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

TYPES = """
    bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16
    float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu complex64 complex128
""".split()


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    for one, two in zip(found, wanted, strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Any, int, tuple[int, ...] | int]:
    """An array of any type and rank, an axis counted from either end, and sizes or a count."""
    parts = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=5)))
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(0, 9)) for _ in range(rank)]
    is_count = draw(st.booleans())
    shape[axis] = len(parts) * draw(st.integers(0, 9)) if is_count else sum(parts)
    array = random(tuple(shape), draw(st.sampled_from(TYPES)))
    return array, axis - draw(st.sampled_from([0, rank])), len(parts) if is_count else parts


@given(cuts())
@settings(max_examples=25)
def test_pieces_are_those_of_jax(cut: tuple[Any, int, Any]) -> None:
    array, axis, sizes = cut
    theirs = jnp.split if isinstance(sizes, int) else own

    @jax.jit
    def both(array: Any) -> tuple[list[Any], list[Any]]:
        return dml.split(array, sizes, axis), theirs(array, sizes, axis)

    found, wanted = both(array)
    assert_equal(found, wanted)
    assert_equal(dml.split(array, sizes, axis), wanted)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_whole_bytes_is_split(kind: str) -> None:
    array = random((5, 70), kind)
    assert str(array.dtype) == kind
    wanted = jnp.split(array, [3], 1)
    assert_equal(jax.jit(lambda array: dml.split(array, (3, 67), 1))(array), wanted)
    assert_equal(dml.split(array, (3, 67), 1), wanted)


@pytest.mark.parametrize("kind", ["int64", "uint64", "float64", "complex128"])
def test_64_bits_stay_even_if_jax_makes_no_new_64_bit_arrays(kind: str) -> None:
    array = random((6,), kind)
    with jax.enable_x64(False):
        assert_equal(dml.split(array, (2, 4)), jnp.split(array, [2]))


@pytest.mark.parametrize(
    ("shape", "axis", "sizes"),
    [
        ((3, 4096, 513), 2, (1, 511, 1)),  # by threads
        ((70_000, 3), 1, (1, 1, 1)),
        ((2, 600, 4), 1, (599, 0, 1)),
        ((1200,), 0, (1,) * 1200),
    ],
)
def test_large_arrays_and_many_pieces(shape: Any, axis: int, sizes: Any) -> None:
    array = random(shape, "bfloat16")
    found = jax.jit(lambda array: dml.split(array, sizes, axis))(array)
    ends = list(np.cumsum(sizes)[:-1])
    assert_equal(found, np.split(np.asarray(array), ends, axis))


def assert_equal_inside(function: Any, *arrays: Any) -> None:
    """Compare the results of a function with `dml.split` and with JAX's own split."""
    found, wanted = (jax.tree.leaves(function(split)(*arrays)) for split in (dml.split, own))
    assert_equal(found, wanted)


def test_a_split_inside_a_computation() -> None:
    """XLA knows when its buffers are ready, even for pieces of pieces and results it waits for."""

    def chain(split: Any) -> Any:
        @jax.jit
        def inner(array: Any) -> Any:
            one, two = split(array * 2, (3, 5), 1)
            return one @ two[:3], split(two + 1, (1, 2), 0)

        return jax.jit(lambda array: (inner(array), split(jnp.sin(array), (2, 0, 6), -1)))

    assert_equal_inside(chain, jnp.arange(24.0).reshape(3, 8))


def test_a_split_inside_control_flow() -> None:
    def flow(split: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            one, two = split(row, (4, 4))
            return carry + one, two

        def run(array: Any) -> Any:
            last, rest = jax.lax.scan(step, jnp.zeros(4), array)
            branch = jax.lax.cond(
                last.sum() > 0, lambda x: split(x, (1, 2), 0)[0], lambda x: x[1:2], rest
            )
            return last, rest, branch, jax.lax.map(lambda row: split(row, (1, 7))[1], array)

        return jax.jit(run)

    assert_equal_inside(flow, jnp.arange(24.0).reshape(3, 8))


def test_an_array_that_is_known_while_jax_traces() -> None:
    known = jnp.arange(6.0)
    found = jax.jit(lambda x: [x + piece for piece in dml.split(known, (2, 4))])(1.0)
    assert [piece.tolist() for piece in found] == [[1, 2], [3, 4, 5, 6]]


def test_a_shape_is_traced_once() -> None:
    traced = []

    @jax.jit
    def halves(array: Any) -> Any:
        traced.append(array.shape)
        return dml.split(array, 2)

    for count in (4, 6, 4, 6, 4):
        one, two = halves(jnp.arange(count))
        assert jnp.concatenate([one, two]).tolist() == list(range(count))
    assert traced == [(4,), (6,)]


def test_nothing_is_computed_for_a_shape() -> None:
    found = jax.eval_shape(
        lambda x: dml.split(x, (1, 3), 1), jax.ShapeDtypeStruct((1 << 40, 4), "i1")
    )
    assert [(piece.shape, str(piece.dtype)) for piece in found] == [
        ((1 << 40, 1), "int8"),
        ((1 << 40, 3), "int8"),
    ]


def test_a_donated_array_is_not_a_piece() -> None:
    """A single piece has the array's size, so XLA could give it the array's memory."""
    array = random((512, 300))
    wanted = np.asarray(array).tobytes()
    (whole,) = jax.jit(lambda array: dml.split(array, 1), donate_argnums=0)(array)
    assert np.asarray(whole).tobytes() == wanted


def test_compiled_splits_run_on_many_threads() -> None:
    small, large = random((6, 10)), random((700, 1500))
    split = jax.jit(lambda array: dml.split(array, 2, 1))
    wanted = [np.split(np.asarray(array), 2, 1) for array in (small, large)]

    def call(number: int) -> None:
        assert_equal(split((small, large)[number % 2]), wanted[number % 2])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(64)))


def test_a_piece_is_a_copy() -> None:
    array = random((4, 4))
    (whole,) = jax.jit(lambda array: dml.split(array, 1))(array)
    assert whole.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()


# Refusals.

X = jnp.zeros((3, 4))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: dml.split(x, (1, 2), 1), r"sizes \[1, 2\] add up to 3.*axis 1, of size 4"),
        (lambda x: dml.split(x, 3, 1), "count is 3; it must be at least 1 and divide axis 1"),
        (lambda x: dml.split(x, 2, 2), "axis is 2; it must be from -2 to 1 at rank 2"),
        (lambda x: dml.split(x[0, 0], 1), "a scalar cannot be split"),
        (lambda x: dml.split(x, (x.sum(), 4)), r"sizes\[0\] is .*; it must be an integer"),
        (lambda x: dml.split(x, 1, out=[x]), "out is given, but JAX arrays are immutable"),
        (lambda x: dml.split(x.astype("int4"), 1), "data type int4, with elements of 4 bits"),
        (lambda x: dml.split(x.astype("float4_e2m1fn"), 1), "with elements of 4 bits"),
        (lambda x: dml.split(jax.random.split(jax.random.key(0)), 1), r"jax\.random\.key_data"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_while_jax_traces(
    function: Any, message: str
) -> None:
    batch = jnp.zeros((5, *X.shape))
    for transform, array in ((jax.jit, X), (jax.grad, X), (jax.vmap, batch)):
        with pytest.raises(dml.InvalidArgumentError, match=message):
            transform(function)(array)


@pytest.mark.parametrize("kind", ["int2", "uint4", "float4_e2m1fn"])
def test_elements_without_bytes_of_their_own_are_refused_outside_jit_too(kind: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=f"data type {kind}, with elements of"):
        dml.split(jnp.zeros(4, kind), 2)
    with pytest.raises(dml.InvalidArgumentError, match=r"Fix: split jax\.random\.key_data"):
        dml.split(jax.random.split(jax.random.key(0), 4), 2)


def test_an_array_of_jax_cannot_be_an_output() -> None:
    with pytest.raises(dml.InvalidArgumentError, match="JAX arrays are immutable"):
        dml.split(jnp.zeros(4, "bfloat16"), 1, out=[jnp.zeros(4, "bfloat16")])
    with pytest.raises(dml.InvalidArgumentError, match="read_only is True"):
        dml.split(jnp.zeros(4), 1, out=[jnp.zeros(4)])


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_deleted_array_is_an_error(kind: str) -> None:
    array = jnp.ones(4, kind)
    array.delete()
    with pytest.raises((dml.InvalidArgumentError, RuntimeError), match="deleted"):
        dml.split(array, 2)


# Features that docs/jax.md says are missing.


def test_an_error_in_a_callback_ends_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLSPLIT_NUM_THREADS", "some")
    array = jnp.zeros((7, 11, 13))  # Plans are cached, so no other test has this shape.
    with pytest.raises(jax.errors.JaxRuntimeError, match="DMLSPLIT_NUM_THREADS is 'some'"):
        jax.block_until_ready(jax.jit(lambda array: dml.split(array, (5, 6), 1))(array))


def test_a_compiled_split_cannot_be_exported() -> None:
    from jax import export

    function = jax.jit(lambda array: dml.split(array, 3))
    with pytest.raises(NotImplementedError, match="host_callbacks"):
        export.export(function)(X)
    # An exported function would have to contain the address of a C function.
    with pytest.raises(Exception, match="Unsupported custom call target"):
        jax.ffi.register_ffi_target("dmlsplit", lambda *_: None, platform="cpu")


def test_a_transpose_of_our_own_would_cost_the_batches() -> None:
    from jax.custom_derivatives import linear_call

    def split(array: Any) -> Any:
        return linear_call(lambda _, x: x.reshape(2, 3), lambda _, x: x.reshape(6), (), array)

    with pytest.raises(NotImplementedError, match="Batching rule for 'linear_call'"):
        jax.vmap(split)(jnp.zeros((2, 6)))


def test_a_split_alone_cannot_be_transposed() -> None:
    with pytest.raises(ValueError, match="do not support transpose"):
        jax.linear_transpose(lambda array: dml.split(array, 1), X)([X])


def test_a_split_that_comes_often_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlsplit.frameworks import jax as ours

    calls: list[Any] = []
    split = ours.split
    monkeypatch.setattr(ours, "split", lambda *given: [calls.append(given[1]), split(*given)][1])
    array, other = jnp.arange(14.0).reshape(2, 7), jnp.arange(14).reshape(2, 7)
    for _ in range(ours.OFTEN + 2):
        assert_equal(dml.split(array, (3, 4), 1), own(array, (3, 4), 1))
    assert len(calls) == 2
    assert_equal(dml.split(other, (3, 4), 1), own(other, (3, 4), 1))
    assert_equal(dml.split(array, (4, 3), 1), own(array, (4, 3), 1))
    assert_equal(dml.split(array, [3, 4], 1), own(array, (3, 4), 1))  # read once, never counted
    with pytest.raises(dml.InvalidArgumentError, match="add up"):
        dml.split(array, (3, 3), 1)
    assert len(calls) == 2
