"""The standard ONNX nodes that replace a split.

A split that is refused for its rank, its 8-bit type, an empty piece or for making a
sequence becomes ``Reshape, Cast, Split, Cast, Reshape``, without the parts that it does
not need; empty pieces become constants, and ``SequenceConstruct`` makes the sequence.
64-bit types cannot be replaced so: BitCast-26 keeps the width of an element.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import UnsupportedError
from dmlsplit.lint.onnxruntime import MOST_DIMENSIONS
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Verdict

NewName = Callable[[str], str]

# Reshape takes its shape as an input since 5, Cast its type as a number since 6.
_LEAST_OPSET = 6


def name_maker(used: set[str]) -> NewName:
    """A function that makes a new name, ending in its argument, that `used` lacks."""
    prefix = "dmlsplit_"
    while any(name.startswith(prefix) for name in used):
        prefix += "_"
    numbers = count(1)
    return lambda what: f"{prefix}{next(numbers)}_{what}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replaces a split."""

    name: str
    shape: tuple[int, ...]  # of the input, as the new Split sees it
    axis: int  # in `shape`
    reshaped: bool  # whether `shape` is not the shape of the input
    cast: int  # TensorProto.DataType of the new Split; 0 for that of the input
    element_type: int  # TensorProto.DataType of the input
    sizes: tuple[int, ...]  # of all pieces, along the axis
    piece_shapes: tuple[tuple[int, ...], ...]  # as the model expects them
    restores_shape: bool  # whether the pieces of the new Split have other shapes
    sequence: bool  # whether the pieces become a sequence


def find_replacement(
    node: NodeProto, name: str, verdict: Verdict, target: Target, opset: int
) -> Replacement:
    """What replaces a refused split; the new one gets a name.

    Raises
    ------
    UnsupportedError
        If standard nodes cannot replace it, with the reason.
    """
    site = verdict.site
    _check_curable(verdict, opset)
    sizes, axis = tuple(size for size in site.shape if isinstance(size, int)), site.axis
    before, after = sizes[:axis], sizes[axis + 1 :]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    sequence = node.op_type == "SplitToSequence"
    has_sizes = len(node.input) > 1 and bool(node.input[1])
    squeezed = sequence and not has_sizes and not attributes.get("keepdims", 1)
    support = capability_table()[target.level].input_tensor
    least, most = support.minimum_dimensions, support.maximum_dimensions
    if target.via == "ort":
        least, most = 1, MOST_DIMENSIONS
    reshaped = not least <= len(sizes) <= most
    return Replacement(
        name=name,
        shape=(1, prod(before), sizes[axis], prod(after)) if reshaped else sizes,
        axis=2 if reshaped else axis,
        reshaped=reshaped,
        cast=_cast(site.descriptors[0].input_tensor.data_type, support.data_types),
        element_type=onnx.TensorProto.DataType.Value(site.element_type),
        sizes=site.pieces,
        piece_shapes=tuple((*before, *([] if squeezed else [n]), *after) for n in site.pieces),
        restores_shape=reshaped or squeezed,
        sequence=sequence,
    )


def _check_curable(verdict: Verdict, opset: int) -> None:
    site = verdict.site
    for diagnostic in verdict.diagnostics:
        if diagnostic.severity == "error" and "model" not in diagnostic.rule.cured_by:
            raise UnsupportedError(f"{diagnostic.rule.id}: {diagnostic.message}")
    if len(site.descriptors) != 1 or not site.pieces or not site.element_type:
        raise UnsupportedError("its sizes are known only when the model runs")
    if opset < _LEAST_OPSET:
        raise UnsupportedError(f"the model has opset {opset}; rewriting needs {_LEAST_OPSET}")
    if site.element_type.startswith("COMPLEX"):
        raise UnsupportedError("standard ONNX cannot show complex elements as other ones")


def _cast(kind: TensorDataType, supported: frozenset[TensorDataType]) -> int:
    """The type that carries every value of `kind`, or 0 if `kind` itself is supported."""
    if kind in supported:
        return 0
    if kind.bits < 32 and TensorDataType.INT32 in supported:
        return int(onnx.TensorProto.INT32)
    raise UnsupportedError(
        f"standard ONNX cannot show {kind.name} elements as narrower ones: Cast loses bits, and "
        "BitCast keeps the width"
    )


def replacement_nodes(
    node: NodeProto, new: Replacement, new_name: NewName, opset: int
) -> Iterator[NodeProto]:
    """The nodes that replace a split, in the order in which they run."""
    value = node.input[0]
    if new.reshaped:
        rows = new_name("rows")
        yield from _reshape(value, rows, new.shape, new_name)
        value = rows
    if new.cast:
        wide = new_name("wide")
        yield helper.make_node("Cast", [value], [wide], to=new.cast)
        value = wide
    pieces = [new_name("piece") for _ in new.sizes] if new.sequence else list(node.output)
    # Split makes the pieces themselves where nothing has to be undone. A piece that the model
    # does not use has no name, but Split must make it.
    direct = not new.cast and not new.restores_shape
    parts = {
        at: pieces[at] if direct and pieces[at] else new_name("part")
        for at, shape in enumerate(new.piece_shapes)
        if 0 not in shape
    }
    yield from _split(value, parts, new, new_name, opset)
    for at, (piece, shape) in enumerate(zip(pieces, new.piece_shapes, strict=True)):
        if piece and at in parts:
            yield from _restored(parts[at], piece, shape, new, new_name)
        elif piece:
            kind = helper.tensor_dtype_to_np_dtype(new.element_type)
            yield _constant(np.empty(shape, kind), piece)
    if new.sequence:
        yield helper.make_node("SequenceConstruct", pieces, list(node.output))


def _split(
    value: str, parts: Mapping[int, str], new: Replacement, new_name: NewName, opset: int
) -> Iterator[NodeProto]:
    sizes, outputs = [new.sizes[at] for at in parts], list(parts.values())
    if opset < 13:
        yield helper.make_node("Split", [value], outputs, new.name, axis=new.axis, split=sizes)
        return
    given = new_name("sizes")
    yield _constant(np.array(sizes, np.int64), given)
    yield helper.make_node("Split", [value, given], outputs, new.name, axis=new.axis)


def _restored(
    part: str, piece: str, shape: tuple[int, ...], new: Replacement, new_name: NewName
) -> Iterator[NodeProto]:
    """The nodes that turn an output of Split into the piece that the model expects."""
    if new.cast:
        narrow = new_name("narrow") if new.restores_shape else piece
        yield helper.make_node("Cast", [part], [narrow], to=new.element_type)
        part = narrow
    if new.restores_shape:
        yield from _reshape(part, piece, shape, new_name)


def _reshape(
    value: str, output: str, shape: tuple[int, ...], new_name: NewName
) -> Iterator[NodeProto]:
    wanted = new_name("shape")
    yield _constant(np.array(shape, np.int64), wanted)
    yield helper.make_node("Reshape", [value, wanted], [output])


def _constant(value: np.ndarray, name: str) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
