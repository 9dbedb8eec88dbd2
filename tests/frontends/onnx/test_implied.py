"""Slices that ONNX Runtime turns into splits."""

from typing import Any

import pytest

from dmlsplit.frontends import Implied, SplitSite
from tests.support.onnx_graphs import Scanned, model, node, sizes, value


def sliced(scanned: Scanned, shape: list[Any], *rows: tuple[int, ...]) -> list[SplitSite]:
    names = "starts ends axes steps".split()[: len(rows)]
    constants = tuple(sizes(name, *row) for name, row in zip(names, rows, strict=True))
    cut = node("Slice", f"x {' '.join(names)}", "y", name="cut")
    return scanned(model([cut], [value("x", shape)], initializers=constants))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((2,), (2**63 - 1,), (1,)), "axis 1: FLOAT32[3,6] -> FLOAT32[3,2], FLOAT32[3,4]"),
        (((-1,), (6,), (-1,), (1,)), "axis 1: FLOAT32[3,6] -> FLOAT32[3,5], FLOAT32[3,1]"),
        (((1, 0), (3, 6)), "axis 0: FLOAT32[3,6] -> FLOAT32[1,6], FLOAT32[2,6]"),
        # The other axis is cut too, so it is a Split whose outputs do not fit its input.
        (((1, 0), (3, 4)), "axis 0: FLOAT32[3,6] -> FLOAT32[1,6], FLOAT32[2,4]"),
    ],
)
def test_a_slice_that_cuts_off_the_front_is_a_split(scanned: Scanned, rows: Any, text: str) -> None:
    (found,) = sliced(scanned, [3, 6], *rows)
    assert str(found.state.descriptor) == f"SPLIT {text}"
    assert (found.operator, found.node, isinstance(found.state, Implied)) == ("Slice", "cut", True)


@pytest.mark.parametrize(
    "rows",
    [
        ((0,), (2,), (1,)),
        ((1,), (4,), (1,)),
        ((1,), (6,), (1,), (2,)),
        ((1, 1), (3, 6)),
        ((6,), (6,), (1,)),
        ((1,), (6,), (7,)),
    ],
)
def test_a_slice_that_does_not_cut_off_the_front_is_no_split(scanned: Scanned, rows: Any) -> None:
    assert sliced(scanned, [3, 6], *rows) == []
    assert sliced(scanned, ["n", 6], *rows) == []
