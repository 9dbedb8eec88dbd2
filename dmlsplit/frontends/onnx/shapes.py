"""Infers the shapes of an ONNX graph's values with a few cheap rules.

ONNX's own shape inference is not used: some malformed models make it end the process.
Anything these rules cannot infer stays unknown and is reported as such. They check nothing:
a node that breaks its operator's rules has outputs of unknown shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from dmlsplit.checks import axis_from_front
from dmlsplit.frontends.onnx.constants import Constant
from dmlsplit.frontends.onnx.meetings import Pieces
from dmlsplit.frontends.onnx.messages import MAXIMUM_RANK, Attribute, Node, Shape
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.site import Cause, NotKnownError

INT64_MAX = 2**63 - 1
# Returns the elements of a small constant, or raises a WireError.
Read = Callable[[Constant], np.ndarray]


class Gap(NamedTuple):
    """What made a shape unknown, where a value does not say it itself."""

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value."""

    data_type: int = 0  # TensorProto.DataType; 0 if unknown
    # None if the rank is unknown; a text names a dynamic size.
    shape: Shape | None = None
    constant: Constant | None = None  # None if the elements are not constant
    gap: Gap | None = None  # None if its shape is known, or derives from dynamic inputs
    pieces: Pieces = frozenset()  # of splits, from which it derives element by element

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def gap_error(self, dynamic: str) -> NotKnownError:
        """Return an error that says what made the shape unknown; else what is dynamic."""
        if self.gap is None:
            return NotKnownError(dynamic, Cause.DYNAMIC)
        return NotKnownError(self.gap.text, self.gap.cause)


UNKNOWN = Value()
_Number = TypeVar("_Number", int, tuple[int, ...])


def merged(found: Value, declared: Value | None) -> Value:
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


def traced(found: Value, inputs: Sequence[Value], here: Callable[[], Gap]) -> Value:
    """Complete an output of a node with what made its shape unknown: `here` if not a gap before."""
    if found.is_static or found.gap:
        return found
    before = next((value.gap for value in inputs if value.gap), None)
    # The rank is lost here, or a size is that all inputs have.
    if before is None and (found.shape is None or all(value.is_static for value in inputs)):
        before = here()
    return replace(found, gap=before) if before else found


class Call(NamedTuple):
    """A node with what is known of its inputs. What it lacks is a ValueError or IndexError."""

    node: Node
    inputs: Sequence[Value]
    read: Read

    def shape(self, at: int) -> Shape:
        """Return the shape of an input."""
        shape = self.inputs[at].shape
        if shape is None:
            raise ValueError("unknown rank")
        return shape

    def number(self, name: str, default: _Number) -> _Number:
        """Return an attribute that is an integer or a tuple of integers, as its default is."""
        value = self.node.attributes.get(name, Attribute()).value
        return value if isinstance(value, type(default)) else default

    def integers(self, name: str, at: int = 1) -> Sequence[int]:
        """Return integers that are an attribute in old opsets and an input in new ones."""
        if name in self.node.attributes:
            return self.number(name, ())
        constant = self.inputs[at].constant
        if constant is None:
            raise ValueError(name)
        values = self.read(constant)
        if values.dtype.kind != "i":
            raise ValueError(name)
        return [int(value) for value in values.reshape(-1)]


def outputs(node: Node, inputs: Sequence[Value], read: Read) -> list[Value]:
    """Return what is known of the outputs of a node of the default domain."""
    if node.op_type == "Constant":
        return [_constant(node)]
    if node.op_type == "Identity":
        return list(inputs[:1])
    rule = _RULES.get(node.op_type)
    if rule is None or not inputs:
        return []
    call = Call(node, inputs, read)
    try:
        shape = _plausible(rule(call))
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        shape = None
    if node.op_type == "Cast":
        return [Value(call.number("to", 0), shape)]
    typed = inputs[1 if node.op_type == "Where" and len(inputs) > 1 else 0]
    return [Value(typed.data_type, shape)]


def _plausible(shape: Shape) -> Shape | None:
    """Return a shape that ONNX can write, and None for others, so that hostile ones do not grow."""
    sizes = [size for size in shape if isinstance(size, int)]
    within = len(shape) <= MAXIMUM_RANK and all(0 <= size <= INT64_MAX for size in sizes)
    return shape if within else None


def _constant(node: Node) -> Value:
    attributes = node.attributes
    tensor = attributes.get("value", Attribute()).t
    if tensor is not None:
        return Value(tensor.data_type, tensor.shape, tensor)
    for name in ("value_int", "value_ints"):
        number = attributes.get(name, Attribute()).value
        if number is not None:
            return Value(ElementType.INT64, np.shape(number), number)
    return UNKNOWN


def _total(combine: Callable[[Iterable[int]], int], sizes: Sequence[int | str]) -> int | str:
    """Return the sum or the product of sizes; "?" if one of them is dynamic."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return combine(numbers) if len(numbers) == len(sizes) else "?"


def _broadcast(call: Call) -> Shape:
    return _broadcast_shape(*(call.shape(at) for at in range(len(call.inputs))))


def _broadcast_shape(*shapes: Shape) -> Shape:
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


def _reshape(call: Call) -> Shape:
    wanted = call.integers("shape")
    shape = call.shape(0) if 0 in wanted or -1 in wanted else ()
    keeps_zero = call.number("allowzero", 0) == 1
    sizes = [shape[i] if n == 0 and not keeps_zero else n for i, n in enumerate(wanted)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = _rest(list(shape), [n for n in sizes if n != -1])
    return tuple(sizes)


def _rest(before: list[int | str], after: list[int | str]) -> int | str:
    """Return the size that -1 stands for; sizes that are the same on both sides cancel."""
    for size in after[:]:
        if isinstance(size, str) and size != "?" and size in before:
            before.remove(size)
            after.remove(size)
    total, parts = _total(prod, before), _total(prod, after)
    if isinstance(total, str) or isinstance(parts, str):
        return "?"
    size, rest = divmod(total, parts)
    if rest:
        raise ValueError("sizes do not divide")
    return size


def _transpose(call: Call) -> Shape:
    shape = call.shape(0)
    order = call.number("perm", tuple(reversed(range(len(shape)))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError("perm")
    return tuple(shape[i] for i in order)


def _flatten(call: Call) -> Shape:
    shape, axis = call.shape(0), call.number("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ValueError("axis")
    return _total(prod, shape[:axis]), _total(prod, shape[axis:])


def _unsqueeze(call: Call) -> Shape:
    axes, shape = call.integers("axes"), list(call.shape(0))
    rank = len(shape) + len(axes)
    for axis in sorted(axis_from_front(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    return tuple(shape)


def _squeeze(call: Call) -> Shape:
    shape = call.shape(0)
    axes = {axis_from_front(axis, len(shape)) for axis in call.integers("axes")}
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _concat(call: Call) -> Shape:
    shapes = [call.shape(at) for at in range(len(call.inputs))]
    axis = axis_from_front(call.number("axis", 0), len(shapes[0]))
    total = _total(sum, [shape[axis] for shape in shapes])
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def _matmul(call: Call) -> Shape:
    left, right = call.shape(0), call.shape(1)
    if len(left) < 2 or len(right) < 2:
        raise ValueError("vectors")
    return (*_broadcast_shape(left[:-2], right[:-2]), left[-2], right[-1])


def _gemm(call: Call) -> Shape:
    rows = call.shape(0)[1 if call.number("transA", 0) else 0]
    return (rows, call.shape(1)[0 if call.number("transB", 0) else 1])


def _conv(call: Call) -> Shape:
    channels, _, *kernel = call.shape(1)
    return _windowed(call, channels, kernel)


def _pool(call: Call) -> Shape:
    if call.number("ceil_mode", 0):
        raise ValueError("ceil_mode")
    return _windowed(call, call.shape(0)[1], call.number("kernel_shape", ()))


def _windowed(call: Call, channels: int | str, kernel: Sequence[int | str]) -> Shape:
    """Return the shape after a window slides with explicit padding (ONNX, Conv)."""
    batch, _, *spatial = call.shape(0)
    rank = len(spatial)
    strides = call.number("strides", (1,) * rank)
    dilations = call.number("dilations", (1,) * rank)
    pads = call.number("pads", (0,) * (2 * rank))
    if "auto_pad" in call.node.attributes and "pads" not in call.node.attributes:
        raise ValueError("auto_pad")
    rows = zip(spatial, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return (batch, channels, *(_steps(*row) for row in rows))


def _steps(
    size: int | str, window: int | str, stride: int, dilation: int, low: int, high: int
) -> int | str:
    """Return in how many places a window fits along one dimension."""
    if isinstance(size, str) or isinstance(window, str):
        return "?"
    room = size + low + high - (dilation * (window - 1) + 1)
    if room < 0:
        raise ValueError("the window is wider than the padded input")
    return room // stride + 1


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

_RULES: dict[str, Callable[[Call], Shape]] = {
    **dict.fromkeys(_SAME, lambda call: call.shape(0)),
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
