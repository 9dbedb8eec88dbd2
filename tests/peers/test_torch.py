"""PyTorch's own samples of its split operators: `dml.split` gives the same bytes and gradients.

The samples are those of the installed torch (`OpInfo`). Each is translated to the sizes of the
pieces that torch makes. ``pytest --slow -rP tests/peers/test_torch.py`` prints how many there are.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dmlsplit as dml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="torch's samples need expecttest")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

OPERATORS = (
    "chunk dsplit hsplit split split:list_args split_with_sizes split_with_sizes_copy tensor_split "
    "unsafe_chunk unsafe_split vsplit"
).split()
# Refused, because quantized pieces would lose their scale.
ALL = sorted(
    {str(kind).removeprefix("torch.") for kind in vars(torch).values() if type(kind) is torch.dtype}
    - {"qint8", "qint32", "quint8", "quint4x2", "quint2x4"}
)
Split = Callable[[Any], tuple[Any, ...]]
Sample = tuple[Any, Split, int]


@pytest.fixture(scope="module")
def ops() -> Iterator[dict[str, Any]]:
    """Torch's own records of its operators, with samples, by name and variant."""
    # Imported here, because it takes seconds.
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    operators_by_name = {
        ":".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db
    }
    split_names = {
        name for name in operators_by_name if "split" in name or "chunk" in name.partition(":")[0]
    }
    assert split_names == {*OPERATORS, "_chunk_cat"}  # The last joins its pieces.
    with pytest.MonkeyPatch.context() as patch:
        # It finds no unittest here, after it has read the sources of the whole stack.
        for module in (common_utils, core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        yield operators_by_name


def samples(operator: Any, kind: str) -> Iterator[Sample]:
    """Tensors with and without gaps in memory, the pieces that torch makes of each, the axis."""
    dtype = getattr(torch, kind)
    sample_type = dtype if dtype in operator.supported_dtypes("cpu") else torch.uint8
    for sample in operator.sample_inputs("cpu", sample_type):
        axis = axis_of(operator, sample)
        x = sample.input if sample_type is dtype else bytes_as(dtype, sample.input.shape)
        gaps = torch.stack([x.view(torch.uint8)] * 2, 1).view(dtype)[:, 0] if x.dim() > 1 else x
        for array in (x, gaps, x.transpose(0, -1) if axis not in (0, -1, x.dim() - 1) else x):
            yield array, lambda y, s=sample: tuple(operator.op(y, *s.args, **s.kwargs)), axis


def axis_of(operator: Any, sample: Any) -> int:
    fixed_axes = {"dsplit": 2, "vsplit": 0, "hsplit": min(1, sample.input.dim() - 1)}
    if operator.name in fixed_axes:
        return fixed_axes[operator.name]
    return int(sample.args[1] if len(sample.args) > 1 else sample.kwargs.get("dim", 0))


def bytes_as(dtype: Any, shape: Any) -> Any:
    return torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype)[..., 0]


def raw(x: Any) -> Any:
    """The bytes of a tensor of any type, even of those that torch hardly supports."""
    width = x.element_size()
    shape, strides = (*x.shape, width), (*(step * width for step in x.stride()), 1)
    offset = x.storage_offset() * width
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage(), offset, shape, strides)


def compared(operator: Any, kind: str) -> int:
    """Compare the pieces of each sample; return how many there were."""
    count = 0
    for array, peer, axis in samples(operator, kind):
        try:
            expected_pieces = peer(array)
        except NotImplementedError:  # Torch itself does not copy this type.
            continue
        pieces = dml.split(array, [piece.shape[axis] for piece in expected_pieces], axis)
        for our_piece, expected in zip(pieces, expected_pieces, strict=True):
            assert (our_piece.dtype, our_piece.is_contiguous()) == (expected.dtype, True)
            assert torch.equal(raw(our_piece), raw(expected))
        count += 1
    return count


def gradients(operator: Any, kind: str) -> int:
    """Compare the gradients of each sample; return how many there were."""
    count = 0
    for array, peer, axis in samples(operator, kind):
        leaf = array.detach().requires_grad_()
        peer_pieces = peer(leaf)
        our_pieces = dml.split(leaf, [piece.shape[axis] for piece in peer_pieces], axis)
        weights = [torch.randn_like(piece) for piece in peer_pieces]
        gradient, expected_gradient = (
            torch.autograd.grad(pieces, leaf, weights) for pieces in (our_pieces, peer_pieces)
        )
        assert torch.equal(raw(gradient[0]), raw(expected_gradient[0]))
        count += 1
    return count


QUICK = ("float32", "complex64", "bool", "float8_e5m2")


@pytest.mark.parametrize("name", OPERATORS)
def test_pieces_are_those_of_torchs_own_samples(ops: Any, name: str, pytestconfig: Any) -> None:
    kinds = ALL if pytestconfig.getoption("--slow") else QUICK
    counts = {kind: compared(ops[name], kind) for kind in kinds}
    print(f"{name}: {sum(counts.values())} samples of {len(kinds)} types")  # noqa: T201
    assert all(counts[kind] for kind in QUICK)


FEW = ("float32", "complex64")


FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_are_those_of_torchs_own_samples(ops: Any, name: str, pytestconfig: Any) -> None:
    kinds = FLOATS if pytestconfig.getoption("--slow") else FEW
    counts = {kind: gradients(ops[name], kind) for kind in kinds}
    print(f"{name}: {sum(counts.values())} gradients of {len(kinds)} types")  # noqa: T201
    assert all(counts.values())
