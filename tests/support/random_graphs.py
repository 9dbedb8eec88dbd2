"""Random ONNX graphs around splits: chains of operators, whose shapes ONNX Runtime finds.

A step is written in ONNX's text form: it makes y of x, and a list in braces stands for a constant.
ONNX Runtime runs each step alone, and one that it refuses is not taken.
"""

import re
from collections.abc import Callable
from functools import cache
from math import prod
from random import Random
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto
from onnxruntime.capi import onnxruntime_pybind11_state as ort

from tests.support.models import parsed, session, split_nodes
from tests.support.onnx_graphs import model, value

Shape = tuple[int, ...]
MAX_ELEMENTS, MAX_RANK = 20_000, 5
REFUSED = ort.Fail, ort.InvalidArgument, ort.InvalidGraph, ort.RuntimeException


def any_size(shape: Shape, draw: Random) -> list[str]:
    """Steps that do not contain fixed sizes."""
    axis, order = draw.randrange(len(shape)), draw.sample(range(len(shape)), len(shape))
    return [
        f"y = Transpose <perm = {order}> (x)",
        f"y = Unsqueeze (x, {{{axis}}})",
        f"y = Concat <axis = {axis}> (x, x)",
        f"y = {draw.choice('Relu Sigmoid Softmax Neg Identity Elu'.split())} (x)",
    ]


def steps(shape: Shape, draw: Random) -> list[str]:
    """All steps from a value of this shape, with an axis and numbers drawn for them."""
    total, axis, last = prod(shape), draw.randrange(len(shape)), shape[-1]
    n, channels = shape[axis], (*shape, 1)[1]
    few, mask = draw.randint(1, 6), [*draw.choices((0, 1), k=n - 1), 1]
    ones = [index for index, size in enumerate(shape) if size == 1]
    wide = [4 if index in ones[:1] else size for index, size in enumerate(shape)]
    pads = [2 * (index == axis) for index in range(2 * len(shape))]
    repeats = [1 + 2 * (index == axis) for index in range(len(shape))]
    pool = [min(2, size) for size in shape[2:]] or [2]
    # One size of x, of shape [1].
    size = f"s = Shape (x)\n n = Gather <axis = 0> (s, {{{axis}}})\n"
    return [
        *any_size(shape, draw),
        f"y = Reshape (x, {{{draw.choice([k for k in range(1, 7) if total % k == 0])}, -1}})",
        f"y = Squeeze (x, {{{draw.choice(ones or [axis])}}})",
        f"y = Slice (x, {{{draw.randrange(n)}}}, {{{2**62}}}, {{{axis}}})",
        f"y = Gather <axis = {axis}> (x, {{{', '.join('0' * few)}}})",
        f"y = Pad (x, {{{listed(pads)}}})",
        f"y = Tile (x, {{{listed(repeats)}}})",
        f"y = Expand (x, {{{listed(wide)}}})",
        f"y = ReduceMean <keepdims = {few % 2}> (x, {{{axis}}})",
        f"w = ConstantOfShape ({{{last}, {few}}})\n y = MatMul (x, w)",
        f"w = ConstantOfShape ({{5, {channels}, 2, 2}})\n y = Conv <strides = [2, 2]> (x, w)",
        f"w = ConstantOfShape ({{{channels}, 3, 2, 2}})\n"
        "y = ConvTranspose <strides = [2, 2]> (x, w)",
        "y = GlobalAveragePool (x)",
        f"y = MaxPool <kernel_shape = {pool}, strides = {pool}, ceil_mode = 1> (x)",
        "y = Resize (x, , {1f, 1f, 2f, 2f})",
        f"y, i = TopK <axis = {axis}> (x, {{{draw.randint(1, n)}}})",
        "s = Shape (x)\n y = ConstantOfShape (s)",
        "i = Cast <to = 7> (x)\n y = OneHot (i, {3}, {0f, 1f})",
        "y = DepthToSpace <blocksize = 2> (x)",
        'y = Einsum <equation = "abc,abd->acd"> (x, x)',
        f"w = ConstantOfShape ({{1, 16, {last}}})\n r = ConstantOfShape ({{1, 16, 4}})\n"
        "y = LSTM <hidden_size = 4> (x, w, r)",
        # As exporters write sizes that they compute: x.view(n, -1), x[: n // 2] in floats,
        # x[-(n + 1) // 2 :], x.flatten(), the top min(n, 3) of detectors, x[::2] and x[mask].
        f"{size} m = Concat <axis = 0> (n, {{-1}})\n y = Reshape (x, m)",
        f"{size} r = Cast <to = 1> (n)\n h = Div (r, {{2f}})\n f = Floor (h)\n"
        f"e = Cast <to = 7> (f)\n y = Slice (x, {{0}}, e, {{{axis}}})",
        f"{size} u = Add (n, {{1}})\n m = Neg (u)\n b = Div (m, {{2}})\n"
        f"y = Slice (x, b, {{{2**40}}}, {{{axis}}})",
        "s = Shape (x)\n t = ReduceProd (s)\n m = Concat <axis = 0> ({1}, t)\n y = Reshape (x, m)",
        f"{size} k = Min (n, {{3}})\n y, i = TopK <axis = {axis}> (x, k)",
        f"{size} e = Squeeze (n)\n b = Squeeze ({{0}})\n d = Squeeze ({{2}})\n"
        f"i = Range (b, e, d)\n y = Gather <axis = {axis}> (x, i)",
        f"m = NonZero ({{{listed(mask)}}})\n i = Squeeze (m, {{0}})\n"
        f"y = Gather <axis = {axis}> (x, i)",
        # torch.expand, torch's interpolation, and halves of computed lengths.
        f"e = Equal ({{{listed([-1] * len(shape))}}}, {{{listed([-1] * len(shape))}}})\n"
        f"m = Where (e, {{{listed([1] * len(shape))}}}, {{{listed([-1] * len(shape))}}})\n"
        "y = Expand (x, m)",
        f"{size} s2 = Slice (s, {{0}}, {{2}})\n h = Slice (s, {{2}}, {{4}})\n m = Mul (h, {{2}})\n"
        "w = Concat <axis = 0> (s2, m)\n y = Resize (x, , , w)",
        f"{size} h = Div (n, {{2}})\n r = Sub (n, h)\n m = Concat <axis = 0> (h, r)\n"
        f"y, z = Split <axis = {axis}> (x, m)",
    ]


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


class Chain(NamedTuple):
    """Nodes that end in a split; their names begin with the same letters, as does that of `x`."""

    prefix: str
    nodes: list[onnx.NodeProto]
    start: Shape  # of the input
    shape: Shape  # of what is split


def chain(
    draw: Random, prefix: str, most: int, choices: Callable[[Shape, Random], list[str]]
) -> Chain:
    """A chain of at most `most` steps."""
    start = shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(1, 4)))
    nodes, value_name = [], f"{prefix}x"
    for number in range(draw.randint(0, most)):
        result = step(draw.choice(choices(shape, draw)), shape)
        if result:
            step_nodes, shape = result
            names = {"x": value_name, "": ""}
            for node in step_nodes:
                for field in (node.input, node.output):
                    new = [names.setdefault(old, f"{prefix}{number}{old}") for old in field]
                    field[:] = new
            nodes += step_nodes
            value_name = names["y"]
    axis = draw.randrange(len(shape))
    ends = sorted(draw.sample(range(1, shape[axis]), min(shape[axis], draw.randint(1, 4)) - 1))
    sizes = np.diff([0, *ends, shape[axis]]).tolist()
    return Chain(
        prefix, [*nodes, *split_nodes(f"{prefix}cut", value_name, sizes, axis)], start, shape
    )


def step(text: str, shape: Shape) -> tuple[list[onnx.NodeProto], Shape] | None:
    """The nodes of a step from this shape, and the shape that it leads to, if it can be taken."""
    constants: list[str] = []

    def constant(match: re.Match[str]) -> str:
        kind = "float" if "f" in match[1] else "int64"
        name, numbers = f"c{len(constants)}", match[1].replace("f", "")
        size = numbers.count(",") + 1
        constants.append(f"{name} = Constant <value = {kind}[{size}] {{{numbers}}}> ()")
        return name

    body = re.sub(r"\{(.*?)\}", constant, text)
    content = parsed(f"(float{list(shape)} x) => (y) {{ {' '.join((*constants, body))} }}")
    try:
        (output,) = session(content).run(None, {"x": np.zeros(shape, np.float32)})
    except REFUSED:
        return None
    fits = 0 < output.size <= MAX_ELEMENTS and 0 < output.ndim <= MAX_RANK
    return (list(content.graph.node), output.shape) if fits else None


def static_chains(first: int, count: int) -> tuple[onnx.ModelProto, dict[str, Shape]]:
    """A model of `count` chains of up to 12 steps, and the shape of each split's input, by name."""
    chains = [chain(Random(seed), f"c{seed}_", 12, steps) for seed in range(first, first + count)]
    inputs = [
        value(f"{chain_of_seed.prefix}x", list(chain_of_seed.start)) for chain_of_seed in chains
    ]
    nodes = [node for chain_of_seed in chains for node in chain_of_seed.nodes]
    return _model(nodes, inputs), {
        f"{chain_of_seed.prefix}cut": chain_of_seed.shape for chain_of_seed in chains
    }


@cache
def _of_any_size(seed: int) -> Chain:
    return chain(Random(seed), "c_", 6, any_size)


def dynamic_chain(seed: int, sizes: dict[str, int] | None = None) -> onnx.ModelProto:
    """A model of one chain whose input has dynamic sizes, or the given ones instead."""
    draw, random_chain = Random(seed), _of_any_size(seed)
    names = [f"d{axis}" if draw.random() < 0.5 else "" for axis in range(len(random_chain.start))]
    kind = draw.choice([TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8])
    shape = [
        (sizes or {}).get(name, name) if name else size
        for name, size in zip(names, random_chain.start, strict=True)
    ]
    return _model(random_chain.nodes, [value("c_x", shape, kind)])


def dynamic_names(content: onnx.ModelProto) -> list[str]:
    """The names of the dynamic sizes of a model's inputs."""
    dims = [dim for entry in content.graph.input for dim in entry.type.tensor_type.shape.dim]
    return sorted({dim.dim_param for dim in dims if dim.dim_param})


def _model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    splits = [node for node in nodes if node.op_type == "Split"]
    outputs = " ".join(name for split in splits for name in split.output)
    return model(nodes, inputs, outputs=outputs, opsets={"": 18})
