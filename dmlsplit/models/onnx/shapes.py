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
from dmlsplit.models.limits import MAX_RANK
from dmlsplit.models.onnx import constants, rearrangement, windows
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import Attribute, Shape
from dmlsplit.models.onnx.reader import LimitError
from dmlsplit.models.onnx.rearrangement import combine_sizes, divide_size
from dmlsplit.models.onnx.values import UNKNOWN, InferenceContext, Value
from dmlsplit.models.site import Size

# A rule raises these if it does not know the shape, or the node breaks its operator's rules.
_INFERENCE_ERRORS = (ValueError, IndexError, TypeError, ArithmeticError, KeyError, struct.error)


def infer_outputs(context: InferenceContext) -> list[Value]:
    """The outputs of a node of the default domain, as far as known."""
    node = context.node
    inputs = context.inputs
    if node.op_type == "Constant":
        return [_constant(context)]
    if node.op_type == "Identity":
        return list(inputs[:1])
    rule = _RULES.get(node.op_type)
    if rule is None or not inputs:
        return []
    shape = None
    constant = None
    limit = _limit_of_inputs(context)
    data_type = 0
    with suppress(*_INFERENCE_ERRORS):
        data_type = _data_type(context)
    try:
        shape = _storable_shape(rule(context))
        constant = constants.compute_elements(context, data_type, shape)
    except LimitError as error:
        limit = str(error) if limit is None else limit
    except _INFERENCE_ERRORS:
        pass
    if shape is None and node.op_type in _RANK_KEPT:
        with suppress(*_INFERENCE_ERRORS):
            shape = (None,) * len(context.shape(0))
    has_limit = constant is None and all(v.constant is not None or v.limit for v in inputs)
    values = [Value(data_type, shape, constant, limit=limit if has_limit else None)]
    if node.op_type in constants.COMPUTED:
        with suppress(*_INFERENCE_ERRORS):
            values = [replace(values[0], sizes=constants.sizes_used(context))]
    if node.output[1:] and node.op_type in _OTHER_OUTPUTS:
        with suppress(*_INFERENCE_ERRORS):
            values += _OTHER_OUTPUTS[node.op_type](context, values[0])
    return values


def _limit_of_inputs(context: InferenceContext) -> str | None:
    """The limit of dmlsplit that left an input unknown, as `Value.limit`."""
    return next((value.limit for value in context.inputs if value.limit), None)


def _storable_shape(shape: Shape) -> Shape:
    """A shape, unless ONNX cannot store it: a hostile model must not make shapes grow."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(shape) > MAX_RANK or not all(0 <= size < 2**63 for size in sizes):
        raise ValueError("no shape")
    return shape


def _data_type(context: InferenceContext) -> int:
    """The type of the first output."""
    operator = context.node.op_type
    inputs = context.inputs
    if operator in _FIXED_TYPES:
        return _FIXED_TYPES[operator]
    if operator == "ConstantOfShape":
        tensor = context.node.attributes.get("value", Attribute()).t
        return ElementType.FLOAT if tensor is None else tensor.data_type
    data_type = context.int_attribute(_TYPE_ATTRIBUTES.get(operator, ""), 0)
    index = _TYPE_INPUTS.get(operator, 0)
    if data_type or operator == "Cast":
        return data_type
    return inputs[index].data_type if inputs[index:] else ElementType.UINT8  # of QuantizeLinear


def _constant(context: InferenceContext) -> Value:
    """The output of Constant, whose value is one of several attributes."""
    for name, attribute in context.node.attributes.items():
        if name == "value" and attribute.t is not None:
            return Value(attribute.t.data_type, attribute.t.shape, attribute.t)
        if name in ("value_float", "value_floats"):
            items = context.floats(name)
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


def _matmul(context: InferenceContext) -> Shape:
    """After MatMul and its kin, as in NumPy: the dimensions before the last two broadcast."""
    first = context.shape(0)
    second = context.shape(3 if context.node.op_type == "QLinearMatMul" else 1)
    if not first or not second:
        raise ValueError("a scalar")
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else ()
    return (*_broadcast(first[:-2], second[:-2]), *rows, *columns)


def _gemm(context: InferenceContext) -> Shape:
    rows = context.shape(0)[1 if context.int_attribute("transA", 0) else 0]
    return (rows, context.shape(1)[0 if context.int_attribute("transB", 0) else 1])


def _reduce(context: InferenceContext) -> Shape:
    """After ReduceSum and others; without axes, it reduces all or none."""
    axes = context.axes(1, ())
    is_whole = not axes and not context.int_attribute("noop_with_empty_axes", 0)
    return _reduced(context, range(len(context.shape(0))) if is_whole else axes)


def _reduce_axis(context: InferenceContext) -> Shape:
    """After ArgMax and ArgMin, which have one axis."""
    return _reduced(
        context, [axis_from_front(context.int_attribute("axis", 0), len(context.shape(0)))]
    )


def _reduced(context: InferenceContext, axes: Iterable[int]) -> Shape:
    """The shape of an input without some axes, or with a size of 1 there."""
    kept = (1,) if context.int_attribute("keepdims", 1) else ()
    return sum((kept if axis in axes else (n,) for axis, n in enumerate(context.shape(0))), ())


def _top_k(context: InferenceContext) -> Shape:
    shape = list(context.shape(0))
    shape[axis_from_front(context.int_attribute("axis", -1), len(shape))] = context.size("k")
    return tuple(shape)


def _one_hot(context: InferenceContext) -> Shape:
    shape = list(context.shape(0))
    axis = context.int_attribute("axis", -1)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, context.size("", 1))
    return tuple(shape)


def _nonzero(context: InferenceContext) -> Shape:
    rank = len(context.shape(0))
    try:
        return rank, len(constants.nonzero_indices(context))
    except ValueError:
        return rank, None


def _einsum(context: InferenceContext) -> Shape:
    """After Einsum: without an arrow, the letters that occur once, in alphabetical order."""
    terms, arrow, result = context.text("equation").replace(" ", "").partition("->")
    if "." in terms:
        raise ValueError("an ellipsis")
    sizes: dict[str, Size] = {}
    for term, shape in zip(terms.split(","), context.shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            sizes[letter] = _broadcast_size((sizes.get(letter, 1), size))
    letters = result if arrow else sorted(n for n in sizes if terms.count(n) == 1)
    return tuple(sizes[letter] for letter in letters)


def _recurrent(context: InferenceContext) -> Shape:
    """The first output of LSTM, GRU and RNN: all hidden states."""
    length, batch, _ = context.shape(0)
    directions, _, hidden = context.shape(2)
    if context.int_attribute("layout", 0):
        return length, batch, directions, hidden
    return length, directions, batch, hidden


def _states(context: InferenceContext, first: Value) -> list[Value]:
    """The last states of LSTM, GRU and RNN."""
    sequence = 1 if context.int_attribute("layout", 0) else 0
    shape = first.shape and (*first.shape[:sequence], *first.shape[sequence + 1 :])
    return [Value(first.data_type, shape)] * 2


def _attention(context: InferenceContext) -> Shape:
    """After Attention: the query's shape, with the heads and sizes of the values."""
    query = context.shape(0)
    value = context.shape(2)
    if len(query) == 4:
        return (*query[:3], value[3])
    heads = context.int_attribute("q_num_heads", 0)
    groups = context.int_attribute("kv_num_heads", 0)
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

_RULES: dict[str, Callable[[InferenceContext], Shape]] = {
    **rearrangement.RULES,
    **windows.RULES,
    **dict.fromkeys((*_UNARY, *_SAME), lambda context: context.shape(0)),
    **dict.fromkeys(
        (*_BROADCAST, *_COMPARISONS, "BitShift"), lambda context: _broadcast(*context.shapes)
    ),
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCED), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduce_axis),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
        lambda context: tuple(n if axis < 2 else 1 for axis, n in enumerate(context.shape(0))),
    ),
    **dict.fromkeys(_STATEFUL, _recurrent),
    "Attention": _attention,
    "ConstantOfShape": lambda context: context.sizes("", 0),
    "Det": lambda context: context.shape(0)[:-2],
    "Einsum": _einsum,
    "Expand": lambda context: _broadcast(context.shape(0), context.sizes("shape")),
    "Gemm": _gemm,
    "GridSample": lambda context: (*context.shape(0)[:2], *context.shape(1)[1:-1]),
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Range": lambda context: (constants.steps(context),),
    "Shape": lambda context: (
        len(context.shape_part) if context.inputs[0].shape is not None else None,
    ),
    "Size": lambda context: (),
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
_OTHER_OUTPUTS: dict[str, Callable[[InferenceContext, Value], list[Value]]] = {
    **dict.fromkeys(_STATEFUL, _states),
    **dict.fromkeys(("MaxPool", "TopK"), lambda _, first: [Value(ElementType.INT64, first.shape)]),
    "Dropout": lambda _, first: [Value(0, first.shape)],  # a mask of another type before opset 10
    "DynamicQuantizeLinear": lambda *_: _SCALE_AND_ZERO,
}
