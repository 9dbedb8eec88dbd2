"""Shapes after operators that move elements: Reshape, Transpose, Slice, Pad and others."""

from collections.abc import Callable, Iterable, Sequence
from math import prod

from dmlsplit.checks import axis_from_front
from dmlsplit.models.onnx.protobuf import Shape
from dmlsplit.models.onnx.values import InferenceContext
from dmlsplit.models.site import Size


def combine_sizes(combine: Callable[[Iterable[int]], int], sizes: Sequence[Size]) -> Size:
    """The sum or the product of sizes; None if one of them is dynamic."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return combine(numbers) if len(numbers) == len(sizes) else None


def divide_size(size: Size, divisor: int) -> Size:
    """A size divided by a number."""
    return size // divisor if isinstance(size, int) else None


def _reshape(context: InferenceContext) -> Shape:
    """After Reshape: 0 stands for a size of the input, and -1 for what is left."""
    shape = context.sizes("shape")
    before = context.shape(0) if 0 in shape or -1 in shape else ()
    keeps_zero = context.int_attribute("allowzero", 0) == 1
    sizes = [before[i] if n == 0 and not keeps_zero else n for i, n in enumerate(shape)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = _inferred_size(list(before), [n for n in sizes if n != -1])
    return tuple(sizes)


def _inferred_size(before: list[Size], after: list[Size]) -> Size:
    """The size that -1 stands for; equal names on both sides cancel."""
    for size in after[:]:
        if isinstance(size, str) and size in before:
            before.remove(size)
            after.remove(size)
    total = combine_sizes(prod, before)
    parts = combine_sizes(prod, after)
    if not isinstance(total, int) or not isinstance(parts, int):
        return None
    size, rest = divmod(total, parts)
    if rest:
        raise ValueError(f"{total} elements do not divide into groups of {parts}")
    return size


def _transpose(context: InferenceContext) -> Shape:
    shape = context.shape(0)
    order = context.int_attribute("perm", tuple(reversed(range(len(shape)))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"perm is {order}; it must be a permutation of {len(shape)} axes")
    return tuple(shape[i] for i in order)


def _flatten(context: InferenceContext) -> Shape:
    shape = context.shape(0)
    axis = context.int_attribute("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"axis is {axis}; it must be from {-len(shape)} to {len(shape)}")
    return combine_sizes(prod, shape[:axis]), combine_sizes(prod, shape[axis:])


def _unsqueeze(context: InferenceContext) -> Shape:
    axes = context.integers("axes")
    shape = list(context.shape(0))
    rank = len(shape) + len(axes)
    for axis in sorted(axis_from_front(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    return tuple(shape)


def _squeeze(context: InferenceContext) -> Shape:
    shape = context.shape(0)
    if not context.has_axes(1) and not context.inputs[0].is_static:
        raise ValueError(f"the shape is {list(shape)}; a dynamic size may be 1")
    axes = context.axes(1, [axis for axis, size in enumerate(shape) if size == 1])
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _concat(context: InferenceContext) -> Shape:
    first, *_ = shapes = context.shapes
    axis = axis_from_front(context.int_attribute("axis", 0), len(first))
    total = combine_sizes(sum, [shape[axis] for shape in shapes])
    return (*first[:axis], total, *first[axis + 1 :])


def _slice(context: InferenceContext) -> Shape:
    """After Slice; computed bounds leave the sizes of its axes unknown."""
    sizes = list(context.shape(0))
    try:
        parts = list(context.slices())
    except ValueError:  # only the axes are known
        (count,) = context.shape(1)
        if not isinstance(count, int):
            raise
        for axis in context.axes(3, range(count)):
            sizes[axis] = None
        return tuple(sizes)
    for axis, part in parts:
        size = sizes[axis]
        sizes[axis] = len(range(*part.indices(size))) if isinstance(size, int) else None
    return tuple(sizes)


def _pad(context: InferenceContext) -> Shape:
    """After Pad; negative pads cut."""
    sizes = list(context.shape(0))
    pads = context.sizes("pads")
    axes = context.axes(3, range(len(sizes)))
    for axis, low, high in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        if low != 0 or high != 0:  # else a dynamic size keeps its name
            sizes[axis] = combine_sizes(sum, [sizes[axis], low, high])
    return tuple(sizes)


def _gather(context: InferenceContext) -> Shape:
    shape = context.shape(0)
    indices = context.shape(1)
    axis = axis_from_front(context.int_attribute("axis", 0), len(shape))
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def _gather_nd(context: InferenceContext) -> Shape:
    *indices, depth = context.shape(1)
    batch = context.int_attribute("batch_dims", 0)
    if not isinstance(depth, int):
        raise ValueError("the last size of the indices, which decides the rank, is dynamic")
    return (*indices, *context.shape(0)[batch + depth :])


def _depth_to_space(context: InferenceContext) -> Shape:
    batch, depth, *spatial = context.shape(0)
    block = context.int_attribute("blocksize", 0)
    return (
        batch,
        divide_size(depth, block**2),
        *(combine_sizes(prod, [n, block]) for n in spatial),
    )


def _space_to_depth(context: InferenceContext) -> Shape:
    batch, depth, *spatial = context.shape(0)
    block = context.int_attribute("blocksize", 0)
    return (
        batch,
        combine_sizes(prod, [depth, block**2]),
        *(divide_size(n, block) for n in spatial),
    )


def _tile(context: InferenceContext) -> Shape:
    pairs = zip(context.shape(0), context.sizes("repeats"), strict=True)
    return tuple(combine_sizes(prod, pair) for pair in pairs)


RULES: dict[str, Callable[[InferenceContext], Shape]] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": lambda context: context.shape(1),
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
