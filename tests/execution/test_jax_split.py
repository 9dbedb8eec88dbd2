"""`dml.split` of JAX arrays, in jit or not, gives the pieces of `jax.numpy.split` or refuses."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.execution import jax as ours
from tests.support.jax_splits import lowered, own, random

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

TYPES = """
    bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16
    float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu complex64 complex128
""".split()


@pytest.fixture(autouse=True, scope="module", params=["callback", "XLA"])
def _lowering(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with the engine as a callback, and with the slices of XLA."""
    with lowered(request.param), jax.enable_x64(True):
        yield


def assert_equal(pieces: list[Any], expected_pieces: list[Any]) -> None:
    for piece, expected in zip(pieces, expected_pieces, strict=True):
        assert isinstance(piece, jax.Array)
        assert (piece.shape, piece.dtype) == (expected.shape, expected.dtype)
        assert np.asarray(piece).tobytes() == np.asarray(expected).tobytes()


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
    jax_split = jnp.split if isinstance(sizes, int) else own

    @jax.jit
    def both_splits(array: Any) -> tuple[list[Any], list[Any]]:
        return dml.split(array, sizes, axis), jax_split(array, sizes, axis)

    pieces, expected_pieces = both_splits(array)
    assert_equal(pieces, expected_pieces)
    assert_equal(dml.split(array, sizes, axis), expected_pieces)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_whole_bytes_is_split(kind: str) -> None:
    array = random((5, 70), kind)
    assert str(array.dtype) == kind
    expected_pieces = jnp.split(array, [3], 1)
    assert_equal(jax.jit(lambda array: dml.split(array, (3, 67), 1))(array), expected_pieces)
    assert_equal(dml.split(array, (3, 67), 1), expected_pieces)


@pytest.mark.parametrize("kind", ["int64", "uint64", "float64", "complex128"])
def test_64_bit_arrays_keep_their_type_while_x64_is_disabled(kind: str) -> None:
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
def test_large_arrays_and_many_pieces_are_split_like_numpy(
    shape: Any, axis: int, sizes: Any
) -> None:
    array = random(shape, "bfloat16")
    pieces = jax.jit(lambda array: dml.split(array, sizes, axis))(array)
    ends = list(np.cumsum(sizes)[:-1])
    assert_equal(pieces, np.split(np.asarray(array), ends, axis))


def assert_equal_inside(function: Any, *arrays: Any) -> None:
    """Compare the results of a function with `dml.split` and with JAX's own split."""
    results, expected_results = (
        jax.tree.leaves(function(split)(*arrays)) for split in (dml.split, own)
    )
    assert_equal(results, expected_results)


def test_a_split_inside_a_computation_agrees_with_jax() -> None:
    """XLA knows when its buffers are ready, even for pieces of pieces and results it waits for."""

    def chain(split: Any) -> Any:
        @jax.jit
        def inner(array: Any) -> Any:
            left, right = split(array * 2, (3, 5), 1)
            return left @ right[:3], split(right + 1, (1, 2), 0)

        return jax.jit(lambda array: (inner(array), split(jnp.sin(array), (2, 0, 6), -1)))

    assert_equal_inside(chain, jnp.arange(24.0).reshape(3, 8))


def test_a_split_inside_control_flow_agrees_with_jax() -> None:
    def flow(split: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            left, right = split(row, (4, 4))
            return carry + left, right

        def run(array: Any) -> Any:
            total, halves = jax.lax.scan(step, jnp.zeros(4), array)
            branch = jax.lax.cond(
                total.sum() > 0, lambda x: split(x, (1, 2), 0)[0], lambda x: x[1:2], halves
            )
            return total, halves, branch, jax.lax.map(lambda row: split(row, (1, 7))[1], array)

        return jax.jit(run)

    assert_equal_inside(flow, jnp.arange(24.0).reshape(3, 8))


def test_a_constant_array_is_split_while_jax_traces() -> None:
    constant = jnp.arange(6.0)
    pieces = jax.jit(lambda x: [x + piece for piece in dml.split(constant, (2, 4))])(1.0)
    assert [piece.tolist() for piece in pieces] == [[1, 2], [3, 4, 5, 6]]


def test_sizes_may_be_a_concrete_jax_array() -> None:
    assert [len(piece) for piece in dml.split(jnp.zeros((12, 2)), jnp.array([2, 10]))] == [2, 10]


def test_eval_shape_computes_no_piece() -> None:
    huge = jax.ShapeDtypeStruct((1 << 40, 4), "i1")
    shapes = jax.eval_shape(lambda x: dml.split(x, (1, 3), 1), huge)
    assert [piece.shape for piece in shapes] == [(1 << 40, 1), (1 << 40, 3)]
    assert {str(piece.dtype) for piece in shapes} == {"int8"}


def test_the_piece_of_a_donated_array_has_its_bytes() -> None:
    """A single piece has the array's size, so XLA could give it the array's memory."""
    array = random((512, 300))
    expected_bytes = np.asarray(array).tobytes()
    (piece,) = jax.jit(lambda array: dml.split(array, 1), donate_argnums=0)(array)
    assert np.asarray(piece).tobytes() == expected_bytes


def test_a_piece_is_a_copy() -> None:
    array = random((4, 4))
    (piece,) = jax.jit(lambda array: dml.split(array, 1))(array)
    assert piece.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()


MATRIX = jnp.zeros((3, 4))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: dml.split(x, (1, 2), 1),
            r"sizes \[1, 2\] add up to 3; .*add up to 4, the size of axis 1",
        ),
        (
            lambda x: dml.split(x, 3, 1),
            "count is 3; it must be at least 1 and divide 4, the size of axis 1",
        ),
        (lambda x: dml.split(x, 2, 2), "axis is 2; it must be from -2 to 1 at rank 2"),
        (lambda x: dml.split(x[0, 0], 1), "the input has 0 dimensions"),
        (lambda x: dml.split(x, (x.sum(), 4)), r"sizes\[0\] is .*; it must be an integer"),
        (lambda x: dml.split(x, x.sum()), "must be an integer"),
        (lambda x: dml.split(x, 1, out=[x]), "out is given, but JAX arrays are immutable"),
        (lambda x: dml.split((y := x.astype("bfloat16")), 1, out=[y]), "arrays are immutable"),
        (lambda x: dml.split(x.astype("int4"), 1), "data type int4, with elements of 4 bits"),
        (lambda x: dml.split(x.astype("float4_e2m1fn"), 1), "with elements of 4 bits"),
        (lambda x: dml.split(x.astype("uint2"), 1), "with elements of 2 bits"),
        (lambda x: dml.split(jax.random.split(jax.random.key(0)), 1), r"jax\.random\.key_data"),
    ],
)
def test_invalid_arguments_are_refused_in_every_transform(function: Any, message: str) -> None:
    batch = jnp.zeros((5, *MATRIX.shape))
    for transform, array in (
        (jax.jit, MATRIX),
        (jax.grad, MATRIX),
        (jax.vmap, batch),
        (lambda f: f, MATRIX),
    ):
        with pytest.raises(dml.InvalidArgumentError, match=message):
            transform(function)(array)


def test_pieces_of_a_jax_array_can_be_written_to_numpy_arrays() -> None:
    array, outs = jnp.arange(4), [np.zeros(1, "i8"), np.zeros(3, "i8")]
    assert dml.split(array, (1, 3), out=outs)[1].tolist() == outs[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize("out", [None, [np.zeros(2)] * 2])
def test_a_deleted_array_is_refused(out: Any) -> None:
    array = jnp.ones(4)
    array.delete()
    with pytest.raises(dml.InvalidArgumentError, match=r"^array has been deleted or donated"):
        dml.split(array, 2, out=out)


def test_an_error_in_a_callback_reaches_the_caller_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLSPLIT_NUM_THREADS", "some")
    array = jnp.zeros((7, 11, 2000), "f8")  # Plans are cached, so no other test has this shape.
    with pytest.raises(jax.errors.JaxRuntimeError, match="DMLSPLIT_NUM_THREADS is 'some'"):
        jax.block_until_ready(jax.jit(lambda array: dml.split(array, (5, 6), 1))(array))


def test_weak_types_and_commitment_to_a_device_are_kept() -> None:
    weak = jax.lax.full_like(2.0, 1.0, shape=(4,))
    for array in (weak, jnp.zeros(4), jax.device_put(jnp.zeros(4), jax.devices()[0])):
        for piece in dml.split(array, 2):
            assert (piece.weak_type, piece.committed) == (array.weak_type, array.committed)


@pytest.mark.parametrize("rows", ["3", "70000", "rows"])
def test_an_exported_split_needs_no_dmlsplit(rows: str) -> None:
    """XLA makes an exported split, of any size: a callback exists only in its own process."""
    from jax import export

    shape = export.symbolic_shape(f"{rows}, 4")
    split = jax.jit(lambda array: dml.split(array, (1, 3), 1))
    exported = export.export(split)(jax.ShapeDtypeStruct(shape, "f4")).serialize()
    array = random((int(rows) if rows.isdigit() else 5, 4))
    assert_equal(export.deserialize(exported).call(array), jnp.split(array, [1], 1))


@pytest.mark.parametrize("sizes", [2, (1, 3), lambda size: (1, size - 1)])
def test_an_axis_of_symbolic_size_is_refused(sizes: Any) -> None:
    from jax import export

    def split(array: Any) -> Any:
        return dml.split(array, sizes(array.shape[1]) if callable(sizes) else sizes, -1)

    shape = export.symbolic_shape("4, 2 * columns")
    message = re.escape("axis -1 has the symbolic size 2*columns; it must be constant. Fix: jax.nu")
    with pytest.raises(dml.InvalidArgumentError, match=message):
        export.export(jax.jit(split))(jax.ShapeDtypeStruct(shape, "f4"))


def test_xla_splits_few_bytes_into_few_pieces() -> None:
    def is_callback(array: Any, count: int, platform: str = "cpu") -> bool:
        trace = jax.jit(lambda array: dml.split(array, count)).trace(array)
        return "_callback" in trace.lower(lowering_platforms=(platform,)).as_text()

    large, small = jnp.zeros(1 << 20, "u1"), not ours.MAX_BYTES
    assert [is_callback(large, 2, on) for on in ("cpu", "cuda", "rocm", "tpu")] == [1, 1, 0, 0]
    assert [is_callback(jnp.zeros(n), n) for n in (16, 17)] == [small, 1]
    assert is_callback(large[2:], 2) == small
