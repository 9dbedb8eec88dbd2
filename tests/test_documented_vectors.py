"""Published splits of other projects, bit for bit. Inputs count from 1, in row-major order."""

from dataclasses import dataclass

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.each import each


@dataclass
class Vector:
    """One published split."""

    source: str
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    outputs: list[list[int]]

    def __str__(self) -> str:
        return f"{self.source} {self.shape} axis {self.axis} {self.sizes}"


def counted(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


VECTORS = [
    # The worked examples of DML_SPLIT_OPERATOR_DESC's documentation.
    Vector("DirectML", (1, 1, 6, 2), 2, (2, 1, 3), [[1, 2, 3, 4], [5, 6], counted(7, 12)]),
    Vector("DirectML", (1, 1, 6, 2), 3, (1, 1), [[1, 3, 5, 7, 9, 11], [2, 4, 6, 8, 10, 12]]),
    # DxDispatch, models/dml_split.json.
    Vector("DxDispatch", (6,), 0, (2, 2, 2), [[1, 2], [3, 4], [5, 6]]),
    # Chromium, WebNNGraphDMLImplTest, BuildAndComputeSingleOperatorSplit and WithSplitAndReshape.
    Vector("Chromium", (2, 1, 3, 4), 0, (1, 1), [counted(1, 12), counted(13, 24)]),
    Vector("Chromium", (1, 2, 3, 4), 1, (1, 1), [counted(1, 12), counted(13, 24)]),
    Vector(
        "Chromium",
        (2, 1, 3, 4),
        2,
        (1, 2),
        [[1, 2, 3, 4, 13, 14, 15, 16], [*counted(5, 12), *counted(17, 24)]],
    ),
    Vector(
        "Chromium",
        (2, 1, 3, 4),
        3,
        (2, 2),
        [[1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22], [3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23, 24]],
    ),
    Vector("Chromium", (2, 5), 1, (2, 3), [[1, 2, 6, 7], [3, 4, 5, 8, 9, 10]]),
    # webnn-native, SplitTests.cpp.
    Vector("webnn-native", (6,), 0, (2, 2, 2), [[1, 2], [3, 4], [5, 6]]),
    Vector("webnn-native", (6,), 0, (2, 4), [[1, 2], [3, 4, 5, 6]]),
    Vector("webnn-native", (2, 6), 1, (3, 3), [[1, 2, 3, 7, 8, 9], [4, 5, 6, 10, 11, 12]]),
    Vector("webnn-native", (2, 6), 1, (2, 4), [[1, 2, 7, 8], [3, 4, 5, 6, 9, 10, 11, 12]]),
    # PyDirectML (aisk), tests/test_operators.py.
    Vector("PyDirectML", (1, 1, 2, 3), 3, (1, 2), [[1, 4], [2, 3, 5, 6]]),
]


@pytest.mark.parametrize("vector", VECTORS, ids=str)
@each(data_type=["FLOAT32", "FLOAT16", "INT32", "UINT16", "INT8", "INT64"])
def test_vectors_of_published_tests_are_reproduced(vector: Vector, data_type: str) -> None:
    array = np.arange(1, np.prod(vector.shape) + 1).reshape(vector.shape).astype(data_type.lower())
    x = dml.TensorDesc(data_type, vector.shape)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=vector.axis, sizes=vector.sizes)
    for outputs in (
        dml.Device("cpu").compile(desc)(array),
        dml.split(array, vector.sizes, vector.axis),
    ):
        assert [output.ravel().tolist() for output in outputs] == vector.outputs
        assert [output.shape for output in outputs] == [t.sizes for t in desc.output_tensors]


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


@pytest.mark.parametrize(("shape", "cut", "axis"), [*WPT, *TFDML])
def test_shapes_of_published_tests_are_split_like_numpy(
    shape: tuple[int, ...], cut: int | tuple[int, ...], axis: int
) -> None:
    raw = np.random.default_rng(3).bytes(int(np.prod(shape)) * 4)
    array = np.frombuffer(raw, np.float32).reshape(shape)
    at = cut if isinstance(cut, int) else np.cumsum(cut)[:-1]
    pieces = dml.split(array, cut, axis)
    for found, wanted in zip(pieces, np.split(array, at, axis), strict=True):
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()


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
