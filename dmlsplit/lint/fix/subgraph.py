"""The standard ONNX nodes that take the place of a split.

A split that is refused for its rank, its 8-bit type, an empty piece or for making a
sequence becomes ``Reshape, Cast, Split, Cast, Reshape``, of which each part is left out
where it is not needed; empty pieces become constants and ``SequenceConstruct`` makes the
sequence. 64-bit types have no such way: BitCast-26 keeps the width of an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import UnsupportedError
from dmlsplit.lint.judge import Verdict
from dmlsplit.lint.onnxruntime import MOST_DIMENSIONS
from dmlsplit.lint.target import Target

# Reshape takes its shape as an input since 5, Cast its type as a number since 6.
_LEAST_OPSET = 6
_CURABLE = {
    "DML-LEVEL-DATA-TYPE",
    "DML-LEVEL-DIMENSION-COUNT",
    "DML-TENSOR-DIMENSION-COUNT",
    "ORT-DIMENSION-COUNT",
    "ORT-EMPTY-PIECE",
    "ORT-SEQUENCE",
}


class Names:
    """Makes names that no value of a model has.

    Parameters
    ----------
    used
        All names of its values.
    """

    def __init__(self, used: set[str]) -> None:
        self._prefix = "dmlsplit_"
        while any(name.startswith(self._prefix) for name in used):
            self._prefix += "_"
        self._count = 0

    def new(self, what: str) -> str:
        """Return a name that says what it is."""
        self._count += 1
        return f"{self._prefix}{self._count}_{what}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """The subgraph that takes the place of a split."""

    shape: tuple[int, ...]  # what Split sees
    axis: int
    reshaped: bool
    cast: int  # TensorProto.DataType that Split sees; 0 for the model's own
    element_type: int
    sizes: tuple[int, ...]  # of all pieces
    piece_shapes: tuple[tuple[int, ...], ...]  # what the model sees
    squeezed: bool
    sequence: bool
    name: str

    @property
    def restores_shape(self) -> bool:
        """Whether Split's pieces do not have the shapes that the model expects."""
        return self.reshaped or self.squeezed


def plan_subgraph(node: NodeProto, verdict: Verdict, target: Target, opset: int) -> Replacement:
    """Plan the replacement of a refused split.

    Raises
    ------
    UnsupportedError
        If standard nodes cannot do it, with the reason.
    """
    site = verdict.site
    _check_curable(verdict, opset)
    sizes, axis = site.shape, site.axis
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    sequence = node.op_type == "SplitToSequence"
    has_split = len(node.input) > 1 and bool(node.input[1])
    squeezed = sequence and not has_split and not attributes.get("keepdims", 1)
    before, behind = sizes[:axis], sizes[axis + 1 :]
    support = capability_table()[target.level].input_tensor
    least, most = support.minimum_dimensions, support.maximum_dimensions
    if target.via == "ort":
        least, most = 1, MOST_DIMENSIONS
    reshaped = not least <= len(sizes) <= most
    return Replacement(
        (1, prod(before), sizes[axis], prod(behind)) if reshaped else sizes,
        2 if reshaped else axis,
        reshaped,
        _cast(site.descriptors[0].input_tensor.data_type, support.data_types),
        onnx.TensorProto.DataType.Value(site.element_type),
        site.pieces,
        tuple((*before, *([] if squeezed else [n]), *behind) for n in site.pieces),
        squeezed,
        sequence,
        node.name,
    )


def _check_curable(verdict: Verdict, opset: int) -> None:
    site = verdict.site
    for diagnostic in verdict.diagnostics:
        if diagnostic.severity == "error" and diagnostic.rule.id not in _CURABLE:
            raise UnsupportedError(f"{diagnostic.rule.id}: {diagnostic.message}")
    if len(site.descriptors) != 1 or not site.pieces or not site.element_type:
        raise UnsupportedError("its sizes are known only when the model runs")
    if opset < _LEAST_OPSET:
        raise UnsupportedError(f"the model has opset {opset}; rewriting needs {_LEAST_OPSET}")
    if site.element_type.startswith("COMPLEX"):
        raise UnsupportedError("standard ONNX cannot show complex elements as other ones")


def _cast(kind: TensorDataType, supported: frozenset[TensorDataType]) -> int:
    """Return the type that carries every value of `kind`, or 0 if `kind` itself is supported."""
    if kind in supported:
        return 0
    if kind.bits < 32 and TensorDataType.INT32 in supported:
        return int(onnx.TensorProto.INT32)
    raise UnsupportedError(
        f"standard ONNX cannot show {kind.name} elements as narrower ones: Cast loses bits, and "
        "BitCast keeps the width"
    )


def subgraph(node: NodeProto, plan: Replacement, names: Names, opset: int) -> Iterator[NodeProto]:
    """Yield the subgraph, in the order in which it runs."""
    source = node.input[0]
    if plan.reshaped:
        source, given = names.new("rows"), source
        yield from _reshape(given, source, plan.shape, names)
    if plan.cast:
        source, given = names.new("wide"), source
        yield helper.make_node("Cast", [given], [source], to=plan.cast)
    count = len(plan.sizes)
    targets = [names.new("piece") for _ in range(count)] if plan.sequence else list(node.output)
    direct = not plan.cast and not plan.restores_shape
    solid = {
        at: (direct and targets[at]) or names.new("part")
        for at, shape in enumerate(plan.piece_shapes)
        if 0 not in shape
    }
    yield from _split(source, solid, plan, names, opset)
    for at, target in enumerate(targets):
        if target and at in solid:
            yield from _restored(solid[at], target, plan.piece_shapes[at], plan, names)
        elif target:
            kind = helper.tensor_dtype_to_np_dtype(plan.element_type)
            yield _constant(np.empty(plan.piece_shapes[at], kind), target)
    if plan.sequence:
        yield helper.make_node("SequenceConstruct", targets, list(node.output))


def _split(
    source: str, parts: Mapping[int, str], plan: Replacement, names: Names, opset: int
) -> Iterator[NodeProto]:
    sizes = [plan.sizes[at] for at in parts]
    outputs = list(parts.values())
    if opset < 13:
        yield helper.make_node("Split", [source], outputs, plan.name, axis=plan.axis, split=sizes)
        return
    given = names.new("sizes")
    yield _constant(np.array(sizes, np.int64), given)
    yield helper.make_node("Split", [source, given], outputs, plan.name, axis=plan.axis)


def _restored(
    part: str, target: str, shape: tuple[int, ...], plan: Replacement, names: Names
) -> Iterator[NodeProto]:
    """Yield what turns a part into the piece that the model expects."""
    if plan.cast:
        narrow = names.new("narrow") if plan.restores_shape else target
        yield helper.make_node("Cast", [part], [narrow], to=plan.element_type)
        part = narrow
    if plan.restores_shape:
        yield from _reshape(part, target, shape, names)


def _reshape(source: str, target: str, shape: tuple[int, ...], names: Names) -> Iterator[NodeProto]:
    wanted = names.new("shape")
    yield _constant(np.array(shape, np.int64), wanted)
    yield helper.make_node("Reshape", [source, wanted], [target])


def _constant(value: np.ndarray, name: str) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
