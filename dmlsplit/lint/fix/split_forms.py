"""How standard ONNX nodes that a target accepts can replace a refused split, or why none can."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeGuard

from dmlsplit.directml.levels import support_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.lint.loading import is_complex
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Verdict
from dmlsplit.messages import Note
from dmlsplit.models.onnx.operators import element_bytes
from dmlsplit.models.site import Cause, Known, Size, SplitSite, Unknown


class Obstacle(NamedTuple):
    """Why --write-fixed cannot rewrite a split, and what to do first, if that is known."""

    fault: str
    fix: str = ""
    # Whether the obstacle is the body of a function, whose calls have to be inlined first.
    is_inlining_needed: bool = False

    def __str__(self) -> str:
        return Note(self.fault, self.fix)


IN_A_FUNCTION = Obstacle(
    "it is in the body of a function; inline the functions first (onnx.inliner)",
    is_inlining_needed=True,
)
TOO_LARGE = Obstacle(
    "the model has over 2 GiB, which protobuf cannot read",
    "export it with its weights in another file",
)
# Cast extracts only the low bits of 64-bit integers. The high ones need a division, which DirectML
# has for these types since feature level 6_0, while Split accepts them since 4_1. Source:
# https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_element_wise_divide_operator_desc
_NARROW = {TensorDataType.INT64: "INT32", TensorDataType.UINT64: "UINT32"}
# Reshape takes its shape as an input since opset 5, and Cast its type as a number since 6. Opset 6
# itself has not been tried.
_MIN_OPSET = 7
# The sizes of a dynamic dimension at which a split is compared with its replacement, one per input.
# Each dimension begins with another one of them, so that up to three dimensions of an input differ.
_COMPARED_SIZES = (2, 1, 3)
# The most bytes of an input on which a split and its replacement are compared: the reference
# evaluator takes about 8 bytes of memory for each of them.
MAX_COMPARED_BYTES = 1 << 28
_OVERRIDABLE = Obstacle(
    "its sizes follow from the default of a graph input, which a caller may override",
    "keep the initializer only, and remove the input of its name from the graph",
)
_DISPUTED_AXIS = Obstacle(
    "ONNX ignores keepdims=0 with a scalar split, and ONNX Runtime does not",
    "set keepdims to 1",
)
_FAILS_IN_ORT = Obstacle(
    "ONNX Runtime fails when it runs SplitToSequence with keepdims=0 and a scalar split, unless "
    "every piece has the size 1",
    "set keepdims to 1",
)
_COMPUTED_LENGTHS = Obstacle(
    "its split lengths are computed when the model runs",
    "give the sizes from which they may follow with --dim, or make them a constant of the model",
)
_CONSTANT = "make them a constant of the model"
# The obstacle of a split that is unknown, by the cause.
_GAPS = {
    Cause.DYNAMIC: Obstacle("its sizes are known only when the model runs", "give them with --dim"),
    Cause.UNTRACKED: Obstacle("its sizes could not be inferred", "declare them in the model"),
    Cause.TYPE: Obstacle("its data type is not known", "declare it in the model"),
    Cause.LENGTHS: Obstacle("its split lengths are known only when the model runs", _CONSTANT),
    Cause.WEIGHTS: Obstacle("its split lengths are in external data", "keep them in the model"),
    Cause.ORDER: Obstacle(
        "no earlier node produces its input", "sort the nodes, and remove cycles"
    ),
    Cause.COUNT: Obstacle("it has too many pieces", "use a larger chunk size, or fewer outputs"),
}


class Merging(NamedTuple):
    """How a Reshape merges dimensions: the first `kept` stay, and `groups` come after them.

    The groups are the dimensions between the kept ones and the axis (left out without any),
    the axis, and the dimensions after it (likewise), then sizes of 1 up to the least rank. If none
    is kept, there are four: 1, the dimensions before the axis, the axis, and those after it. A
    group's size is None if one of its dimensions is dynamic.
    """

    kept: int
    groups: tuple[Size, ...]


class SplitForm(NamedTuple):
    """How a target can split a value: what is done before the Split, and undone after it."""

    # The axis of the Split.
    axis: int = 0
    # How dimensions are merged; None if there are not too many of them.
    merging: Merging | None = None
    # The axes of the dimensions of size 1 that are added, if there are too few.
    added_axes: tuple[int, ...] = ()
    # Whether the elements are cast to another type before the Split, and back after it.
    is_cast: bool = False
    # Whether the node itself serves once num_outputs is set.
    lacks_only_count: bool = False
    # Whether the Split has no sizes: it divides an axis, whatever its size is, into as many pieces
    # as the old one.
    is_divided: bool = False


def form_of(verdict: Verdict) -> SplitForm | Obstacle:
    """The form of a refused split of an ONNX model, or why --write-fixed cannot rewrite it."""
    form = _accepted_form(verdict)
    if isinstance(form, Obstacle) or compared_shapes(verdict.site):
        return form
    shape = verdict.site.shape or ()
    limit = f"at most {MAX_COMPARED_BYTES:,} bytes, the most that is compared with a replacement"
    if is_static(shape):
        size = _byte_count(verdict.site, shape)
        return Obstacle(f"its input must have {limit}, and has {size:,}")
    reason = f"at two sizes of each dynamic dimension, its input must have {limit}"
    smallest = [size if isinstance(size, int) else 1 for size in shape]
    if _byte_count(verdict.site, smallest) > MAX_COMPARED_BYTES:
        return Obstacle(reason)
    return Obstacle(reason, "give the sizes with --dim")


def compared_shapes(site: SplitSite) -> list[tuple[int, ...]]:
    """The shapes of the inputs with which a split and its replacement are compared.

    None are left if a static input is too large, or a dynamic one at two of the three sizes. The
    last shapes of a dynamic input are empty: in each, some dynamic dimensions are 0. If the axis is
    divided, its sizes are multiples of the number of pieces, and with num_outputs also another one.
    """
    count = len(_dynamic_names(site))
    above_zero = [[_COMPARED_SIZES[(first + i) % 3] for i in range(count)] for first in range(3)]
    shapes = [_shape_at(site, sizes) for sizes in above_zero]
    shapes = [shape for shape in shapes if _byte_count(site, shape) <= MAX_COMPARED_BYTES]
    if len(shapes) < (2 if count else 1):
        return []
    others = [_shape_at(site, sizes) for sizes in _empty_sizes(count)]
    if site.sized_by == "num_outputs" and divided_into(site) is not None:
        others.insert(0, _shape_at(site, [2] * count, less=1))  # the last piece is smaller
    return [*shapes, *(shape for shape in others if _byte_count(site, shape) <= MAX_COMPARED_BYTES)]


def _dynamic_names(site: SplitSite) -> list[int | str]:
    """The different names of the dynamic dimensions; for one without a name, its axis.

    Dimensions of one name have one size; a dimension without a name is like no other.
    """
    rows = enumerate(site.shape or ())
    names = (axis if size is None else size for axis, size in rows if not isinstance(size, int))
    return list(dict.fromkeys(names))


def _shape_at(site: SplitSite, sizes: Sequence[int], less: int = 0) -> tuple[int, ...]:
    """The shape with these sizes, one per name; that of a divided axis counts pieces, `less` 1."""
    by_name = dict(zip(_dynamic_names(site), sizes, strict=True))
    rows = [(size, axis if size is None else size) for axis, size in enumerate(site.shape or ())]
    if (pieces := divided_into(site)) is not None:
        _, divided = rows[site.axis or 0]
        by_name[divided] = by_name[divided] * pieces - less
    return tuple(size if isinstance(size, int) else by_name[name] for size, name in rows)


def _empty_sizes(count: int) -> list[list[int]]:
    """Sizes of dynamic dimensions: all 1, then each one 0 by itself, then all 0."""
    if not count:
        return []
    alone = [[0 if i == j else 2 + i % 2 for i in range(count)] for j in range(count)]
    return [[1] * count, *alone, [0] * count]


def _byte_count(site: SplitSite, shape: Sequence[int]) -> int:
    """The bytes of an input of this shape."""
    # A custom operator may hide the type.
    return prod(shape) * (element_bytes(site.element_type) or 1)


def _accepted_form(verdict: Verdict) -> SplitForm | Obstacle:
    """The form that a target accepts, or the first obstacle."""
    site = verdict.site
    target = verdict.target
    if obstacle := _obstacle(verdict):
        return obstacle
    # Such a node needs neither a minimum opset nor known sizes.
    if {error.rule.id for error in verdict.errors} == {"ORT-NUM-OUTPUTS"}:
        return SplitForm(lacks_only_count=True)
    if site.opset < _MIN_OPSET:
        return Obstacle(f"the opset is {site.opset}; rewriting needs {_MIN_OPSET} or later")
    desc = _descriptor(site)
    if desc is None and divided_into(site) is None:
        return _gap(site)
    if is_complex(site.element_type):
        return Obstacle("standard ONNX cannot reinterpret complex elements as another type")
    if desc is not None:
        return _form(site, desc.input_tensor.data_type, target)
    return _dividing_form(site, target)


def _obstacle(verdict: Verdict) -> Obstacle | None:
    """Why no nodes can replace a split, whatever its sizes are; the reasons of the file first."""
    site = verdict.site
    if site.exceeds_protobuf:
        return TOO_LARGE
    for error in verdict.errors:
        if "model" not in error.rule.fixable_by:
            return Obstacle(f"{error.rule.id}: {error.message}")
    if site.is_in_function:
        return IN_A_FUNCTION
    if site.is_overridable:
        return _OVERRIDABLE
    if site.keeps_axis is None and verdict.target.runtime is None:
        return _DISPUTED_AXIS
    if site.keeps_axis is None and set(getattr(site.state, "pieces", None) or ()) - {1}:
        return _FAILS_IN_ORT
    return None


def _form(site: SplitSite, data_type: TensorDataType, target: Target) -> SplitForm | Obstacle:
    """The form for an input of this data type: how its rank and its type are adapted."""
    shape = site.shape or ()
    axis = site.axis or 0
    least, greatest = _dimension_counts(target)
    ones = tuple(range(least - len(shape)))
    merging = None
    split_axis = axis
    if len(shape) > greatest:
        merging, split_axis = merge_dimensions(shape, axis, least, greatest)
    if isinstance(site.state, Unknown) and 0 in (site.state.pieces or ()) and site.opset < 9:
        needs = "an empty piece of dynamic size needs 9 or later"
        return Obstacle(f"the opset is {site.opset}; {needs}")
    # A runtime runs a type that DirectML lacks on the CPU.
    is_cast = target.runtime is None and data_type not in support_table()[target.level].data_types
    if is_cast and data_type.bits >= 32:
        narrow = _NARROW.get(data_type)
        fix = f"if all values fit {narrow}, compute them in {narrow}"
        why = "no operator before BitCast-26 exposes them"
        return Obstacle(
            f"Cast would lose bits of {data_type.name}, and {why}", fix if narrow else ""
        )
    return SplitForm(split_axis + len(ones), merging, ones, is_cast)


def _dividing_form(site: SplitSite, target: Target) -> SplitForm | Obstacle:
    """The form for a dynamic axis, if the target wants more dimensions or another type."""
    assert isinstance(site.state, Unknown)
    assert site.state.smallest_descriptor
    form = _form(site, site.state.smallest_descriptor.input_tensor.data_type, target)
    if isinstance(form, Obstacle):
        return form
    if form.merging or not (form.added_axes or form.is_cast):
        return _gap(site)
    return form._replace(is_divided=True)


def divided_into(site: SplitSite) -> int | None:
    """The number of equal pieces of a Split along a dynamic axis; None for other splits."""
    state = site.state
    if not isinstance(state, Unknown) or not site.shape or None in (site.axis, site.element_type):
        return None
    is_dynamic = not isinstance(site.shape[site.axis or 0], int)
    if not is_dynamic or site.sized_by not in ("num_outputs", "outputs") or site.makes_sequence:
        return None
    if site.lacks_count:  # once the axis has a size, ONNX Runtime does not load the model
        return None
    # The smallest descriptor has one element along the axis for each output.
    desc = state.smallest_descriptor
    has_axes = desc is not None and desc.input_tensor.dimension_count == len(site.shape)
    return desc.input_tensor.sizes[site.axis or 0] if desc and has_axes else None


def _gap(site: SplitSite) -> Obstacle:
    """What has to be known about a split without a descriptor before it can be rewritten."""
    if not isinstance(site.state, Unknown):
        return Obstacle("all of its outputs are empty")
    cause = site.state.cause
    if cause in (Cause.DYNAMIC, Cause.UNTRACKED) and site.element_type is None:
        cause = Cause.TYPE
    if cause is Cause.LENGTHS and site.state.missing:
        return _COMPUTED_LENGTHS
    return _GAPS.get(cause) or Obstacle(site.state.reason)


def _descriptor(site: SplitSite) -> SplitOperatorDesc | None:
    """The descriptor of a split, with dynamic sizes of 1 if they only multiply its elements."""
    match site.state:
        case Known(descriptor) | Unknown(smallest_descriptor=descriptor, only_count_varies=True):
            return descriptor
    return None


def _dimension_counts(target: Target) -> tuple[int, int]:
    """The least and the greatest rank that a target accepts."""
    if target.runtime is not None:
        return 1, target.runtime.assumed_provider.maximum_rank.value
    support = support_table()[target.level]
    return support.minimum_dimensions, support.maximum_dimensions


def merge_dimensions(
    shape: Sequence[Size], axis: int, least: int, greatest: int
) -> tuple[Merging, int]:
    """How dimensions are merged for a target of these ranks, and the axis of the Split then.

    Dynamic dimensions in front of the axis stay if there are few enough: Reshape can keep them
    whatever their sizes are, even 0. Otherwise, sizes of dynamic groups have to be computed. The
    result for a dynamic axis is not used: `_dividing_form` refuses it.
    """
    dynamic_axes = [index for index, size in enumerate(shape) if not isinstance(size, int)]
    kept = dynamic_axes[-1] + 1 if dynamic_axes else 0
    before = shape[kept:axis]
    after = shape[axis + 1 :]
    if kept and is_static(before) and is_static(after):
        group_before = (prod(before),) if before else ()
        group_after = (prod(after),) if after else ()
        groups = (*group_before, shape[axis], *group_after)
        ones = (1,) * (least - kept - len(groups))
        new_axis = kept + len(group_before)
        if kept + len(groups) <= greatest:
            return Merging(kept, (*groups, *ones)), new_axis
    # Every level and every runtime accepts four dimensions, so a 1 comes first.
    four = (1, _product(shape[:axis]), shape[axis], _product(after))
    new_axis = 2
    return Merging(0, four), new_axis


def _product(sizes: Sequence[Size]) -> int | None:
    """The product of sizes; None if one of them is dynamic."""
    return prod(sizes) if is_static(sizes) else None


def is_static(shape: Sequence[Size]) -> TypeGuard[Sequence[int]]:
    """Whether every size is known."""
    return all(isinstance(size, int) for size in shape)
