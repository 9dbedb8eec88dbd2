"""Shapes after windows and resizes agree with ONNX Runtime, where onnx's inference errs."""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlsplit.frontends import Known
from tests.support.models import session
from tests.support.onnx_graphs import Scanned, model, node, value

Shape = tuple[int, ...]


class Case(NamedTuple):
    """An operator with windows or sizes on an input, with constants for its other inputs."""

    operator: str
    shape: Shape
    attributes: dict[str, Any]
    constants: tuple[Any, ...] = ()

    def built(self, index: int) -> tuple[Any, Any, list[Any]]:
        """The input, the node and the constants, with names that no other case has."""
        tensors = [
            numpy_helper.from_array(constant, f"c{index}_{number}")
            for number, constant in enumerate(self.constants)
        ]
        names = [tensor.name for tensor in tensors]
        window_node = node(self.operator, "", f"y{index}", **self.attributes)
        # The region of interest of a Resize comes before its sizes or scales.
        window_node.input.extend(
            [f"x{index}", *([""] if self.operator == "Resize" else []), *names]
        )
        return value(f"x{index}", list(self.shape)), window_node, tensors


def run(case: Case, opset: int) -> Shape | None:
    """The shape that ONNX Runtime computes; None if it refuses the node."""
    window_input, window_node, tensors = case.built(0)
    tensors = tuple(tensors)
    content = model(
        [window_node], [window_input], initializers=tensors, opsets={"": opset}, outputs="y0"
    )
    content.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    try:
        # An optimized graph would use sizes from onnx's inference.
        runtime_session = session(content, is_optimized=False)
        (output,) = runtime_session.run(None, {"x0": np.zeros(case.shape, np.float32)})
    except Exception:
        return None
    return tuple(output.shape)


def drawn(random: Random, opset: int) -> Iterator[Case]:
    """Operators with random parameters, some of them wrong and therefore refused."""
    for _ in range(60):
        yield from (_pool(random, opset), _transposed(random), _resized(random))


def _some(random: Random, count: int, low: int, high: int) -> list[int]:
    return [random.randint(low, high) for _ in range(count)]


def _window(random: Random) -> tuple[Shape, dict[str, Any]]:
    rank = random.choice([1, 2])
    attributes: dict[str, Any] = {"kernel_shape": _some(random, rank, 1, 3)}
    attributes["strides"] = _some(random, rank, 1, 4)
    if random.random() < 0.5:
        attributes["pads"] = _some(random, 2 * rank, 0, 2)
    else:
        attributes["auto_pad"] = random.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    return (1, 2, *_some(random, rank, 1, 9)), attributes


def _pool(random: Random, opset: int) -> Case:
    operators = ["MaxPool", "AveragePool"] if opset < 18 else ["MaxPool", "AveragePool", "LpPool"]
    operator = random.choice(operators)
    shape, attributes = _window(random)
    if random.random() < 0.7:
        attributes["ceil_mode"] = 1
    if random.random() < 0.3 and (operator == "MaxPool" or opset > 18):
        attributes["dilations"] = _some(random, len(shape) - 2, 1, 3)
    return Case(operator, shape, attributes)


def _transposed(random: Random) -> Case:
    shape, attributes = _window(random)
    rank = len(shape) - 2
    if random.random() < 0.4:
        attributes["output_padding"] = _some(random, rank, 0, 1)
    if random.random() < 0.3:
        attributes["output_shape"] = _some(random, rank, 1, 14)
    weights = np.zeros((2, 3, *attributes["kernel_shape"]), np.float32)
    return Case("ConvTranspose", shape, attributes, (weights,))


def _resized(random: Random) -> Case:
    shape = tuple(_some(random, 2, 1, 40))
    scales = [random.choice([0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.6, 1 / 3]) for _ in shape]
    return Case("Resize", shape, {"mode": "nearest"}, (np.array(scales, np.float32),))


# Cases whose shape is known, and that shape.
CEIL: dict[str, Any] = {"ceil_mode": 1}
KNOWN = [
    (Case("MaxPool", (1, 1, 4), CEIL | {"kernel_shape": [1], "strides": [2]}), (1, 1, 2)),
    (Case("MaxPool", (1, 1, 5), CEIL | {"kernel_shape": [2], "strides": [2]}), (1, 1, 3)),
    (
        Case(
            "AveragePool", (1, 1, 7), CEIL | {"kernel_shape": [2], "strides": [3], "pads": [1] * 2}
        ),
        (1, 1, 3),
    ),
]


@pytest.mark.parametrize("opset", [12, 18, 21, 22])
def test_a_shape_is_that_of_onnx_runtime_or_unknown(scanned: Scanned, opset: int) -> None:
    known_cases, known_shapes = zip(*KNOWN, strict=True)
    cases = [*known_cases, *drawn(Random(opset), opset)]
    nodes, inputs, constants = [], [], []
    for index, case in enumerate(cases):
        window_input, window_node, tensors = case.built(index)
        whole = {"num_outputs": 1} if opset >= 18 else {}
        nodes += [window_node, node("Split", f"y{index}", f"z{index}", **whole)]
        inputs.append(window_input)
        constants += tensors
    content = model(nodes, inputs, initializers=tuple(constants), opsets={"": opset})
    sites = scanned(content)
    rows = zip(cases, sites, [run(case, opset) for case in cases], strict=True)
    accepted_rows = [(case, site, shape) for case, site, shape in rows if shape is not None]
    wrong = [
        (case, site.shape, shape)
        for case, site, shape in accepted_rows
        if isinstance(site.state, Known) and site.shape != shape
    ]
    assert not wrong
    # A shape that is not doubtful is still known.
    assert (
        sum(isinstance(site.state, Known) for _, site, _ in accepted_rows) > len(accepted_rows) / 3
    )
    assert tuple(site.shape for site in sites[: len(KNOWN)]) == known_shapes
