"""How standard ONNX nodes that a target accepts can replace a refused split, or why none can."""

from math import prod
from typing import NamedTuple

from dmlsplit.directml.levels import support_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.frontends.site import Cause
from dmlsplit.lint.onnxruntime import MAX_DIMENSIONS, is_complex, takes_num_outputs
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Verdict

IN_A_FUNCTION = "it is in the body of a function; inline the functions first (onnx.inliner)"
# ONNX's Cast extracts the low bits of an integer, and standard arithmetic the high ones.
_IN_HALVES = frozenset({TensorDataType.INT64, TensorDataType.UINT64})
# Reshape takes its shape as an input since opset 5, and Cast its type as a number since 6;
# arithmetic broadcasts by itself since 7.
_MIN_OPSET = 7
_COMPUTED_LENGTHS = (
    "its split lengths are computed when the model runs. Fix: give the sizes from which they may "
    "follow with --dim, or make them a constant of the model"
)
# What is to be said about a split that is unknown for a cause.
_GAPS = {
    Cause.DYNAMIC: "its sizes are known only when the model runs. Fix: give them with --dim",
    Cause.UNTRACKED: "its sizes could not be inferred. Fix: give them with --dim",
    Cause.TYPE: "its data type is not known. Fix: declare it in the model",
    Cause.LENGTHS: "its split lengths are known only when the model runs. Fix: make them a "
    "constant of the model",
    Cause.WEIGHTS: "its split lengths are in external data. Fix: keep them in the model",
    Cause.ORDER: "no earlier node produces its input. Fix: sort the nodes, and remove cycles",
    Cause.COUNT: "it has too many pieces. Fix: use a larger chunk size, or fewer outputs",
}


class Form(NamedTuple):
    """How a target can split a value: what is done before the Split, and undone after it."""

    axis: int = 0  # of the Split
    merged_shape: list[int | str] | None = (
        None  # the shape with merged dimensions, if there are too many
    )
    added_axes: tuple[int, ...] = ()  # the axes of dimensions that are added, if there are too few
    is_cast: bool = False
    in_halves: bool = False
    lacks_only_count: bool = False  # the node itself serves once num_outputs is set


def form_of(verdict: Verdict, target: Target) -> Form | str:
    """The form of a refused split of an ONNX model, or why no rewriting of it is accepted."""
    site, broken = verdict.site, verdict.errors
    for error in broken:
        if "model" not in error.rule.fixable_by:
            return f"{error.rule.id}: {error.message}"
    if "()" in site.path:
        return IN_A_FUNCTION
    if {error.rule.id for error in broken} == {"ORT-NUM-OUTPUTS"} and takes_num_outputs(target):
        return Form(lacks_only_count=True)
    if site.opset < _MIN_OPSET:
        return f"the opset is {site.opset}; rewriting needs {_MIN_OPSET} or later"
    desc = _descriptor(site)
    if desc is None:
        return _gap(site)
    if is_complex(site.element_type):
        return "standard ONNX cannot reinterpret complex elements as another type"
    return _form(site, desc.input_tensor.data_type, target)


def _form(site: SplitSite, kind: TensorDataType, target: Target) -> Form | str:
    shape, (least, greatest) = site.shape or (), _dimension_counts(target)
    ones, merger = tuple(range(least - len(shape))), None
    if len(shape) > greatest:
        merger = merge_dimensions(shape, site.axis, least, greatest)
        if merger is None:
            sizes = "sizes that are known only at run time"
            return f"merging its dimensions into {greatest} needs {sizes}"
    if isinstance(site.state, Unknown) and 0 in site.state.pieces and site.opset < 9:
        return f"the opset is {site.opset}; an empty piece of dynamic size needs 9 or later"
    rows, axis = merger or (None, site.axis + len(ones))
    is_cast = kind not in support_table()[target.level].data_types
    in_halves = is_cast and kind in _IN_HALVES
    if is_cast and not in_halves and kind.bits >= 32:
        return f"Cast would round {kind.name}, and no operator before BitCast-26 exposes its bits"
    return Form(axis, rows, ones, is_cast, in_halves)


def _gap(site: SplitSite) -> str:
    """What has to be known about a split without a descriptor before it can be rewritten."""
    if not isinstance(site.state, Unknown):
        return "all of its pieces are empty"
    cause = site.state.cause
    if cause in (Cause.DYNAMIC, Cause.UNTRACKED) and site.element_type is None:
        cause = Cause.TYPE
    if cause is Cause.LENGTHS and site.state.missing:
        return _COMPUTED_LENGTHS
    return _GAPS.get(cause, site.state.reason)


def _descriptor(site: SplitSite) -> SplitOperatorDesc | None:
    """The descriptor of a split, with dynamic sizes of 1 if they only multiply its elements."""
    match site.state:
        case Known(descriptor) | Unknown(smallest_descriptor=descriptor, only_count_varies=True):
            return descriptor
    return None


def _dimension_counts(target: Target) -> tuple[int, int]:
    """The least and the greatest rank that a target accepts."""
    if target.via == "ort":
        return 1, MAX_DIMENSIONS
    support = support_table()[target.level]
    return support.minimum_dimensions, support.maximum_dimensions


def merge_dimensions(
    shape: tuple[int | str, ...], axis: int, least: int, greatest: int
) -> tuple[list[int | str], int] | None:
    """The shape for a Reshape that merges the dimensions beside the axis, and the axis in it.

    As in Reshape, -1 is a size that follows from the others, and 0 keeps a dimension. None if the
    sizes on both sides are dynamic and there are too many in front of the axis.
    """
    before, after = (
        prod(size for size in side if isinstance(size, int)) if is_static(side) else -1
        for side in (shape[:axis], shape[axis + 1 :])
    )
    if before != -1 or after != -1:
        return [1, before, shape[axis], after], 2
    if axis + 2 > greatest:
        return None
    kept = [*[0] * axis, shape[axis], -1]
    return [*kept, *[1] * (least - len(kept))], axis


def is_static(shape: tuple[int | str, ...]) -> bool:
    """Whether every size is known."""
    return all(isinstance(size, int) for size in shape)
