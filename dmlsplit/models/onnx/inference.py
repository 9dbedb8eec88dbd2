"""Infers what is known about the outputs of a node: types, shapes and constant elements.

ONNX's own shape inference is not used: small malformed models crash its process, and others make it
allocate without end. What the rules here cannot infer, such as the outputs of an invalid node, is
reported as unknown.
"""

import struct
from collections.abc import Callable
from typing import TypeVar

from dmlsplit.models.limits import MAX_RANK
from dmlsplit.models.onnx import constants
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import Attribute, Shape
from dmlsplit.models.onnx.reader import LimitError
from dmlsplit.models.onnx.shapes import COMPARISONS, RANK_KEPT, RULES, STATEFUL
from dmlsplit.models.onnx.values import UNKNOWN, Constant, InferenceContext, Value

# A rule raises these if it does not know the answer, or the node breaks its operator's rules.
_INFERENCE_ERRORS = (ValueError, IndexError, TypeError, ArithmeticError, KeyError, struct.error)
_Fact = TypeVar("_Fact")


def infer_outputs(context: InferenceContext) -> list[Value]:
    """The outputs of a node of the default domain, as far as known."""
    operator = context.node.op_type
    if operator == "Constant":
        return [_constant_output(context)]
    if operator == "Identity":
        return list(context.inputs[:1])
    if operator not in RULES or not context.inputs:
        return []
    first = _first_output(context)
    return [first, *_other_outputs(context, first)]


def _constant_output(context: InferenceContext) -> Value:
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


def _first_output(context: InferenceContext) -> Value:
    """The first output of a node whose operator has a rule for its shape."""
    operator = context.node.op_type
    data_type = _fact(_data_type, context) or 0
    shape, constant, limit = _shape_and_elements(context, data_type)
    if shape is None and operator in RANK_KEPT:
        shape = _fact(_shape_of_rank, context)
    sizes = _fact(constants.sizes_used, context) if operator in constants.COMPUTED else None
    return Value(
        data_type,
        shape,
        constant,
        sizes=sizes or frozenset(),
        limit=_limit_of_elements(context, limit) if constant is None else None,
    )


def _fact(rule: Callable[[InferenceContext], _Fact], context: InferenceContext) -> _Fact | None:
    """What a rule says about a node; None if it does not know."""
    try:
        return rule(context)
    except _INFERENCE_ERRORS:
        return None


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
    # QuantizeLinear has this type if its zero point is left out.
    return inputs[index].data_type if inputs[index:] else ElementType.UINT8


def _shape_and_elements(
    context: InferenceContext, data_type: int
) -> tuple[Shape | None, Constant | None, str | None]:
    """The shape of the first output, its elements if they are constant, and a limit that it met.

    A shape is known even if its elements are not.
    """
    shape = None
    try:
        shape = _storable_shape(RULES[context.node.op_type](context))
        return shape, constants.compute_elements(context, data_type, shape), None
    except LimitError as error:
        return shape, None, str(error)
    except _INFERENCE_ERRORS:
        return shape, None, None


def _storable_shape(shape: Shape) -> Shape:
    """A shape, unless ONNX cannot store it: a hostile model must not make shapes grow."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(shape) > MAX_RANK or not all(0 <= size < 2**63 for size in sizes):
        raise ValueError(
            f"a shape of rank {len(shape)}; at most {MAX_RANK} sizes, from 0 to 2^63 - 1, are kept"
        )
    return shape


def _shape_of_rank(context: InferenceContext) -> Shape:
    """A shape of the rank of the first input, whose sizes are not known."""
    return (None,) * len(context.shape(0))


def _limit_of_elements(context: InferenceContext, own_limit: str | None) -> str | None:
    """The limit that left the elements unknown: an input's, or else the node's own.

    None if they would not be constant anyway, because those of an input are not.
    """
    if not all(value.constant is not None or value.limit for value in context.inputs):
        return None
    return next((value.limit for value in context.inputs if value.limit), own_limit)


def _other_outputs(context: InferenceContext, first: Value) -> list[Value]:
    """The outputs after the first one, if the node has any."""
    rule = _OTHER_OUTPUTS.get(context.node.op_type)
    return rule(context, first) if rule and context.node.output[1:] else []


def _last_states(context: InferenceContext, first: Value) -> list[Value]:
    """The last states of LSTM, GRU and RNN."""
    sequence = 1 if context.int_attribute("layout", 0) else 0
    shape = first.shape and (*first.shape[:sequence], *first.shape[sequence + 1 :])
    return [Value(first.data_type, shape)] * 2


# The types of first outputs that have the same type whatever the inputs are.
_FIXED_TYPES = {
    **dict.fromkeys((*COMPARISONS, "IsInf", "IsNaN"), ElementType.BOOL),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), ElementType.INT64),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), ElementType.INT32),
    "DynamicQuantizeLinear": ElementType.UINT8,
}
# The indices of the inputs that give first outputs their types, if it is not the first input.
_TYPE_INPUTS = {
    **dict.fromkeys(("CastLike", "DequantizeLinear", "Where"), 1),
    **dict.fromkeys(("OneHot", "QuantizeLinear"), 2),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), 7),
}
# The attributes that give first outputs their types, if a node has them.
_TYPE_ATTRIBUTES = {
    "Cast": "to",
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), "output_dtype"),
    **dict.fromkeys(("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"), "dtype"),
}
_SCALE_AND_ZERO = [Value(ElementType.FLOAT, ()), Value(ElementType.UINT8, ())]
# What makes the outputs after the first one, of which it is given the value.
_OTHER_OUTPUTS: dict[str, Callable[[InferenceContext, Value], list[Value]]] = {
    **dict.fromkeys(STATEFUL, _last_states),
    **dict.fromkeys(("MaxPool", "TopK"), lambda _, first: [Value(ElementType.INT64, first.shape)]),
    # Before opset 10, the mask has another type than since then.
    "Dropout": lambda _, first: [Value(0, first.shape)],
    "DynamicQuantizeLinear": lambda *_: _SCALE_AND_ZERO,
}
