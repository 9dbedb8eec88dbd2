"""`dml.split` with cached plans does the same as without them, whatever was called before."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.execution import in_memory, slices
from tests.support.gpu_arrays import forget_programs

BYTES = np.random.default_rng(0).integers(0, 256, 1 << 12, np.uint8)


class Sub(np.ndarray):
    """A subclass whose pieces have its class."""


def array(kind: Any, shape: tuple[int, ...], start: int = 0) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return BYTES[start : start + size].view(kind).reshape(shape)


PADDED = np.dtype({"names": ["a", "b"], "formats": ["u1", "f4"], "offsets": [0, 4], "itemsize": 8})
READ_ONLY = array("f4", (4, 6)).copy()
READ_ONLY.flags.writeable = False
# Pairs of similar arrays: the cache key must include the difference between them.
ARRAYS = [
    array("f4", (4, 6)),
    array(">f4", (4, 6)),
    array("u4", (4, 6)),
    array("f4", (4, 6), start=1),
    array("f4", (6, 4)).T,
    array("f4", (4, 6))[::-1, ::-1],
    array("f4", (4, 12))[:, ::2],
    np.broadcast_to(array("f4", (6,)), (4, 6)),
    array("f4", (4, 6)).view(Sub),
    READ_ONLY,
    array("?", (4, 6)),
    array("S4", (4, 6)),
    array("M8[s]", (4, 6)),
    array("i8", (4, 6)),
    array("q", (4, 6)),
    array(np.longdouble, (4, 6)),
    array(PADDED, (4, 6)),
    array(np.dtype("f4", metadata={"unit": "m"}), (4, 6)),
    array("f4", (0, 6)),
    array("f4", (24,)),
    array("f4", (2, 2, 6)),
    array("f4", ()),
    np.zeros((4, 6), object),
    np.ma.masked_array(array("f4", (4, 6)), False),
]  # fmt: skip
SIZES: list[Callable[[], Any]] = [
    lambda: 2, lambda: 3, lambda: np.int64(2), lambda: np.array(2), lambda: True, lambda: 2.0,
    lambda: (2, 4), lambda: [2, 4], lambda: np.array([2, 4]), lambda: iter([2, 4]),
    lambda: (size for size in (2, 4)), lambda: (2.0, 4.0), lambda: (True, 5), lambda: (1, 5),
    lambda: "24", lambda: (), lambda: (6,), lambda: (0, 6, 0), lambda: (7, -1), lambda: (2, 2),
    lambda: (1, 1, 2), lambda: None,
]  # fmt: skip
AXES = [0, 1, -1, -2, np.int8(1), True, 1.0, "1", None, 2, -3]


class Call(NamedTuple):
    """``dml.split(source, sizes(), axis)``, or the same into outputs that are not packed."""

    source: np.ndarray
    sizes: Callable[[], Any]  # as sizes may be an iterator, which one call consumes
    axis: Any
    has_out: bool = False


def outcome(call: Call) -> Any:
    """Everything that a call returns or raises."""
    source = call.source
    try:
        pieces = dml.split(source, call.sizes(), call.axis)
        if call.has_out:
            # Every second element, so that these outputs are not packed like new arrays.
            stores = [np.full((*piece.shape, 2), 7, piece.dtype.str) for piece in pieces]
            outs = [store[..., 0] for store in stores]
            pieces = dml.split(source, call.sizes(), call.axis, out=outs)
    except Exception as error:
        return type(error), str(error)
    assert not any(np.shares_memory(piece, source) for piece in pieces)
    return [
        (type(piece), piece.dtype, piece.dtype.metadata, piece.shape, piece.strides,
         piece.tobytes(), piece.flags.writeable)
        for piece in pieces
    ]  # fmt: skip


def without_plans(call: Call) -> Any:
    forget_programs()
    return outcome(call)


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    """Later tests do not find the programs of these."""
    yield
    forget_programs()


CALLS = st.builds(
    Call, st.sampled_from(ARRAYS), st.sampled_from(SIZES), st.sampled_from(AXES), st.booleans()
)


@given(st.lists(CALLS, min_size=2, max_size=12))
def test_cached_splits_never_change_the_outcome_of_a_call(calls: list[Call]) -> None:
    expected_outcomes = [without_plans(call) for call in calls]
    forget_programs()
    assert [outcome(call) for call in calls] == expected_outcomes
    assert [outcome(call) for call in calls] == expected_outcomes


def test_the_order_of_calls_does_not_change_results() -> None:
    """A call for each array, once after each of the others that differ from it a little."""
    calls = [Call(source, lambda: (2, 4), axis=1) for source in ARRAYS]
    expected_outcomes = [without_plans(call) for call in calls]
    forget_programs()
    for _ in range(2):
        assert [outcome(call) for call in calls] == expected_outcomes
        assert [outcome(call) for call in reversed(calls)] == expected_outcomes[::-1]


def test_a_split_is_prepared_once_however_its_sizes_its_axis_and_its_type_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count or sizes along an axis from the front or the end, whatever the type is called."""
    monkeypatch.setattr(slices, "MAX_BYTES", 0)
    forget_programs()
    for sizes in (lambda: 3, lambda: (2, 2, 2), lambda: [2, 2, 2], lambda: iter([2, 2, 2])):
        for axis in (1, -1, np.int64(1)):
            for kind in ("f4", ">f4", "u4", "S4"):
                dml.split(array(kind, (4, 6)), sizes(), axis)
    assert in_memory._splits_of_few_pieces.cache_info().misses == 1
    assert in_memory._splits_of_few_pieces.cache_info().maxsize == 1024


@pytest.mark.parametrize(
    ("sizes", "axis"),
    [(True, 0), (1.0, 0), ((4.0, 2.0), 0), ((4, True, 1), 0), (1, False), (1, 0.0), ("1", 0)],
)
def test_true_and_floats_do_not_hit_the_cache_of_integers(sizes: Any, axis: Any) -> None:
    for cached_sizes in (1, (4, 2), (4, 1, 1)):
        dml.split(array("f4", (6, 2)), cached_sizes, 0)
    with pytest.raises(dml.InvalidArgumentError):
        dml.split(array("f4", (6, 2)), sizes, axis)


def filled(sizes: list[int]) -> None:
    dml.split(np.zeros(sum(sizes)), sizes, out=[np.empty(size) for size in sizes])


def filled_tensors(sizes: list[int]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    dml.split(torch.zeros(sum(sizes)), sizes, out=[torch.empty(size) for size in sizes])


def compiled(sizes: list[int]) -> None:
    tensor = dml.TensorDesc("UINT8", (sum(sizes),))
    dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(tensor, axis=0, sizes=sizes))


CALLS_OF_MANY_PIECES = {
    "a list": lambda sizes: dml.split(np.zeros(sum(sizes)), sizes),
    "a tuple": lambda sizes: dml.split(np.zeros(sum(sizes)), tuple(sizes)),
    "into arrays": filled,
    "into tensors": filled_tensors,
    "compiled": compiled,
}


@pytest.mark.parametrize("form", CALLS_OF_MANY_PIECES)
def test_cached_splits_of_many_pieces_take_bounded_memory(form: str) -> None:
    """The calls split batches of many sequences, with new lengths each time."""
    import tracemalloc

    random = np.random.default_rng(0)

    def kept_after(calls: int) -> int:
        for _ in range(calls):
            CALLS_OF_MANY_PIECES[form](random.integers(1, 9, 1100).tolist())
        return tracemalloc.get_traced_memory()[0]

    CALLS_OF_MANY_PIECES[form]([1])  # imports
    forget_programs()
    tracemalloc.start()
    try:
        early, late = kept_after(9), kept_after(12)
    finally:
        tracemalloc.stop()
    assert late < 1.3 * early
