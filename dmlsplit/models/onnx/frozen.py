"""Splits whose sizes an exporter froze: constants, although the axis is dynamic."""

from collections.abc import Set
from dataclasses import replace

from dmlsplit.models.onnx.values import InferenceContext
from dmlsplit.models.site import Size, SplitSite, Unknown


def frozen_axis(
    site: SplitSite, context: InferenceContext, dimensions: Set[Size]
) -> tuple[str, int] | None:
    """The dynamic axis of a split with constant sizes, and the only size of it that they fit.

    Only for a dimension of the model's inputs, `dimensions`: an exporter may name a size that is
    always the same after an operator that it does not follow.
    """
    state = site.state
    axis = site.axis
    if not isinstance(state, Unknown) or axis is None or site.sized_by != "split":
        return None
    name = (site.shape or ())[axis]
    if state.pieces is None or not isinstance(name, str) or context.inputs[0].gap:
        return None
    return (name, sum(state.pieces)) if name in dimensions else None


def at_size(context: InferenceContext, dimension: str, size: int) -> InferenceContext:
    """The context in which each axis of the first input with this dynamic dimension has a size."""
    data = context.inputs[0]
    shape = tuple(size if own_size == dimension else own_size for own_size in data.shape or ())
    return context._replace(inputs=[replace(data, shape=shape), *context.inputs[1:]])
