"""Shapes after operators that compute; `RULES` has rearrangement.py's and windows.py's, too."""

from collections.abc import Callable, Iterable
from math import prod

from dmlsplit.checks import axis_from_front
from dmlsplit.models.onnx import constants, rearrangement, windows
from dmlsplit.models.onnx.protobuf import Shape
from dmlsplit.models.onnx.rearrangement import combine_sizes, divide_size
from dmlsplit.models.onnx.values import InferenceContext
from dmlsplit.models.site import Size


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
        raise ValueError(f"sizes {sorted(numbers)} do not broadcast")
    # A dynamic size beside a number above 1 must be that number, or 1.
    if numbers:
        return numbers.pop()
    return None if len(wide) > 1 else next(iter(wide), 1)


def _matmul(context: InferenceContext) -> Shape:
    """After MatMul and its kin: the dimensions before the last two broadcast."""
    first = context.shape(0)
    second = context.shape(3 if context.node.op_type == "QLinearMatMul" else 1)
    if not first or not second:
        raise ValueError("an input is a scalar; both must have a dimension")
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
        raise ValueError(f"the equation {terms!r} has an ellipsis, which is not followed")
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


def _attention(context: InferenceContext) -> Shape:
    """After Attention: the query's shape, with the heads and sizes of the values."""
    query = context.shape(0)
    if len(query) == 4:
        batch, heads, length, _ = query
        _, _, _, value_size = context.shape(2)
        return batch, heads, length, value_size
    batch, length, _ = query
    _, _, value_size = context.shape(2)
    query_heads = context.int_attribute("q_num_heads", 0)
    value_heads = context.int_attribute("kv_num_heads", 0)
    return batch, length, combine_sizes(prod, [query_heads, divide_size(value_size, value_heads)])


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
RANK_KEPT = {*windows.RULES, "Concat", "Pad", "Slice", "Tile", "TopK"}
# Rare operators without a rule here, of whose outputs ONNX infers types and sizes.
INFERRED_BY_ONNX = set(
    "AffineGrid BlackmanWindow CenterCropPad Col2Im DFT HammingWindow HannWindow MaxRoiPool "
    "MaxUnpool MelWeightMatrix Multinomial RandomNormal RandomUniform RoiAlign Scan".split()
)
COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
STATEFUL = ["GRU", "LSTM", "RNN"]
_REDUCED = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()

RULES: dict[str, Callable[[InferenceContext], Shape]] = {
    **rearrangement.RULES,
    **windows.RULES,
    **dict.fromkeys((*_UNARY, *_SAME), lambda context: context.shape(0)),
    **dict.fromkeys(
        (*_BROADCAST, *COMPARISONS, "BitShift"), lambda context: _broadcast(*context.shapes)
    ),
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCED), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduce_axis),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
        lambda context: tuple(n if axis < 2 else 1 for axis, n in enumerate(context.shape(0))),
    ),
    **dict.fromkeys(STATEFUL, _recurrent),
    "Attention": _attention,
    "ConstantOfShape": lambda context: context.sizes("", 0),
    "Det": lambda context: context.shape(0)[:-2],
    "Einsum": _einsum,
    "Expand": lambda context: _broadcast(context.shape(0), context.sizes("shape")),
    "Gemm": _gemm,
    "GridSample": lambda context: (*context.shape(0)[:2], *context.shape(1)[1:-1]),
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Range": lambda context: (constants.range_length(context),),
    "Shape": lambda context: (
        len(context.shape_part) if context.inputs[0].shape is not None else None,
    ),
    "Size": lambda context: (),
    "TopK": _top_k,
}
