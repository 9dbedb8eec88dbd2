"""What ONNX Runtime computes, or drops, when it loads a model, whatever the provider.

Constant folding runs before the providers are chosen. Seen with ONNX Runtime 1.15.1 to 1.32.0; the
source is microsoft/onnxruntime, core/optimizer/constant_folding.cc.
"""

from dataclasses import replace
from math import prod

from dmlsplit.models.onnx.values import InferenceContext, Item, Value

# The most elements of a constant that leaves a node on the CPU whose other inputs are shapes: ONNX
# Runtime's kSmallInitializerThreshold.
_SMALL_CONSTANT_ELEMENTS = 100
# Random numbers differ in each run; DequantizeLinear stays for the fusion of quantized nodes, and
# the sequence operators, because a constant is a tensor.
_NEVER_FOLDED = {
    *"Bernoulli DequantizeLinear Multinomial RandomNormal RandomNormalLike RandomUniform".split(),
    *"RandomUniformLike ConcatFromSequence Optional OptionalGetElement OptionalHasElement".split(),
    *"SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert".split(),
    *"SequenceLength SplitToSequence".split(),
}


def is_folded(context: InferenceContext) -> bool:
    """Whether a node of the default domain becomes a constant when a model is loaded."""
    node = context.node
    inputs = context.inputs
    if node.op_type == "Constant":
        return True
    if node.op_type == "Shape":  # whole shapes only, although it may output a part of one
        return any(value.is_static for value in inputs[:1])
    if node.op_type in _NEVER_FOLDED or any(attribute.bodies for attribute in node.attribute):
        return False
    named = _named_inputs(context)
    return bool(named) and all(value.is_folded for value in named)


def is_of_shapes(context: InferenceContext) -> bool:
    """Whether all that a node of the default domain computes from is the shape of some value.

    Such nodes stay on the CPU. Source: microsoft/onnxruntime,
    core/framework/fallback_cpu_capability.cc, which also takes small constants beside the shapes.
    """
    node = context.node
    if node.op_type in ("Shape", "Size"):
        return True
    named = _named_inputs(context)
    return any(value.is_shape for value in named) and all(
        value.is_shape or (value.is_folded and _is_small(value)) for value in named
    )


def _named_inputs(context: InferenceContext) -> list[Value]:
    """The inputs of a node without the optional ones that it omits, whose names are empty."""
    return [value for name, value in zip(context.node.input, context.inputs, strict=True) if name]


def _is_small(value: Value) -> bool:
    """Whether a constant may be used together with shapes."""
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    return value.is_static and prod(sizes) <= _SMALL_CONSTANT_ELEMENTS


def with_origin(value: Value, context: InferenceContext) -> Value:
    """An output of a node, with what follows from where the node's inputs come from."""
    value = replace(value, is_folded=True) if is_folded(context) else value
    return replace(value, is_shape=True) if is_of_shapes(context) else value


def never_runs(context: InferenceContext, body: str) -> str | None:
    """Why a body of a node never runs: a branch of an If, or the body of a Loop; else None.

    `body` is the name of the attribute; "whose" precedes the reason.
    """
    match context.node.op_type, body:
        case "If", "then_branch" | "else_branch":
            truth = _constant(context, 0)
            if truth is not None and truth == (body == "else_branch"):
                return f"condition is always {'true' if truth else 'false'}"
        case "Loop", "body":
            if _constant(context, 0) == 0:
                return "number of iterations is always 0"
            if _constant(context, 1) == 0:
                return "condition is always false"
    return None


def _constant(context: InferenceContext, index: int) -> Item:
    """The only element of an input, if it is known; else None."""
    try:
        items = context.items(index)
    except (ValueError, IndexError):
        return None
    return items[0] if len(items) == 1 else None
