"""Infers the types and shapes of the values of an ONNX graph, by the rules of its operators.

ONNX's own shape inference is not used: small malformed models crash its process, and others make it
allocate without end. What these rules cannot infer, such as the outputs of an invalid node, is
reported as unknown.
"""

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from math import prod

from dmlsplit.checks import axis_from_front
from dmlsplit.models.onnx import constants, rearrangement, windows
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import MAX_RANK, Attribute, Shape
from dmlsplit.models.onnx.reader import LimitError
from dmlsplit.models.onnx.rearrangement import combine_sizes, divide_size
from dmlsplit.models.onnx.values import UNKNOWN, Call, Value
from dmlsplit.models.site import Size

# A rule raises these if it does not know the shape, or the node breaks its operator's rules.
_INFERENCE_ERRORS = (ValueError, IndexError, TypeError, ArithmeticError, KeyError, struct.error)


def infer_outputs(call: Call) -> list[Value]:
    """The outputs of a node of the default domain, as far as known."""
    node = call.node
    inputs = call.inputs
    if node.op_type == "Constant":
        return [_constant(call)]
    if node.op_type == "Identity":
        return list(inputs[:1])
    rule = _RULES.get(node.op_type)
    if rule is None or not inputs:
        return []
    shape = None
    constant = None
    limit = _limit_of_inputs(call)
    data_type = 0
    with suppress(*_INFERENCE_ERRORS):
        data_type = _data_type(call)
    try:
        shape = _storable(rule(call))
        constant = constants.compute_elements(call, data_type, shape)
    except LimitError as error:
        limit = str(error) if limit is None else limit
    except _INFERENCE_ERRORS:
        pass
    if shape is None and node.op_type in _RANK_KEPT:
        with suppress(*_INFERENCE_ERRORS):
            shape = (None,) * len(call.shape(0))
    has_limit = constant is None and all(v.constant is not None or v.limit for v in inputs)
    values = [Value(data_type, shape, constant, limit=limit if has_limit else None)]
    if node.op_type in constants.COMPUTED:
        with suppress(*_INFERENCE_ERRORS):
            values = [replace(values[0], sizes=constants.sizes_used(call))]
    if node.output[1:] and node.op_type in _OTHER_OUTPUTS:
        with suppress(*_INFERENCE_ERRORS):
            values += _OTHER_OUTPUTS[node.op_type](call, values[0])
    return values


def _limit_of_inputs(call: Call) -> str | None:
    """The limit of dmlsplit that left an input unknown, as `Value.limit`."""
    return next((value.limit for value in call.inputs if value.limit), None)


def _storable(shape: Shape) -> Shape:
    """A shape, unless ONNX cannot store it: a hostile model must not make shapes grow."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(shape) > MAX_RANK or not all(0 <= size < 2**63 for size in sizes):
        raise ValueError("no shape")
    return shape


def _data_type(call: Call) -> int:
    """The type of the first output."""
    operator = call.node.op_type
    inputs = call.inputs
    if operator in _FIXED_TYPES:
        return _FIXED_TYPES[operator]
    if operator == "ConstantOfShape":
        tensor = call.node.attributes.get("value", Attribute()).t
        return ElementType.FLOAT if tensor is None else tensor.data_type
    data_type = call.int_attribute(_TYPE_ATTRIBUTES.get(operator, ""), 0)
    index = _TYPE_INPUTS.get(operator, 0)
    if data_type or operator == "Cast":
        return data_type
    return inputs[index].data_type if inputs[index:] else ElementType.UINT8  # of QuantizeLinear


def _constant(call: Call) -> Value:
    """The output of Constant, whose value is one of several attributes."""
    for name, attribute in call.node.attributes.items():
        if name == "value" and attribute.t is not None:
            return Value(attribute.t.data_type, attribute.t.shape, attribute.t)
        if name in ("value_float", "value_floats"):
            items = call.floats(name)
            return Value(ElementType.FLOAT, (len(items),) if name[-1] == "s" else (), items)
        if name in ("value_int", "value_ints") and attribute.value is not None:
            number = attribute.value
            if isinstance(number, tuple):
                return Value(ElementType.INT64, (len(number),), number)
            return Value(ElementType.INT64, (), (number,))
    return UNKNOWN


def _broadcast(*shapes: Shape) -> Shape:
    """The shape to which NumPy and ONNX broadcast these shapes."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(map(_broadcast_size, zip(*padded, strict=True)))


def _broadcast_size(sizes: tuple[Size, ...]) -> Size:
    """The size to which these sizes of one axis broadcast; None if it is not known."""
    wide = set(sizes) - {1}
    numbers = {size for size in wide if isinstance(size, int)}
    if len(numbers) > 1:
        raise ValueError("sizes do not broadcast")
    # A dynamic size beside a number above 1 must be that number, or 1.
    if numbers:
        return numbers.pop()
    return None if len(wide) > 1 else next(iter(wide), 1)


def _matmul(call: Call) -> Shape:
    first = call.shape(0)
    second = call.shape(3 if call.node.op_type == "QLinearMatMul" else 1)
    if not first or not second:
        raise ValueError("a scalar")
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else ()
    return (*_broadcast(first[:-2], second[:-2]), *rows, *columns)


def _gemm(call: Call) -> Shape:
    rows = call.shape(0)[1 if call.int_attribute("transA", 0) else 0]
    return (rows, call.shape(1)[0 if call.int_attribute("transB", 0) else 1])


def _reduce(call: Call) -> Shape:
    """After ReduceSum and others; without axes, it reduces all or none."""
    axes = call.axes(1, ())
    is_whole = not axes and not call.int_attribute("noop_with_empty_axes", 0)
    return _reduced(call, range(len(call.shape(0))) if is_whole else axes)


def _reduce_axis(call: Call) -> Shape:
    """After ArgMax and ArgMin, which have one axis."""
    return _reduced(call, [axis_from_front(call.int_attribute("axis", 0), len(call.shape(0)))])


def _reduced(call: Call, axes: Iterable[int]) -> Shape:
    """The shape of an input without some axes, or with a size of 1 there."""
    kept = (1,) if call.int_attribute("keepdims", 1) else ()
    return sum((kept if axis in axes else (n,) for axis, n in enumerate(call.shape(0))), ())


def _top_k(call: Call) -> Shape:
    shape = list(call.shape(0))
    shape[axis_from_front(call.int_attribute("axis", -1), len(shape))] = call.size("k")
    return tuple(shape)


def _one_hot(call: Call) -> Shape:
    shape = list(call.shape(0))
    axis = call.int_attribute("axis", -1)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, call.size("", 1))
    return tuple(shape)


def _nonzero(call: Call) -> Shape:
    rank = len(call.shape(0))
    try:
        return rank, len(constants.nonzero_indices(call))
    except ValueError:
        return rank, None


def _einsum(call: Call) -> Shape:
    terms, arrow, result = call.text("equation").replace(" ", "").partition("->")
    if "." in terms:
        raise ValueError("an ellipsis")
    sizes: dict[str, Size] = {}
    for term, shape in zip(terms.split(","), call.shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            sizes[letter] = _broadcast_size((sizes.get(letter, 1), size))
    letters = result if arrow else sorted(n for n in sizes if terms.count(n) == 1)
    return tuple(sizes[letter] for letter in letters)


def _recurrent(call: Call) -> Shape:
    """The first output of LSTM, GRU and RNN: all hidden states."""
    length, batch, _ = call.shape(0)
    directions, _, hidden = call.shape(2)
    if call.int_attribute("layout", 0):
        return length, batch, directions, hidden
    return length, directions, batch, hidden


def _states(call: Call, first: Value) -> list[Value]:
    """The last states of LSTM, GRU and RNN."""
    sequence = 1 if call.int_attribute("layout", 0) else 0
    shape = first.shape and (*first.shape[:sequence], *first.shape[sequence + 1 :])
    return [Value(first.data_type, shape)] * 2


def _attention(call: Call) -> Shape:
    """After Attention: the query's shape, with the heads and sizes of the values."""
    query = call.shape(0)
    value = call.shape(2)
    if len(query) == 4:
        return (*query[:3], value[3])
    heads = call.int_attribute("q_num_heads", 0)
    groups = call.int_attribute("kv_num_heads", 0)
    return (*query[:2], combine_sizes(prod, [heads, divide_size(value[2], groups)]))


# Element-wise operators whose output has the shape of the first input.
_UNARY = (
    "Abs BitwiseNot Cast Ceil Celu Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu "
    "Log Mish Neg Not PRelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu"
).split()
_BROADCAST = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater Less Max Mean Min Mod Mul Or Pow "
    "Sub Sum SwiGLU Where Xor"
).split()
ELEMENT_WISE = {*_UNARY, *_BROADCAST, "Identity"}
# Other operators whose output has the shape of the first input.
_SAME = (
    "Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli CastLike Cosh CumProd CumSum "
    "DequantizeLinear Dropout DynamicQuantizeLinear EyeLike GroupNormalization Hardmax "
    "InstanceNormalization IsInf IsNaN LRN LayerNormalization LogSoftmax LpNormalization "
    "MeanVarianceNormalization QuantizeLinear RMSNormalization RandomNormalLike RandomUniformLike "
    "ReverseSequence RotaryEmbedding Scatter ScatterElements ScatterND SequenceAt SequenceErase "
    "Sinh Softmax TensorScatter Trilu"
).split()
# Operators whose output has the rank of the first input, even if its sizes are not known.
_RANK_KEPT = {*windows.RULES, "Concat", "Pad", "Slice", "Tile", "TopK"}
# Rare operators without a rule here, of whose outputs ONNX infers types and sizes.
INFERRED_BY_ONNX = set(
    "AffineGrid BlackmanWindow CenterCropPad Col2Im DFT HammingWindow HannWindow MaxRoiPool "
    "MaxUnpool MelWeightMatrix Multinomial RandomNormal RandomUniform RoiAlign Scan".split()
)
_COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
_STATEFUL = ["GRU", "LSTM", "RNN"]
_REDUCED = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()

_RULES: dict[str, Callable[[Call], Shape]] = {
    **rearrangement.RULES,
    **windows.RULES,
    **dict.fromkeys((*_UNARY, *_SAME), lambda call: call.shape(0)),
    **dict.fromkeys(
        (*_BROADCAST, *_COMPARISONS, "BitShift"), lambda call: _broadcast(*call.shapes)
    ),
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCED), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduce_axis),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
        lambda call: tuple(n if axis < 2 else 1 for axis, n in enumerate(call.shape(0))),
    ),
    **dict.fromkeys(_STATEFUL, _recurrent),
    "Attention": _attention,
    "ConstantOfShape": lambda call: call.sizes("", 0),
    "Det": lambda call: call.shape(0)[:-2],
    "Einsum": _einsum,
    "Expand": lambda call: _broadcast(call.shape(0), call.sizes("shape")),
    "Gemm": _gemm,
    "GridSample": lambda call: (*call.shape(0)[:2], *call.shape(1)[1:-1]),
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Range": lambda call: (constants.steps(call),),
    "Shape": lambda call: (len(call.shape_part) if call.inputs[0].shape is not None else None,),
    "Size": lambda call: (),
    "TopK": _top_k,
}
# First outputs with another type than the first input: a fixed one, an input's or an attribute's.
_FIXED_TYPES = {
    **dict.fromkeys((*_COMPARISONS, "IsInf", "IsNaN"), ElementType.BOOL),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), ElementType.INT64),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), ElementType.INT32),
    "DynamicQuantizeLinear": ElementType.UINT8,
}
_TYPE_INPUTS = {
    **dict.fromkeys(("CastLike", "DequantizeLinear", "Where"), 1),
    **dict.fromkeys(("OneHot", "QuantizeLinear"), 2),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), 7),
}
_TYPE_ATTRIBUTES = {
    "Cast": "to",
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), "output_dtype"),
    **dict.fromkeys(("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"), "dtype"),
}
_SCALE_AND_ZERO = [Value(ElementType.FLOAT, ()), Value(ElementType.UINT8, ())]
# The outputs after the first.
_OTHER_OUTPUTS: dict[str, Callable[[Call, Value], list[Value]]] = {
    **dict.fromkeys(_STATEFUL, _states),
    **dict.fromkeys(("MaxPool", "TopK"), lambda _, first: [Value(ElementType.INT64, first.shape)]),
    "Dropout": lambda _, first: [Value(0, first.shape)],  # a mask of another type before opset 10
    "DynamicQuantizeLinear": lambda *_: _SCALE_AND_ZERO,
}
