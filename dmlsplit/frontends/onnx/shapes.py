"""Infers the shapes of an ONNX graph's values with a few cheap rules.

ONNX's own shape inference is not used: some malformed models make it end the process.
Anything these rules cannot infer stays unknown and is reported as such. They check nothing:
a node that breaks its operator's rules has outputs of unknown shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np

from dmlsplit.checks import axis_from_front
from dmlsplit.frontends.onnx.messages import MAXIMUM_RANK, Attribute, Node, Shape, Tensor, ValueInfo
from dmlsplit.frontends.onnx.operators import ElementType

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value.

    Attributes
    ----------
    data_type : int
        TensorProto.DataType; 0 if unknown.
    shape : tuple of (int or str), or None
        None if the rank is unknown; a text names a dynamic size.
    constant : Tensor, tuple of int, int or None
        Its elements or their tensor, if they are constant.
    """

    data_type: int = 0
    shape: Shape | None = None
    constant: Tensor | tuple[int, ...] | int | None = None


UNKNOWN = Value()
# Reads the elements of a value; None if they are not constant, or not readable.
Content = Callable[[Value], np.ndarray | None]
_Number = TypeVar("_Number", int, tuple[int, ...])
_Rule = Callable[[Node, Sequence[Value], Content], Shape | None]


def tensor_value(tensor: Tensor) -> Value:
    """Return what is known of the value of a tensor in the model."""
    return Value(tensor.data_type, tensor.shape, tensor)


def declared_value(declared: ValueInfo) -> Value:
    """Return what is known of a value from its declaration."""
    return Value(declared.data_type, declared.shape)


def merged(found: Value, declared: ValueInfo | None) -> Value:
    """Complete what was inferred of a value with what the model declares."""
    if declared is None:
        return found
    shape = found.shape
    if shape is None:
        shape = declared.shape
    elif declared.shape is not None and len(declared.shape) == len(shape):
        pairs = zip(shape, declared.shape, strict=True)
        shape = tuple(
            one if isinstance(one, int) or other == "?" else other for one, other in pairs
        )
    return replace(found, data_type=found.data_type or declared.data_type, shape=shape)


def outputs(node: Node, inputs: Sequence[Value], content: Content) -> list[Value]:
    """Return what is known of the outputs of a node of the default domain."""
    if node.op_type == "Constant":
        return [_constant(node)]
    if node.op_type == "Identity" and inputs:
        return [inputs[0]]
    rule = _RULES.get(node.op_type)
    if rule is None or not inputs:
        return []
    try:
        shape = rule(node, inputs, content)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        shape = None
    if shape is not None and not _plausible(shape):
        shape = None
    if node.op_type == "Cast":
        kind = _number(node, "to", 0)
    else:
        kind = inputs[1 if node.op_type == "Where" and len(inputs) > 1 else 0].data_type
    return [Value(kind, shape)]


def _plausible(shape: Shape) -> bool:
    """Whether a shape stays within what ONNX can write, so that hostile ones do not grow."""
    sizes = [size for size in shape if isinstance(size, int)]
    return len(shape) <= MAXIMUM_RANK and all(0 <= size <= INT64_MAX for size in sizes)


def _constant(node: Node) -> Value:
    attributes = node.attributes
    if "value" in attributes and attributes["value"].t is not None:
        return tensor_value(attributes["value"].t)
    for name in ("value_int", "value_ints"):
        number = attributes[name].value if name in attributes else None
        if number is not None:
            shape = () if isinstance(number, int) else (len(number),)
            return Value(ElementType.INT64, shape, number)
    return UNKNOWN


def _number(node: Node, name: str, default: _Number) -> _Number:
    """Return an attribute that is an integer or a tuple of integers, as its default is."""
    value = node.attributes.get(name, Attribute(name)).value
    return value if isinstance(value, type(default)) else default


def _given(node: Node, name: str, inputs: Sequence[Value], at: int, content: Content) -> list[int]:
    """Return integers that are an attribute in old opsets and an input in new ones."""
    if name in node.attributes:
        return list(_number(node, name, ()))
    found = content(inputs[at]) if len(inputs) > at else None
    if found is None or found.dtype.kind != "i":
        raise ValueError(name)
    return [int(value) for value in found.reshape(-1)]


def _known(value: Value) -> Shape:
    if value.shape is None:
        raise ValueError("unknown rank")
    return value.shape


def _same(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    return inputs[0].shape


def _broadcast(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    shapes = [_known(value) for value in inputs]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(map(_broadcast_size, zip(*padded, strict=True)))


def _broadcast_size(sizes: tuple[int | str, ...]) -> int | str:
    wide = set(sizes) - {1}
    numbers = {size for size in wide if isinstance(size, int)}
    if len(numbers) > 1:
        raise ValueError("sizes do not broadcast")
    # A dynamic size beside a number above 1 must be that number, or 1.
    if numbers:
        return numbers.pop()
    return "?" if len(wide) > 1 else next(iter(wide), 1)


def _reshape(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    wanted = _given(node, "shape", inputs, 1, content)
    shape = _known(inputs[0]) if 0 in wanted or -1 in wanted else ()
    keeps_zero = _number(node, "allowzero", 0) == 1
    sizes = [shape[i] if n == 0 and not keeps_zero else n for i, n in enumerate(wanted)]
    if -1 in sizes:
        at = sizes.index(-1)
        rest = [n for n in sizes if n != -1]
        sizes[at] = _rest(list(shape), rest)
    return tuple(sizes)


def _rest(before: list[int | str], after: list[int | str]) -> int | str:
    """Return the size that -1 stands for; sizes that are the same on both sides cancel."""
    for size in after[:]:
        if isinstance(size, str) and size != "?" and size in before:
            before.remove(size)
            after.remove(size)
    total = [n for n in before if isinstance(n, int)]
    parts = [n for n in after if isinstance(n, int)]
    if len(total) < len(before) or len(parts) < len(after):
        return "?"
    size, rest = divmod(prod(total), prod(parts))
    if rest:
        raise ValueError("sizes do not divide")
    return size


def _transpose(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    shape = _known(inputs[0])
    order = _number(node, "perm", tuple(reversed(range(len(shape)))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError("perm")
    return tuple(shape[i] for i in order)


def _flatten(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    shape = _known(inputs[0])
    axis = _number(node, "axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ValueError("axis")
    return tuple(
        prod(n for n in side if isinstance(n, int)) if _all_known(side) else "?"
        for side in (shape[:axis], shape[axis:])
    )


def _all_known(sizes: Shape) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _unsqueeze(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    axes = _given(node, "axes", inputs, 1, content)
    shape = list(_known(inputs[0]))
    rank = len(shape) + len(axes)
    for axis in sorted(axis_from_front(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    return tuple(shape)


def _squeeze(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    shape = _known(inputs[0])
    axes = {axis_from_front(axis, len(shape)) for axis in _given(node, "axes", inputs, 1, content)}
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _concat(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    shapes = [_known(value) for value in inputs]
    axis = axis_from_front(_number(node, "axis", 0), len(shapes[0]))
    along = [shape[axis] for shape in shapes]
    total = sum(n for n in along if isinstance(n, int)) if _all_known(tuple(along)) else "?"
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def _matmul(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    left, right = (_known(value) for value in inputs[:2])
    if len(left) < 2 or len(right) < 2:
        raise ValueError("vectors")
    batch = _broadcast(node, [Value(0, left[:-2]), Value(0, right[:-2])], content)
    return (*(batch or ()), left[-2], right[-1])


def _gemm(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    left, right = (_known(value) for value in inputs[:2])
    rows = left[1 if _number(node, "transA", 0) else 0]
    return (rows, right[0 if _number(node, "transB", 0) else 1])


def _conv(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    weights = _known(inputs[1])
    batch, _, *spatial = _known(inputs[0])
    return (batch, weights[0], *_windows(node, tuple(spatial), weights[2:]))


def _pool(node: Node, inputs: Sequence[Value], content: Content) -> Shape | None:
    batch, channels, *spatial = _known(inputs[0])
    kernel = _number(node, "kernel_shape", ())
    if _number(node, "ceil_mode", 0):
        raise ValueError("ceil_mode")
    return (batch, channels, *_windows(node, tuple(spatial), kernel))


def _windows(node: Node, spatial: Shape, kernel: Shape) -> list[int | str]:
    """Return the sizes after sliding a window with explicit padding (ONNX, Conv)."""
    rank = len(spatial)
    strides = _number(node, "strides", (1,) * rank)
    dilations = _number(node, "dilations", (1,) * rank)
    pads = _number(node, "pads", (0,) * (2 * rank))
    if "auto_pad" in node.attributes and "pads" not in node.attributes:
        raise ValueError("auto_pad")
    rows = zip(spatial, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [
        (size + low + high - dilation * (window - 1) - 1) // stride + 1
        if isinstance(size, int) and isinstance(window, int)
        else "?"
        for size, window, stride, dilation, low, high in rows
    ]


_SAME = (
    "Abs BatchNormalization BitwiseNot Cast Ceil Celu Clip Cos CumSum Dropout Elu Erf Exp Floor "
    "Gelu GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization LRN "
    "LayerNormalization LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish "
    "Neg Not PRelu RMSNormalization Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softmax "
    "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu"
).split()
_BROADCAST = (
    "Add And BitwiseAnd BitwiseOr Div Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"
).split()

_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_BROADCAST, _broadcast),
    "AveragePool": _pool,
    "Concat": _concat,
    "Conv": _conv,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
