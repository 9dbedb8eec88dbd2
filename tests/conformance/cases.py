"""All cases, and the open questions of docs/conformance.md that they answer."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from dmlsplit.directml.levels import support_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType, TensorDesc
from tests.conformance.case import SPECIAL, Case, Placed, Placement

# The rules that no case breaks, and the reasons: DxDispatch, which runs the cases, or C.
NOT_ASKED = {
    "DML-BIND-COUNT": "DxDispatch refuses it before DirectML sees it",
    "DML-BIND-RANGE": "DxDispatch always binds the rest of the buffer",
    "DML-BIND-READ-ONLY": "the D3D12 buffers of DxDispatch are always writable",
    **{rule.id: rule.impossible_in_c for rule in RULES.values() if rule.impossible_in_c},
}


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in a fixed order."""
    return (*_table(), *_rules(), *_bytes(), *_bindings())


def _table() -> Iterator[Case]:
    """Every data type at every dimension count, including those that no level accepts."""
    for kind in TensorDataType:
        # UNKNOWN gets a size, because without one it would break a second rule.
        total = 64 if kind is TensorDataType.UNKNOWN else None
        for rank in range(DIMENSION_COUNT_MAX + 2):
            # The last dimension, 4, is split into 1 and 3. Without dimensions, the split is a copy.
            front = (*(1,) * (rank - 2), *(2,) * (rank > 1))
            shapes = [(*front, last) for last in (4, 1, 3)] if rank else [(), ()]
            x, *outputs = (TensorDesc(kind, s, total_tensor_size_in_bytes=total) for s in shapes)
            desc = SplitOperatorDesc(x, outputs, max(rank - 1, 0))
            yield Case(f"table-{kind.name}-{rank}", f"{kind.name} with {rank} dimensions", desc)


def _rules() -> Iterator[Case]:
    """A case for each way to break a rule that C can break, and for each value at a limit."""
    # The cases of `_table` cover the rules about levels.
    names = [each for each in RULES if each not in NOT_ASKED and not each.startswith("DML-LEVEL-")]
    asked = [RULES[each] for each in names]
    for rule in asked:
        for sample in rule.broken:
            name = "-".join(filter(None, ("rule", rule.id[4:], sample.name)))
            yield Case(name, sample.about, sample.desc)
    for rule in asked:
        for sample in rule.kept:
            if sample.name:
                yield Case(f"limit-{sample.name}", sample.about, sample.desc)


def _bytes() -> Iterator[Case]:
    """Accepted splits whose bytes are compared: types, ranks, axes, layouts and output counts."""
    rows = support_table().values()
    for kind in sorted({kind for row in rows for kind in row.data_types}):
        yield Case(f"bytes-type-{kind.name}", f"{kind.name} numbers", _split(kind=kind))
    for kind in SPECIAL:
        about = f"{kind.name} with any bits: NaNs with payloads, denormals, both zeros"
        yield Case(f"bytes-bits-{kind.name}", about, _split(kind=kind), "bits")
    for rank in range(1, 9):
        for axis in range(rank):
            least = 2 if rank < 6 else 1  # to keep the tensors small
            shape = tuple(7 if at == axis else least + at % 2 for at in range(rank))
            about = f"axis {axis} of {rank} dimensions"
            yield Case(f"bytes-axis-{rank}-{axis}", about, _split(shape, axis))
    for name, about, desc in _layouts():
        yield Case(f"bytes-{name}", about, desc)


def _split(
    shape: tuple[int, ...] = (2, 3, 7, 5),
    axis: int = 2,
    sizes: tuple[int, ...] = (2, 1, 4),
    kind: TensorDataType = TensorDataType.FLOAT32,
    **fields: Any,
) -> SplitOperatorDesc:
    return SplitOperatorDesc.from_sizes(TensorDesc(kind, shape, **fields), axis=axis, sizes=sizes)


def _layouts() -> Iterator[tuple[str, str, SplitOperatorDesc]]:
    half = TensorDataType.FLOAT16
    yield "one-output", "a copy", _split(sizes=(7,))
    many = _split((1, 1, 3, 100), 3, (1,) * 100, half)
    yield "outputs-100", "100 outputs of one element per row", many
    yield "odd-bytes", "FLOAT16 rows of 2, 6 and 10 bytes", _split((1, 3, 5, 9), 3, (1, 3, 5), half)
    yield "long-rows", "rows of 2048 bytes", _split((1, 1, 4, 512), 3, (200, 1, 311))
    yield "broadcast", "an input that repeats its rows", _split(strides=(0, 0, 5, 1))
    yield "nhwc", "an input in NHWC order", _split((1, 7, 4, 5), 1, strides=(140, 1, 35, 7))
    x = TensorDesc("FLOAT32", (2, 3, 7, 5))
    for name, about, strides in (
        ("padded", "outputs with gaps between rows", (96, 32, 8, 1)),
        ("permuted", "outputs with their dimensions in another order", (1, 2, 6, 24)),
    ):
        outputs = [TensorDesc("FLOAT32", (2, 3, part, 5), strides=strides) for part in (2, 1, 4)]
        yield f"{name}-outputs", about, SplitOperatorDesc(x, outputs, 2)


_IN = Placed(0)
_ROOM = (128, 128, 128)  # the bytes of three buffers, each large enough for any tensor
_APART = (Placed(1), Placed(2))
# Name, description, sizes of the buffers, places of the input and of the outputs.
_BINDINGS: list[tuple[str, str, tuple[int, ...], Placed, tuple[Placed, Placed]]] = [
    ("offset-16", "an input at an offset of 16", (160, 128, 128), Placed(0, 16), _APART),
    ("swapped", "outputs in swapped buffers", _ROOM, _IN, (Placed(2), Placed(1))),
    ("one-buffer", "both outputs in one buffer", (128, 128), _IN, (Placed(1), Placed(1, 64))),
    ("same-buffer", "an output after the input", (256, 128), _IN, (Placed(1), Placed(0, 128))),
    ("offset-4", "an input at an offset of 4", (160, 128, 128), Placed(0, 4), _APART),
    ("small-input", "an input buffer 32 bytes too small", (64, 128, 128), _IN, _APART),
    ("small-output", "an output buffer 16 bytes too small", (128, 128, 32), _IN, _APART),
    ("overlap", "two outputs in the same place", (128, 128), _IN, (Placed(1), Placed(1))),
    ("overlap-half", "outputs that share 16 bytes", (128, 128), _IN, (Placed(1), Placed(1, 32))),
    ("in-place", "an output over the input", (128, 128), _IN, (Placed(0), Placed(1))),
]


def _bindings() -> Iterator[Case]:
    """Valid and invalid bindings of one split. DirectML answers only when it dispatches."""
    shape, axis, sizes = (1, 1, 6, 4), 2, (3, 3)  # 96 bytes into two pieces of 48 bytes
    for name, about, buffers, source, outputs in _BINDINGS:
        placement = Placement(buffers, source, outputs)
        yield Case(f"bind-{name}", about, _split(shape, axis, sizes), placement=placement)
    placement = Placement((160, 128, 128), Placed(0, 16), _APART)
    about = "an offset of 16, although the descriptor guarantees a multiple of 32"
    desc = _split(shape, axis, sizes, guaranteed_base_offset_alignment=32)
    yield Case("bind-guaranteed", about, desc, placement=placement)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about DirectML that its documentation does not answer."""

    text: str
    patterns: tuple[str, ...]  # of ids of cases; empty if the device's levels answer it

    @property
    def cases(self) -> Iterator[str]:
        """The ids of the cases that answer the question."""
        for case in all_cases():
            if any(fnmatchcase(case.id, pattern) for pattern in self.patterns):
                yield case.id


# The page has the questions in a table; the last one has no cases.
PAGE = Path(__file__).parents[2].joinpath("docs", "conformance.md").read_text("utf-8")
QUESTIONS = tuple(
    Question(text, tuple(re.findall(r"`(.*?)`", cases)))
    for text, cases in re.findall(r"^\| \d+ \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
)
