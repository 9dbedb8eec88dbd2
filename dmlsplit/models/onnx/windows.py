"""Shapes after windows that slide over images: convolutions, pools and resizes.

Where ONNX Runtime and ONNX's shape inference disagree, a shape is unknown: for SAME padding with
dilations or ceil_mode, for `output_shape` of ConvTranspose, and where rounding decides a size.
"""

from collections.abc import Callable, Sequence

from dmlsplit.checks import axis_from_front
from dmlsplit.geometry import ceil_div
from dmlsplit.models.onnx.protobuf import Shape
from dmlsplit.models.onnx.values import InferenceContext
from dmlsplit.models.site import Size

_Sizes = Sequence[Size]


def _convolution(context: InferenceContext) -> Shape:
    """After a convolution, whose window is the kernel, an input."""
    channels, _, *kernel = context.shape(3 if context.node.op_type == "QLinearConv" else 1)
    batch, _, *spatial = context.shape(0)
    return (batch, channels, *_windowed_sizes(context, spatial, kernel))


def _pool(context: InferenceContext) -> Shape:
    """After a pool, whose window is an attribute."""
    batch, channels, *spatial = context.shape(0)
    if _has_same_padding(context) and (
        context.int_attribute("ceil_mode", 0) or set(context.int_attribute("dilations", ())) - {1}
    ):
        raise ValueError("implementations disagree about SAME padding with ceil_mode or dilations")
    return (
        batch,
        channels,
        *_windowed_sizes(context, spatial, context.int_attribute("kernel_shape", ())),
    )


def _has_same_padding(context: InferenceContext) -> bool:
    """Whether auto_pad decides the padding, so that the output is size / stride, rounded up."""
    return context.text("auto_pad").startswith("SAME") and "pads" not in context.node.attributes


def _windowed_sizes(context: InferenceContext, spatial: _Sizes, kernel: _Sizes) -> Shape:
    """The spatial sizes after a window of this kernel has slid over an input."""
    rank = len(spatial)
    strides = context.int_attribute("strides", (1,) * rank)
    if _has_same_padding(context):
        pairs = zip(spatial, strides, strict=True)
        return tuple(ceil_div(n, stride) if isinstance(n, int) else None for n, stride in pairs)
    dilations = context.int_attribute("dilations", (1,) * rank)
    pads = context.int_attribute("pads", (0,) * (2 * rank))
    rows = zip(spatial, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    rounds_up = context.int_attribute("ceil_mode", 0) == 1
    return tuple(_steps(*row, rounds_up=rounds_up) for row in rows)


def _steps(
    size: Size, window: Size, stride: int, dilation: int, low: int, high: int, *, rounds_up: bool
) -> Size:
    """The number of positions of a window along one dimension; `rounds_up` is ceil_mode."""
    if not isinstance(size, int) or not isinstance(window, int):
        return None
    room = size + low + high - (dilation * (window - 1) + 1)
    if room < 0:
        raise ValueError(f"the window of {window} is wider than the padded input of size {size}")
    steps = ceil_div(room, stride) if rounds_up else room // stride
    # With ceil_mode, a window that would begin in the end padding is dropped.
    return steps if rounds_up and steps * stride >= size + low else steps + 1


def _transposed_convolution(context: InferenceContext) -> Shape:
    """After ConvTranspose, which undoes the shape of a convolution.

    With SAME padding, a size is multiplied by its stride, unless the kernel reaches less far.
    """
    batch, _, *spatial = context.shape(0)
    _, channels, *kernel = context.shape(1)
    rank = len(spatial)
    is_same = _has_same_padding(context)
    disputed = {"output_shape", "output_padding"} if is_same else {"output_shape"}
    if present := context.node.attributes.keys() & disputed:
        raise ValueError(f"implementations disagree about {', '.join(sorted(present))}")
    pads = context.int_attribute("pads", (0,) * 2 * rank)
    output_padding = context.int_attribute("output_padding", (0,) * rank)
    strides = context.int_attribute("strides", (1,) * rank)
    dilations = context.int_attribute("dilations", (1,) * rank)
    sizes: list[Size] = []
    for axis, (size, window) in enumerate(zip(spatial, kernel, strict=True)):
        if not isinstance(size, int) or not isinstance(window, int):
            sizes.append(None)
            continue
        full_size = (
            strides[axis] * (size - 1) + dilations[axis] * (window - 1) + 1 + output_padding[axis]
        )
        same = min(size * strides[axis], full_size)
        sizes.append(same if is_same else full_size - pads[axis] - pads[axis + rank])
    groups = context.int_attribute("group", 1)
    return (batch, channels * groups if isinstance(channels, int) else None, *sizes)


def _resize(context: InferenceContext) -> Shape:
    """After Resize and Upsample, which are given sizes or scales."""
    sizes = list(context.shape(0))
    axes = context.int_attribute("axes", tuple(range(len(sizes))))
    resized = (
        _target_sizes(context) if any(context.node.input[3:4]) else _scaled(context, sizes, axes)
    )
    for axis, size in zip(axes, resized, strict=True):
        sizes[axis_from_front(axis, len(sizes))] = size
    return tuple(sizes)


def _target_sizes(context: InferenceContext) -> _Sizes:
    """The sizes that Resize is given, unless they are only limits for its aspect ratio."""
    if context.text("keep_aspect_ratio_policy") not in ("", "stretch"):
        raise ValueError("keep_aspect_ratio_policy is not stretch; rounding decides the sizes")
    return context.sizes("", 3)


def _scaled(context: InferenceContext, sizes: _Sizes, axes: Sequence[int]) -> _Sizes:
    """The sizes of these axes multiplied by the scales of Resize."""
    scales = context.floats("scales") or context.items(1 if len(context.node.input) == 2 else 2)
    # Multiples of 1/64 round down the same in any precision; 5 * 2.6 is 12 or 13.
    exact = [scale for scale in scales if isinstance(scale, int | float) and scale * 64 % 1 == 0]
    if len(exact) < len(scales) or context.text("coordinate_transformation_mode")[:7] == "tf_crop":
        raise ValueError(f"scales are {list(scales)}; rounding decides the sizes")
    pairs = zip((sizes[axis] for axis in axes), exact, strict=True)
    return [size if scale == 1 else _scaled_size(size, scale) for size, scale in pairs]


def _scaled_size(size: Size, scale: float) -> Size:
    """A size multiplied by a scale, rounded down; None if it is dynamic."""
    return int(size * scale) if isinstance(size, int) else None


RULES: dict[str, Callable[[InferenceContext], Shape]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", "QLinearConv"), _convolution),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "ConvTranspose": _transposed_convolution,
}
