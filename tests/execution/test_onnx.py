"""Split and SplitToSequence on arrays, against NumPy, ONNX Runtime and PyTorch."""

import sys
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import dmlsplit as dml
from dmlsplit.frontends.onnx import split, split_to_sequence
from tests.support.arrays import assert_same, random_bits
from tests.support.command import ran
from tests.support.models import session
from tests.support.onnx_graphs import INT64, model, node, value

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128"
).split()
Case = tuple[tuple[int, ...], int, list[int]]


def reference(x: np.ndarray, sizes: list[int], axis: int) -> list[np.ndarray]:
    ends = np.cumsum(sizes)
    return [np.take(x, range(end - size, end), axis) for end, size in zip(ends, sizes, strict=True)]


@st.composite
def splits(draw: st.DrawFn, most_rank: int = 5) -> Case:
    """A shape, an axis, and sizes along it; pieces and dimensions may be empty."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    before = draw(st.lists(st.integers(0, 3), max_size=most_rank - 1))
    after = draw(st.lists(st.integers(1, 4), max_size=most_rank - 1 - len(before)))
    axis = len(before)
    shape = (*before, sum(sizes), *after)
    return shape, draw(st.sampled_from([axis, axis - len(shape)])), sizes


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25)
@given(case=splits(most_rank=12), opset=st.sampled_from([2, 11, 13, 18]), seed=st.integers(0, 99))
def test_split_moves_every_bit(dtype: str, case: Case, opset: int, seed: int) -> None:
    shape, axis, sizes = case
    x = random_bits(shape, dtype, seed)
    pieces = split(x, sizes, axis=axis, opset=opset)
    assert_same(pieces, reference(x, sizes, axis))
    assert not any(np.shares_memory(piece, x) for piece in pieces)


@pytest.mark.parametrize("dtype", [object, "U5"])
def test_strings_are_split_on_the_host(dtype: Any) -> None:
    x = np.array([["a", "bb"], ["", "ääää"], ["c", "d"]], dtype)
    pieces = split(x, [0, 1, 2])
    assert [piece.tolist() for piece in pieces] == [[], [["a", "bb"]], [["", "ääää"], ["c", "d"]]]
    assert not any(np.shares_memory(piece, x) for piece in pieces)
    sequence = split_to_sequence(x[:, 0], keepdims=0)
    assert [piece.item() for piece in sequence] == ["a", "", "c"]
    assert [piece.shape for piece in sequence] == [()] * 3


@pytest.mark.parametrize("kind", [object, "U5"])
def test_only_strings_of_numpy_are_split(kind: Any) -> None:
    words = np.array(["a", "bb"], kind)
    masked = np.ma.masked_array(words, [True, False])
    for call in (lambda: split(masked, num_outputs=2), lambda: split_to_sequence(masked)):
        with pytest.raises(dml.InvalidArgumentError, match=r"is masked; .*split \.data and \.mask"):
            call()
    column = SimpleNamespace(dtype=words.dtype, shape=words.shape)  # as in a table of pandas
    with pytest.raises(dml.InvalidArgumentError, match=r"Fix: numpy\.asarray"):
        split(column, num_outputs=2)


def test_an_empty_list_of_sizes_is_not_taken_for_missing_sizes() -> None:
    assert split_to_sequence(np.zeros((0, 2)), []) == []
    with pytest.raises(dml.InvalidArgumentError, match="which adds up to 0; it must add up to 6"):
        split_to_sequence(np.zeros(6), [])


def test_onnx_runtime_takes_an_empty_list_of_sizes_for_missing_sizes() -> None:
    """As docs/frontends.md says: it makes pieces of size 1."""
    runtime = runtime_of_sequence("float32", axis=0, has_sizes=True)
    (sequence,) = runtime.run(None, {"x": np.zeros(6, "f"), "sizes": np.array([], "q")})
    assert [piece.shape for piece in sequence] == [(1,)] * 6


def test_bfloat16_arrays_keep_their_type() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16").bfloat16
    x = random_bits((3, 4), "uint16").view(bfloat16)
    assert_same(split(x, [1, 3], axis=1, opset=13), reference(x, [1, 3], 1))
    assert_same(split_to_sequence(x, 2, opset=24), reference(x, [2, 1], 0))


def test_num_outputs_and_output_count_give_the_pieces_of_numpy() -> None:
    x = np.arange(7, dtype=np.float32)
    assert_same(split(x, num_outputs=4), reference(x, [2, 2, 2, 1], 0))
    assert_same(split(x[:6], output_count=3, opset=13), reference(x, [2, 2, 2], 0))
    with pytest.warns(UserWarning, match="Split-18 has neither sizes nor num_outputs"):
        assert_same(split(x[:6], output_count=3), reference(x, [2, 2, 2], 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: split(x.astype(">f4"), [6]),
            "data type >f4; ONNX has that type in native byte order only.*Fix: convert it to nat",
        ),
        (
            lambda x: split(np.ma.masked_array(x, x == 0), [6]),
            "Split-18: the input is masked; .*Fix: split .data and .mask",
        ),
        (lambda x: split(x.view("M8[s]"), [6]), "data type datetime64.*; ONNX has no such type"),
    ],
)
def test_the_error_for_an_unsupported_array_names_the_reason(call: Any, message: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message) as error:
        call(np.zeros(6))
    assert error.value.hresult == 0x80070057


@given(
    case=splits(),
    dtype=st.sampled_from(DTYPES),
    level=st.sampled_from(["1_0", "2_1", "3_0", "4_1", "6_4"]),
)
def test_every_type_and_rank_is_split_at_any_level_except_odd_runs_at_1_0(
    case: Case, dtype: str, level: str
) -> None:
    shape, axis, sizes = case
    x = random_bits(shape, dtype)
    device = dml.Device("cpu", feature_level=level)
    inner = int(np.prod(shape[axis % len(shape) + 1 :])) * x.itemsize
    pieces = [size for size in sizes if size]
    runs = [x.nbytes] if len(pieces) == 1 else [size * inner for size in pieces]
    if level == "1_0" and x.size and any(run % 2 for run in runs):
        # The level has no type below 16 bits, and runs have an odd number of bytes.
        with pytest.raises(dml.InvalidArgumentError, match="no equivalent at feature level 1_0"):
            split(x, sizes, axis=axis, device=device)
    else:
        assert_same(split(x, sizes, axis=axis, device=device), reference(x, sizes, axis))


# --- against other implementations ------------------------------------------------------------

# ONNX Runtime lacks complex types, and some of SplitToSequence's.
RUNTIME_TYPES = {"split": DTYPES[:-2], "sequence": ["bool", "int32", "int64", *DTYPES[9:12]]}


def runtime_of_split(dtype: str, axis: int, count: int, opset: int) -> Any:
    """ONNX Runtime with a Split of `x` into `count` pieces, whose sizes are an input."""
    return runtime_of("Split", opset, dtype, count, has_sizes=True, axis=axis)


def runtime_of_equal_split(count: int) -> Any:
    """ONNX Runtime with a Split-18 of the floats `x` that has `num_outputs` instead of sizes."""
    return runtime_of("Split", 18, "float32", count, has_sizes=False, num_outputs=count)


def runtime_of_sequence(dtype: str, axis: int, has_sizes: bool) -> Any:
    """ONNX Runtime with a SplitToSequence-11 of `x`; without sizes, it drops the axis."""
    return runtime_of(
        "SplitToSequence", 11, dtype, 1, has_sizes, axis=axis, keepdims=int(has_sizes)
    )


@cache
def runtime_of(
    operator: str, opset: int, dtype: str, count: int, has_sizes: bool, **attributes: int
) -> Any:
    """ONNX Runtime with a model of one node that has `count` outputs."""
    inputs = [value("x", kind=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))]
    if has_sizes:
        inputs.append(value("sizes", kind=INT64))
    outputs = " ".join(f"y{i}" for i in range(count))
    cut = node(operator, " ".join(entry.name for entry in inputs), outputs, **attributes)
    return session(model([cut], inputs, opsets={"": opset}, outputs=outputs))


def outcome(call: Any) -> Any:
    try:
        return call()
    except Exception:
        # ONNX Runtime's errors have no public base class.
        return None


@settings(max_examples=200)
@given(
    case=splits(most_rank=4),
    dtype=st.sampled_from(RUNTIME_TYPES["split"]),
    opset=st.sampled_from([13, 18]),
    change=st.integers(-3, 3) | st.just(0),
)
def test_split_agrees_with_onnx_runtime_on_pieces_and_refusals(
    case: Case, dtype: str, opset: int, change: int
) -> None:
    shape, axis, sizes = case
    x, sizes = random_bits(shape, dtype), [*sizes[:-1], sizes[-1] + change]
    runtime = runtime_of_split(dtype, axis, len(sizes), opset)
    feeds = {"x": x, "sizes": np.array(sizes, np.int64)}
    pieces = outcome(lambda: split(x, sizes, axis=axis, opset=opset))
    expected_pieces = outcome(lambda: runtime.run(None, feeds))
    assert (pieces is None) == (expected_pieces is None)
    assert_same(pieces or [], expected_pieces or [])


@settings(max_examples=60)
@given(
    case=splits(most_rank=4),
    dtype=st.sampled_from(RUNTIME_TYPES["sequence"]),
    kind=st.sampled_from(["chunk", "sizes", "ones"]),
    chunk=st.integers(1, 6),
)
def test_split_to_sequence_gives_the_pieces_of_onnx_runtime(
    case: Case, dtype: str, kind: str, chunk: int
) -> None:
    shape, axis, sizes = case
    x = random_bits(shape, dtype)
    lengths = {"chunk": np.array(chunk), "sizes": np.array(sizes), "ones": None}[kind]
    runtime = runtime_of_sequence(dtype, axis, has_sizes=lengths is not None)
    feeds = {"x": x} if lengths is None else {"x": x, "sizes": lengths}
    (expected_pieces,) = runtime.run(None, feeds)
    keepdims = int(lengths is not None)
    assert_same(split_to_sequence(x, lengths, axis=axis, keepdims=keepdims), expected_pieces)


@pytest.mark.parametrize("count", range(1, 10))
def test_num_outputs_is_accepted_exactly_if_onnx_runtime_accepts_it(count: int) -> None:
    runtime = runtime_of_equal_split(count)
    for size in range(10):
        x = np.arange(size, dtype=np.float32)
        pieces = outcome(lambda x=x: split(x, num_outputs=count))
        expected_pieces = outcome(lambda x=x: runtime.run(None, {"x": x}))
        assert (pieces is None) == (expected_pieces is None), size
        if pieces is not None:
            assert_same(pieces, expected_pieces)


def test_pieces_are_of_the_class_of_the_array(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(6,))
    x[:] = range(6)
    pieces = split(x, [2, 4])
    assert [type(piece) for piece in pieces] == [np.memmap] * 2
    assert_same([np.asarray(piece) for piece in pieces], reference(np.asarray(x), [2, 4], 0))


def test_arrays_of_any_library_are_split() -> None:
    jax = pytest.importorskip("jax", reason="an array that is known by DLPack only")
    pieces = split(jax.numpy.arange(6, dtype="float32"), [2, 4])
    assert all(isinstance(piece, jax.Array) for piece in pieces)
    assert [piece.tolist() for piece in pieces] == [[0, 1], [2, 3, 4, 5]]


TORCH_TYPES = [*DTYPES, "bfloat16"]


@given(case=splits(), dtype=st.sampled_from(TORCH_TYPES))
def test_tensors_of_torch_give_tensors_of_torch(case: Case, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    shape, axis, sizes = case
    raw = random_bits(shape, "uint16" if dtype == "bfloat16" else dtype)
    x = torch.from_numpy(raw).view(getattr(torch, dtype))
    pieces = split(x, sizes, axis=axis)
    expected_pieces = torch.split(x, sizes, axis)
    for piece, expected in zip(pieces, expected_pieces, strict=True):
        assert piece.dtype == expected.dtype
        assert piece.shape == expected.shape
        assert piece.is_contiguous()
        piece, expected = (t.contiguous().reshape(-1).view(torch.uint8) for t in (piece, expected))
        assert torch.equal(piece, expected)


def test_tensors_of_torch_that_require_grad_are_refused() -> None:
    """They used to come back detached, which is wrong in training."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(dml.InvalidArgumentError, match=r"requires grad.*Fix: detach\(\)"):
        split(x, [1, 2])
    with torch.no_grad():
        assert [piece.tolist() for piece in split(x, [1, 2])] == [[1.0], [1.0, 1.0]]


def test_splits_of_arrays_do_not_need_the_package_onnx() -> None:
    code = """
import sys
sys.modules["onnx"] = None
import numpy as np
from dmlsplit.frontends import onnx
print(onnx.split(np.arange(3), [1, 2]), [getattr(onnx, name) for name in onnx.__all__])
"""
    assert "[array([0]), array([1, 2])]" in ran(sys.executable, "-c", code, check=True).stdout
