"""Infers the shapes of an ONNX graph's values with a few cheap rules.

ONNX's own shape inference is not used here: some malformed models crash the process. What these
rules cannot infer, such as the outputs of an invalid node, is reported as unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import prod

import numpy as np

from dmlsplit.checks import axis_from_front
from dmlsplit.frontends.onnx.messages import MAXIMUM_RANK, Attribute, Node, Shape
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.values import UNKNOWN, Call, Constant, Value

# Elements of a computed constant: a shape, or an input to one.
_MOST_COMPUTED = 2 * MAXIMUM_RANK
# A rule raises these if it does not know the shape, or the node breaks its operator's rules.
_UNKNOWN = (ValueError, IndexError, TypeError, ZeroDivisionError)


def outputs(call: Call) -> list[Value]:
    """The outputs of a node of the default domain, as far as known."""
    node, inputs = call.node, call.inputs
    if node.op_type == "Constant":
        return [_constant(node)]
    if node.op_type == "Identity":
        return list(inputs[:1])
    rule = _RULES.get(node.op_type)
    if rule is None or not inputs:
        return []
    shape, constant = None, None
    with suppress(*_UNKNOWN):
        found = rule(call)
        # ONNX cannot store other shapes, and a hostile model must not make them grow.
        if len(found) <= MAXIMUM_RANK and all(
            0 <= size < 2**63 for size in found if isinstance(size, int)
        ):
            shape = found
    with suppress(*_UNKNOWN):
        constant = _computed(call, shape)
    return [Value(_data_type(call), shape, constant)]


def _data_type(call: Call) -> int:
    operator, inputs = call.node.op_type, call.inputs
    if operator == "Cast":
        return call.number("to", 0)
    if operator == "Shape":
        return ElementType.INT64
    if operator == "ConstantOfShape":
        tensor = call.node.attributes.get("value", Attribute()).t
        return ElementType.FLOAT if tensor is None else tensor.data_type
    return inputs[1 if operator == "Where" and len(inputs) > 1 else 0].data_type


def _computed(call: Call, shape: Shape | None) -> Constant | None:
    """The elements of a constant that may become a shape; None for others."""
    compute = _COMPUTED.get(call.node.op_type)
    if compute is None or shape is None or len(shape) > 1:
        return None
    sizes = [size for size in shape if isinstance(size, int) and size <= _MOST_COMPUTED]
    if len(sizes) < len(shape):
        return None
    if call.node.op_type == "Shape":
        part = [size for size in _part(call) if isinstance(size, int)]
        return tuple(part) if [len(part)] == sizes else None
    parts = [call.elements(at) for at in range(len(call.inputs))]
    with np.errstate(over="ignore"):  # A result that is not a size is refused where it is used.
        found = np.asarray(compute(call, *parts)).reshape(sizes)
    return int(found) if found.ndim == 0 else tuple(map(int, found))


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
    """The sum or the product of sizes; "?" if one of them is dynamic."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return combine(numbers) if len(numbers) == len(sizes) else "?"


def _broadcast(*shapes: Shape) -> Shape:
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
    """The size that -1 stands for; equal names on both sides cancel."""
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
    shapes = call.shapes
    axis = axis_from_front(call.number("axis", 0), len(shapes[0]))
    total = _total(sum, [shape[axis] for shape in shapes])
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def _matmul(call: Call) -> Shape:
    left, right = call.shape(0), call.shape(1)
    if len(left) < 2 or len(right) < 2:
        raise ValueError("vectors")
    return (*_broadcast(left[:-2], right[:-2]), left[-2], right[-1])


def _gemm(call: Call) -> Shape:
    rows = call.shape(0)[1 if call.number("transA", 0) else 0]
    return (rows, call.shape(1)[0 if call.number("transB", 0) else 1])


def _windowed(call: Call) -> Shape:
    """The shape after a window slides with explicit padding (ONNX, Conv)."""
    batch, channels, *spatial = call.shape(0)
    kernel: Sequence[int | str] = call.number("kernel_shape", ())
    if call.node.op_type == "Conv":
        channels, _, *kernel = call.shape(1)
    rank = len(spatial)
    strides = call.number("strides", (1,) * rank)
    dilations = call.number("dilations", (1,) * rank)
    pads = call.number("pads", (0,) * (2 * rank))
    if "auto_pad" in call.node.attributes and "pads" not in call.node.attributes:
        raise ValueError("auto_pad")
    rows = zip(spatial, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    up = call.number("ceil_mode", 0) == 1
    return (batch, channels, *(_steps(up, *row) for row in rows))


def _steps(
    up: bool, size: int | str, window: int | str, stride: int, dilation: int, low: int, high: int
) -> int | str:
    """The number of places of a window along one dimension; `up` is ceil_mode."""
    if isinstance(size, str) or isinstance(window, str):
        return "?"
    room = size + low + high - (dilation * (window - 1) + 1)
    if room < 0:
        raise ValueError("the window is wider than the padded input")
    steps = -(-room // stride) if up else room // stride
    # With ceil_mode, a window that would begin in the end padding is dropped.
    return steps if up and steps * stride >= size + low else steps + 1


def _part(call: Call) -> Shape:
    """The output of Shape."""
    return call.shape(0)[call.number("start", 0) : call.number("end", MAXIMUM_RANK)]


def _reduce(call: Call) -> Shape:
    shape = call.shape(0)
    axes = call.axes(1, () if call.number("noop_with_empty_axes", 0) else range(len(shape)))
    if call.number("keepdims", 1):
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _slice(call: Call) -> Shape:
    sizes = list(call.shape(0))
    for at, part in call.slices():
        size = sizes[at]
        sizes[at] = len(range(*part.indices(size))) if isinstance(size, int) else "?"
    return tuple(sizes)


def _pad(call: Call) -> Shape:
    sizes, pads = list(call.shape(0)), call.integers("pads")
    axes = call.axes(3, range(len(sizes)))
    for at, low, high in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        sizes[at] = _total(sum, [sizes[at], low, high])
    return tuple(sizes)


def _gather(call: Call) -> Shape:
    shape, indices = call.shape(0), call.shape(1)
    axis = axis_from_front(call.number("axis", 0), len(shape))
    return (*shape[:axis], *indices, *shape[axis + 1 :])


# One input, element by element.
_UNARY = (
    "Abs BitwiseNot Cast Ceil Celu Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu "
    "Log Mish Neg Not PRelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu"
).split()
_BROADCAST = (
    "Add And BitwiseAnd BitwiseOr Div Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"
).split()
_SAME = (
    "BatchNormalization CumSum Dropout GroupNormalization Hardmax InstanceNormalization LRN "
    "LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization RMSNormalization "
    "Softmax Trilu"
).split()
ELEMENT_WISE = {*_UNARY, *_BROADCAST, *"BitwiseXor Equal Greater Identity Less SwiGLU".split()}

_RULES: dict[str, Callable[[Call], Shape]] = {
    **dict.fromkeys((*_UNARY, *_SAME), lambda call: call.shape(0)),
    **dict.fromkeys(_BROADCAST, lambda call: _broadcast(*call.shapes)),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
        lambda call: tuple(size if at < 2 else 1 for at, size in enumerate(call.shape(0))),
    ),
    **{f"Reduce{kind}": _reduce for kind in "L1 L2 LogSum Max Mean Min Prod Sum".split()},
    **dict.fromkeys(("AveragePool", "Conv", "LpPool", "MaxPool"), _windowed),
    "Concat": _concat,
    "ConstantOfShape": lambda call: tuple(call.integers("", 0)),
    "Expand": lambda call: _broadcast(call.shape(0), tuple(call.integers("shape"))),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": lambda call: (len(_part(call)),),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": lambda call: tuple(
        _total(prod, row) for row in zip(call.shape(0), call.integers("repeats"), strict=True)
    ),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


def _sliced(call: Call, data: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    ((_, part),) = call.slices()
    return data[part]


# Arithmetic on small integer constants, from which exporters compute shapes.
_COMPUTED: dict[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(("Reshape", "Shape", "Squeeze", "Unsqueeze"), lambda call, data, *rest: data),
    "Add": lambda call, one, other: one + other,
    "Concat": lambda call, *parts: np.concatenate(parts),
    "Gather": lambda call, data, at: np.take(data, at, axis=call.number("axis", 0)),
    "Mul": lambda call, one, other: one * other,
    "Slice": _sliced,
    "Sub": lambda call, one, other: one - other,
}
