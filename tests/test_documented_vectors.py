"""Published splits of other projects, as shapes, sizes or counts, and axes."""

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.arrays import assert_same, random_bits

# The worked examples of DML_SPLIT_OPERATOR_DESC's documentation, and DxDispatch's dml_split.json.
DIRECTML = [((1, 1, 6, 2), (2, 1, 3), 2), ((1, 1, 6, 2), (1, 1), 3), ((6,), (2, 2, 2), 0)]
# Chromium, WebNNGraphDMLImplTest, BuildAndComputeSingleOperatorSplit and WithSplitAndReshape.
CHROMIUM = [
    ((2, 1, 3, 4), (1, 1), 0),
    ((1, 2, 3, 4), (1, 1), 1),
    ((2, 1, 3, 4), (1, 2), 2),
    ((2, 1, 3, 4), (2, 2), 3),
    ((2, 5), (2, 3), 1),
]
# webnn-native, SplitTests.cpp; PyDirectML (aisk), tests/test_operators.py.
WEBNN_NATIVE = [((6,), (2, 2, 2), 0), ((6,), (2, 4), 0), ((2, 6), (3, 3), 1), ((2, 6), (2, 4), 1)]
PYDIRECTML = [((1, 1, 2, 3), (1, 2), 3)]
# Web Platform Tests, webnn/conformance_tests/split.https.any.js: shapes, 24 values, 0 ULP.
WPT = [
    ((24,), 3, 0),
    ((8, 3), 2, 0),
    ((4, 3, 2), 2, 0),
    ((12, 1, 1, 2), 4, 0),
    ((12, 1, 1, 2), (3, 3, 3, 3), 0),
    ((12, 1, 1, 2), 3, 0),
    ((6, 1, 1, 2, 2), 2, 0),
    ((1, 1, 6, 2, 2), (3, 3), 2),
    ((6, 1, 1, 2, 2), (2, 4), 0),
]
# tfdml, test/ops/split_op_test.py: empty pieces, one output, many pieces, large.
TFDML = [
    ((8, 0, 21), 2, 0),
    ((8, 0, 21), 4, 1),
    ((8, 0, 21), 7, 2),
    ((4, 4), (0, 4), 0),
    ((4, 4), (4, 0), 1),
    *[((4, 5, 2, 3), 1, axis) for axis in range(-4, 4)],
    ((6, 10, 18), 3, 0),
    ((6, 7, 18), 3, 0),
    ((6, 7, 9), 3, 0),
    ((1, 64, 32768), 64, 1),
    ((1, 64, 32768), (32, 16, 8, 4, 2, 1, 1), 1),
    ((3, 1499), (*(1 + i % 2 for i in range(999)), 1), 1),
]


@pytest.mark.parametrize("kind", ["f4", "i1", "i8"])
@pytest.mark.parametrize(
    ("shape", "cut", "axis"), [*DIRECTML, *CHROMIUM, *WEBNN_NATIVE, *PYDIRECTML, *WPT, *TFDML]
)
def test_shapes_of_published_tests_are_split_like_numpy(
    shape: tuple[int, ...], cut: int | tuple[int, ...], axis: int, kind: str
) -> None:
    array = random_bits(shape, kind)
    at = cut if isinstance(cut, int) else np.cumsum(cut)[:-1]
    wanted = np.split(array, at, axis)
    assert_same(dml.split(array, cut, axis), wanted)
    if not any(0 in piece.shape for piece in wanted):
        x = dml.TensorDesc(array.dtype, shape)
        sizes = [piece.shape[axis] for piece in wanted]
        desc = dml.SplitOperatorDesc.from_sizes(x, axis=range(len(shape))[axis], sizes=sizes)
        assert_same(dml.Device("cpu").compile(desc)(array), wanted)


# Calls that must throw according to the same tests.
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


def test_halves_of_a_gated_linear_unit_are_neither_swapped_nor_aliased() -> None:
    """ONNX Runtime issue 32146: swapped or aliased halves would give about -0.2785 here."""
    array = np.concatenate([np.zeros(4096), np.linspace(-4, 4, 4096)]).astype("f4")[None]
    value, gate = dml.split(array, 2, axis=-1)
    assert not (value * (1 / (1 + np.exp(-gate)))).any()
