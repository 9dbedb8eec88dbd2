"""Which tensors torch's own operator splits, and which outputs are filled without views."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dmlsplit.arrays import torch_adapter  # noqa: E402
from dmlsplit.backends.cpu import native  # noqa: E402
from dmlsplit.execution import torch_fast_path  # noqa: E402

MIB = 1 << 20


@pytest.mark.parametrize(
    ("shape", "axis", "count", "is_small"),
    [
        pytest.param((8 * MIB - 2,), 0, 2, True, id="below 8 MiB"),
        pytest.param((8 * MIB,), 0, 2, False, id="8 MiB"),
        pytest.param((4096, 2 * 3), 1, 2, True, id="8192 runs of 3 bytes"),
        pytest.param((4097, 2 * 3), 1, 2, False, id="more runs of 3 bytes"),
        # Torch copies six runs of one element in the time of one such run.
        pytest.param((24576, 2 * 1), 1, 2, True, id="49152 runs of a byte"),
        pytest.param((24577, 2 * 1), 1, 2, False, id="more runs of a byte"),
        pytest.param((4097, 2 * 32), 1, 2, True, id="runs of 32 bytes, which are long"),
        pytest.param((4097, 2 * 31), 1, 2, False, id="runs of 31 bytes, which are short"),
    ],
)
def test_small_tensors_with_few_or_long_runs_take_torchs_operator(
    shape: tuple[int, ...], axis: int, count: int, is_small: bool
) -> None:
    source = torch.zeros(shape, dtype=torch.uint8)
    assert (torch_fast_path.split_small(source, count, axis, None) is not None) == is_small


@pytest.mark.parametrize("columns", [6, 1 << 19], ids=["small", "large"])
@pytest.mark.parametrize("form", [tuple, list, iter, np.array])
def test_sizes_may_have_any_form(columns: int, form: Any) -> None:
    """The fast path must not use up an iterator before the engine reads it."""
    pieces = dml.split(torch.arange(8 * columns).view(8, columns), form([columns // 2] * 2), 1)
    assert [piece.shape for piece in pieces] == [(8, columns // 2)] * 2


@pytest.mark.parametrize(
    ("sizes_or_count", "axis"),
    [((True, 5), 1), ((1.0, 5), 1), ((1, 5), 1.0), ((1, 5), True), (2.0, 1), (True, 1), (2, True)],
)
def test_values_that_only_equal_integers_are_refused(sizes_or_count: Any, axis: Any) -> None:
    array = torch.zeros(4, 6)
    for plain in ((1, 5), 2, 1):  # which are cached, and equal the values
        dml.split(array, plain, 1)
    with pytest.raises(dml.InvalidArgumentError, match="must be an integer"):
        dml.split(array, sizes_or_count, axis)


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sources of which a split took a view."""
    viewed_sources: list[object] = []
    view = torch_adapter.untracked_view

    def counted_view(tensor: Any, name: str) -> Any:
        if name == "array":
            viewed_sources.append(tensor)
        return view(tensor, name)

    monkeypatch.setattr(torch_adapter, "untracked_view", counted_view)
    return viewed_sources


MATRIX = torch.arange(24.0).reshape(4, 6)
Make = Callable[[], list[Any]]


def outputs() -> list[Any]:
    return [torch.zeros(4, 2), torch.zeros(4, 4)]


@pytest.mark.parametrize(
    "source",
    [
        MATRIX,
        MATRIX.t().contiguous().t(),
        MATRIX.flip(0),
        torch.arange(48.0).reshape(4, 12)[:, ::2],
    ],
)
@pytest.mark.parametrize("form", [list, tuple])
def test_packed_outputs_with_memory_of_their_own_are_filled_without_views(
    source: Any, form: Any, views: list[object]
) -> None:
    outs = form(outputs())
    versions = [out._version for out in outs]
    for sizes in ((2, 4), [2, 4]):
        pieces = dml.split(source, sizes, 1, out=outs)
        assert all(map(lambda piece, output: piece is output, pieces, outs))
        assert torch.equal(torch.cat(pieces, 1), source)
    assert [out._version for out in outs] == [version + 2 for version in versions]
    assert not views


def test_the_same_outputs_are_filled_again_with_new_values(views: list[object]) -> None:
    """Copies between known addresses are kept, more of them than are kept at a time, in turn."""
    sources = [torch.zeros(4, 6) for _ in range(5)]
    outs = [outputs() for _ in range(4)]
    for number, (source, out) in enumerate(2 * list(product(sources, outs))):
        source.fill_(number)
        assert dml.split(source, (2, 4), 1, out=out)[0] is out[0]
        assert all(tensor.eq(number).all() for tensor in out)
    assert not views


@pytest.mark.parametrize("setting", ["1", "2"])
def test_large_outputs_are_filled_by_the_threads_of_the_moment(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed_counts = []
    layout = native._call_of(2)
    monkeypatch.setattr(
        native,
        "_call_of",
        lambda count: lambda *words: packed_counts.append(words[4]) or layout(*words),
    )
    source, outs = torch.zeros(64, 1 << 14), [torch.zeros(64, 1 << 13) for _ in range(2)]
    for count in ("1", setting):
        monkeypatch.setenv("DMLSPLIT_NUM_THREADS", count)
        dml.split(source, 2, 1, out=outs)
    assert packed_counts == [1, int(setting)]


def resized() -> Any:
    out = torch.zeros(4, 2)
    out.untyped_storage().resize_(4)  # bytes, of 32
    return out


def past_the_end() -> Any:
    """An output whose storage is as large as it must be, but begins before the output."""
    out = torch.zeros(16)[8:].view(4, 2)
    out.untyped_storage().resize_(32)
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda: [past_the_end(), torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 3), torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 2, dtype=torch.float64), torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 2, device="meta"), torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 2, requires_grad=True), torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 2).expand(2, 4, 2), torch.zeros(4, 4)],
        lambda: [torch._neg_view(torch.zeros(4, 2)), torch.zeros(4, 4)],
        lambda: [resized(), torch.zeros(4, 4)],
        lambda: [MATRIX[:, :2], torch.zeros(4, 4)],
        lambda: [torch.zeros(4, 2)],
        lambda: iter(outputs()),
    ],
    ids="offset shape type device grad rank negative resized input count iterator".split(),
)
def test_outputs_that_do_not_fit_are_refused_before_one_is_written(make: Make) -> None:
    outs = make()
    with pytest.raises(dml.InvalidArgumentError):
        dml.split(MATRIX, (2, 4), 1, out=outs)
    if isinstance(outs, list) and len(outs) > 1:
        assert not outs[1].any()


def test_outputs_that_overlap_outside_of_torch_are_refused() -> None:
    store = torch.zeros(40).numpy()
    outs = [torch.from_numpy(store[:8]).view(4, 2), torch.from_numpy(store[4:20]).view(4, 4)]
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        dml.split(MATRIX, (2, 4), 1, out=outs)
    assert not store.any()


def test_an_input_with_too_little_memory_is_refused() -> None:
    source, outs = torch.zeros(4, 6), outputs()
    source.untyped_storage().resize_(40)  # bytes, of 96
    with pytest.raises(dml.InvalidArgumentError, match="too little memory"):
        dml.split(source, (2, 4), 1, out=outs)


def columns_of_one_tensor() -> list[Any]:
    store = torch.zeros(4, 9)
    return [store[:, 1:3], store[:, 4:8]]


def parts_of_one_tensor() -> list[Any]:
    first, second = torch.zeros(24).split([8, 16])
    return [first.view(4, 2), second.view(4, 4)]


@pytest.mark.parametrize("make", [columns_of_one_tensor, parts_of_one_tensor])
def test_outputs_in_one_memory_or_with_strides_are_filled_by_views(
    make: Make, views: list[object]
) -> None:
    pieces = dml.split(MATRIX, (2, 4), 1, out=make())
    assert torch.equal(torch.cat(pieces, 1), MATRIX)
    assert len(views) == 1


def test_complex_outputs_are_filled_by_views(views: list[object]) -> None:
    source = MATRIX.to(torch.complex64)
    outs = [torch.zeros(4, 3, dtype=torch.complex64) for _ in range(2)]
    dml.split(source, 2, 1, out=outs)
    assert torch.equal(torch.cat(outs, 1), source)
    assert len(views) == 1


@pytest.mark.parametrize(
    ("sizes", "axis"), [([2, True, 3], 1), ((5, True), 1), ((2, 4), 2**63), ([2, 4], -(2**63) - 1)]
)
def test_what_torch_alone_would_take_or_raise_is_an_error_of_dmlsplit(
    sizes: Any, axis: int
) -> None:
    with pytest.raises(dml.InvalidArgumentError):
        dml.split(MATRIX, sizes, axis)


def test_an_empty_view_may_begin_after_its_storage() -> None:
    empty = torch.zeros(2, 33)[2:, 1:]
    assert [piece.shape[1] for piece in dml.split(empty, torch.Size([1, 31]), 1)] == [1, 31]
    first, _ = dml.split(torch.ones(2, 32), [2, 0], 0, out=[torch.zeros(2, 32), empty])
    assert first.all()


@pytest.mark.parametrize("name", ["conjugated", "negated", "both"])
def test_outputs_in_the_memory_of_a_lazy_view_are_refused(name: str) -> None:
    values = torch.arange(12.0).view(torch.complex64)
    if name == "negated":
        source, memory = torch._neg_view(values.real), values.real
    else:
        source, memory = (
            (values.conj(), values) if name == "conjugated" else (values.conj().imag, values.imag)
        )
    before = memory.clone()
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        dml.split(source, 2, out=[memory[:3], memory[3:]])
    assert torch.equal(memory, before)
    first, _ = dml.split(source, 2, out=[torch.empty_like(before[:3]) for _ in range(2)])
    assert torch.equal(first, source[:3].resolve_conj().resolve_neg())
