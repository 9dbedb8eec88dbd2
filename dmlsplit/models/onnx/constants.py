"""Computes small constants, from which exporters compute shapes.

A dynamic size keeps its name where an operator only moves it; after arithmetic it has none.
"""

import math
import operator
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, compress, product
from typing import Any

from dmlsplit.models.limits import MAX_CONSTANT_ELEMENTS, MAX_FOLLOWED_SIZES
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import Attribute, Shape
from dmlsplit.models.onnx.reader import LimitError
from dmlsplit.models.onnx.values import InferenceContext, Item, elements
from dmlsplit.models.site import Size

_Items = tuple[Item, ...]
_Sizes = Sequence[int]
# How `struct` rounds a float to its type, and the bits of the integers that are computed.
_FLOATS = {ElementType.FLOAT: "<f", ElementType.DOUBLE: "<d", ElementType.FLOAT16: "<e"}
_INTEGER_BITS = {ElementType.INT64: 64, ElementType.INT32: 32}


def compute_elements(context: InferenceContext, data_type: int, shape: Shape) -> _Items | None:
    """The elements of a node's output of this type and shape; None if they are not known.

    A node that breaks its operator's rules raises a ValueError, IndexError, TypeError,
    ArithmeticError or struct.error.
    """
    compute = COMPUTED.get(context.node.op_type)
    if compute is None:
        return None
    sizes = _small_sizes(context, shape)
    items = tuple(compute(context, sizes))
    if len(items) != math.prod(sizes) or set(items) <= {None}:
        return None
    return tuple(_as_stored(item, ElementType(data_type)) for item in items)


def sizes_used(context: InferenceContext) -> frozenset[str]:
    """The dynamic sizes that the elements of a node in `COMPUTED` may follow from.

    Their names are those of `dimension_name`. Errors are those of `compute_elements`.
    """
    operator = context.node.op_type
    if operator not in ("Shape", "Size"):
        names = frozenset[str]().union(*(value.sizes for value in context.inputs))
        return names if len(names) <= MAX_FOLLOWED_SIZES else frozenset()
    name = context.node.input[0]
    shape = context.shape(0)
    axes = context.shape_axes if operator == "Shape" else range(len(shape))
    dynamic = [(axis, size) for axis in axes if not isinstance(size := shape[axis], int)]
    return frozenset(f"{name}.{axis}" if size is None else size for axis, size in dynamic)


def _small_sizes(context: InferenceContext, shape: Shape) -> list[int]:
    """The sizes of a small constant; a ValueError for others."""
    sizes = [size for size in shape if isinstance(size, int)]
    # Without elements, a size may still be large, and its indices would fill the memory.
    if len(sizes) < len(shape):
        raise ValueError(f"the shape {list(shape)} is dynamic")
    if (count := math.prod(size or 1 for size in sizes)) > MAX_CONSTANT_ELEMENTS:
        limit = f"dmlsplit computes with at most {MAX_CONSTANT_ELEMENTS:,}"
        raise LimitError(f"a constant of {count:,} elements; {limit}")
    context.reader.charge_elements(math.prod(sizes))
    return sizes


def _as_stored(item: Item, element_type: ElementType) -> Item:
    """An element after it was stored as a type; a ValueError if that may lose its value."""
    if isinstance(item, str | None):
        return item if element_type in _INTEGER_BITS else None
    if struct_format := _FLOATS.get(element_type):
        return float(struct.unpack(struct_format, struct.pack(struct_format, item))[0])
    if element_type is ElementType.BOOL:
        return bool(item)
    if (
        element_type not in _INTEGER_BITS
        or abs(integer := int(item)) >> _INTEGER_BITS[element_type] - 1
    ):
        raise ValueError(f"{element_type.name} may not hold {item}")
    return integer


def _small_input(context: InferenceContext, index: int) -> tuple[_Items, list[int]]:
    """The elements, as far as known, and the sizes of a small input."""
    sizes = _small_sizes(context, context.shape(index))
    if context.inputs[index].constant:
        return context.items(index), sizes
    return (None,) * math.prod(sizes), sizes


def _select(
    items: _Items, shape: _Sizes, positions: Sequence[_Sizes], order: _Sizes | None = None
) -> _Items:
    """Select positions along each axis, then permute the axes."""
    strides = list(accumulate(reversed(shape), operator.mul, initial=1))[-2::-1]
    offsets = [[i * step for i in axis] for axis, step in zip(positions, strides, strict=True)]
    rows = [offsets[axis] for axis in order] if order else offsets
    return tuple(items[sum(offset)] for offset in product(*rows))


def _broadcast(context: InferenceContext, index: int, sizes: _Sizes) -> _Items:
    """An input, broadcast to these sizes."""
    items, shape = _small_input(context, index)
    context.reader.charge_elements(math.prod(sizes))
    shape = [1] * (len(sizes) - len(shape)) + shape
    rows = [range(n) if n == m else [0] * m for n, m in zip(shape, sizes, strict=True)]
    return _select(items, shape, rows)


def _rearrange(context: InferenceContext, sizes: _Sizes) -> _Items:
    """The elements of an input after Gather, Slice, Tile or Transpose."""
    items, shape = _small_input(context, 0)
    rows: list[_Sizes] = [range(size) for size in shape]
    order = None
    match context.node.op_type:
        case "Gather":
            axis = context.int_attribute("axis", 0)
            rows[axis] = [rows[axis][i] for i in context.integers("", 1)]
        case "Slice":
            for axis, part in context.slices():
                rows[axis] = rows[axis][part]
        case "Tile":
            repeats = context.integers("repeats")
            rows = [[*row] * count for row, count in zip(rows, repeats, strict=True)]
        case "Transpose":
            order = context.int_attribute("perm", tuple(range(len(shape)))[::-1])
    return _select(items, shape, rows, order)


def _concat(context: InferenceContext, sizes: _Sizes) -> _Items:
    """Rows of each input in turn: the elements of the axis and the dimensions after it."""
    axis = range(len(sizes))[context.int_attribute("axis", 0)]
    row_count = math.prod(sizes[:axis])
    rows_of_inputs = []
    for index in range(len(context.inputs)):
        items, shape = _small_input(context, index)
        width = math.prod(shape[axis:])
        rows = [items[row * width : (row + 1) * width] for row in range(row_count)]
        rows_of_inputs.append(rows)
    joined_rows = chain.from_iterable(zip(*rows_of_inputs, strict=True))
    return tuple(chain.from_iterable(joined_rows))


def _element_wise(context: InferenceContext, sizes: _Sizes) -> _Items:
    """The results of an operator of `_ARITHMETIC`; None where an operand is not known."""
    if context.int_attribute("fmod", 0):
        raise ValueError("fmod is not 0: another remainder than Python's")
    compute = _ARITHMETIC[context.node.op_type]
    rows = zip(
        *(_broadcast(context, index, sizes) for index in range(len(context.inputs))), strict=True
    )
    # Where moves the elements of its branches.
    tested = 1 if context.node.op_type == "Where" else None
    return tuple(
        None if any(isinstance(n, str | None) for n in row[:tested]) else compute(*row)
        for row in rows
    )


def _reduce(context: InferenceContext, sizes: _Sizes) -> _Items:
    """The one result of an operator of `_REDUCTIONS`."""
    items, _ = _small_input(context, 0)
    if math.prod(sizes) != 1:
        raise ValueError(f"the result has the shape {list(sizes)}; only single results are reduced")
    is_known = not any(isinstance(item, str | None) for item in items)
    return (_REDUCTIONS[context.node.op_type](items) if is_known else None,)


def _divide(dividend: Any, divisor: Any) -> Any:
    """The quotient; that of integers is truncated toward zero."""
    if isinstance(dividend, float):
        return dividend / divisor
    return abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)


def range_length(context: InferenceContext) -> Size:
    """The number of elements of Range; None if an input is not known, or rounding decides."""
    items = [item for index in range(3) for item in _small_input(context, index)[0]]
    numbers = [item for item in items if isinstance(item, int | float)]
    if len(numbers) < len(items):
        return None
    start, limit, delta = numbers
    if start % 1 or limit % 1 or delta % 1:
        return None  # rounding decides
    return max(0, int(-((start - limit) // delta)))


def _range(context: InferenceContext, sizes: _Sizes) -> _Items:
    """The elements of Range."""
    (start,), (delta,) = map(context.items, (0, 2))
    return tuple(start + delta * i for i in range(sizes[0]))  # type: ignore[operator]


def _constant_of_shape(context: InferenceContext, sizes: _Sizes) -> _Items:
    """The elements of ConstantOfShape, all equal."""
    tensor = context.node.attributes.get("value", Attribute()).t
    (item,) = elements(context.reader, tensor) if tensor else (0.0,)
    return (item,) * math.prod(sizes)


def nonzero_indices(context: InferenceContext) -> list[tuple[int, ...]]:
    """The indices of elements that are not zero."""
    items, shape = _small_input(context, 0)
    if any(isinstance(item, str | None) for item in items):
        raise ValueError("an element of input 0 is not known")
    return list(compress(product(*map(range, shape)), items))


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Abs": abs, "Add": operator.add, "And": operator.and_, "Ceil": math.ceil, "Div": _divide,
    "Equal": operator.eq, "Floor": math.floor, "Greater": operator.gt, "Less": operator.lt,
    "GreaterOrEqual": operator.ge, "LessOrEqual": operator.le, "Mod": operator.mod,
    "Max": lambda *numbers: max(numbers), "Min": lambda *numbers: min(numbers),
    "Mul": operator.mul, "Neg": operator.neg, "Not": operator.not_, "Or": operator.or_,
    "Round": round, "Sqrt": math.sqrt, "Sub": operator.sub, "Xor": operator.xor,
    "Where": lambda test, x, y: x if test else y,
}  # fmt: skip
_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "ReduceMax": max, "ReduceMin": min, "ReduceProd": math.prod, "ReduceSum": sum
}  # fmt: skip
COMPUTED: dict[str, Callable[[InferenceContext, _Sizes], Sequence[Item]]] = {
    **dict.fromkeys(_ARITHMETIC, _element_wise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("Gather", "Slice", "Tile", "Transpose"), _rearrange),
    **dict.fromkeys(
        ("Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze"),
        lambda context, _: _small_input(context, 0)[0],
    ),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": lambda context, sizes: _broadcast(context, 0, sizes),
    "NonZero": lambda context, _: [
        n for axis in zip(*nonzero_indices(context), strict=True) for n in axis
    ],
    "Range": _range,
    "Shape": lambda context, _: context.shape_part,
    "Size": lambda context, _: [
        math.prod(size if isinstance(size, int) else math.nan for size in context.shape(0))
    ],
}
