"""Bindings, right and wrong, of one split; only a dispatch shows what DirectML says of them."""

from collections.abc import Iterator

from dmlsplit.conformance.case import Case, Placed, Placement
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc

_IN = Placed(0)
_ROOM = (128, 128, 128)  # bytes of three buffers; each takes any tensor of the split
_APART = (Placed(1), Placed(2))

# Name, what it is, sizes of the buffers, where the input is, where the outputs are.
_BINDINGS: list[tuple[str, str, tuple[int, ...], Placed, tuple[Placed, Placed]]] = [
    ("offset-16", "an input at an offset of 16", (160, 128, 128), Placed(0, 16), _APART),
    ("swapped", "outputs in buffers of another order", _ROOM, _IN, (Placed(2), Placed(1))),
    ("one-buffer", "both outputs in one buffer", (128, 128), _IN, (Placed(1), Placed(1, 64))),
    ("same-buffer", "an output behind the input", (256, 128), _IN, (Placed(1), Placed(0, 128))),
    ("offset-4", "an input at an offset of 4", (160, 128, 128), Placed(0, 4), _APART),
    ("small-input", "an input buffer 32 bytes too small", (64, 128, 128), _IN, _APART),
    ("small-output", "an output buffer 16 bytes too small", (128, 128, 32), _IN, _APART),
    ("overlap", "two outputs in one place", (128, 128), _IN, (Placed(1), Placed(1))),
    ("overlap-half", "outputs that share 16 bytes", (128, 128), _IN, (Placed(1), Placed(1, 32))),
    ("in-place", "an output over the input", (128, 128), _IN, (Placed(0), Placed(1))),
]


def binding_cases() -> Iterator[Case]:
    """Yield a case per rule of bindings that DxDispatch can break, and some that break none."""
    for name, about, buffers, source, outputs in _BINDINGS:
        placement = Placement(buffers, source, outputs)
        yield Case(f"bind-{name}", about, _split(), placement=placement)
    placement = Placement((160, 128, 128), Placed(0, 16), _APART)
    about = "an offset of 16 where the descriptor guarantees 32"
    yield Case("bind-guaranteed", about, _split(32), placement=placement)


def _split(alignment: int = 0) -> SplitOperatorDesc:
    """Split FLOAT32[1,1,6,4], which is 96 bytes, into two pieces of 48 bytes."""
    x = TensorDesc("FLOAT32", (1, 1, 6, 4), guaranteed_base_offset_alignment=alignment)
    return SplitOperatorDesc.from_sizes(x, axis=2, sizes=(3, 3))
