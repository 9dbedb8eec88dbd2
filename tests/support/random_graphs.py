"""Random ONNX graphs around splits: chains of operators whose shapes are known while building."""

from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_graphs import model

Shape = tuple[int, ...]


class Chain:
    """A chain of nodes that ends in a split; all its names begin with its prefix."""

    def __init__(self, random: Random, prefix: str) -> None:
        self.random = random
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.shape: Shape = tuple(random.randint(1, 6) for _ in range(random.randint(1, 4)))
        self.value = self.name()
        self.input = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, self.shape)

    def name(self) -> str:
        return f"{self.prefix}{len(self.nodes)}_{self.random.randrange(10**9)}"

    def constant(self, *values: int, kind: type = np.int64) -> str:
        name = self.name()
        tensor = numpy_helper.from_array(np.array(values, kind), name)
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def add(self, operator: str, *more: str, shape: Shape | None = None, **attributes: Any) -> None:
        self.value = self.make(operator, self.value, *more, **attributes)
        self.shape = self.shape if shape is None else shape

    def make(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = self.name()
        label = f"{self.prefix}n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=label, **attributes))
        return name

    def axis(self) -> int:
        return self.random.randrange(len(self.shape))

    def at(self, axis: int, *sizes: int) -> Shape:
        return (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

    def cut(self) -> None:
        """Add the split."""
        axis = self.axis()
        size = self.shape[axis]
        count = self.random.randint(1, min(size, 4))
        bounds = sorted(self.random.sample(range(1, size), count - 1)) if count > 1 else []
        sizes = np.diff([0, *bounds, size]).tolist()
        outputs = [f"{self.prefix}piece{index}" for index in range(count)]
        given = self.constant(*sizes)
        name = f"{self.prefix}cut"
        self.nodes.append(
            helper.make_node("Split", [self.value, given], outputs, name=name, axis=axis)
        )


def _transpose(chain: Chain) -> None:
    order = list(range(len(chain.shape)))
    chain.random.shuffle(order)
    chain.add("Transpose", perm=order, shape=tuple(chain.shape[i] for i in order))


def _reshape(chain: Chain) -> None:
    first = chain.random.choice([n for n in range(1, 7) if prod(chain.shape) % n == 0])
    shape = chain.constant(first, -1)
    chain.add("Reshape", shape, shape=(first, prod(chain.shape) // first))


def _computed_reshape(chain: Chain) -> None:
    """The nodes that exporters write for x.view(x.shape[0], -1)."""
    whole = chain.make("Shape", chain.value)
    size = chain.make("Gather", whole, chain.constant(0), axis=0)
    wanted = chain.make("Concat", size, chain.constant(-1), axis=0)
    first = chain.shape[0]
    chain.add("Reshape", wanted, shape=(first, prod(chain.shape[1:])))


def _unsqueeze(chain: Chain) -> None:
    if len(chain.shape) < 5:
        axis = chain.axis()
        chain.add("Unsqueeze", chain.constant(axis), shape=chain.at(axis, 1, chain.shape[axis]))


def _squeeze(chain: Chain) -> None:
    ones = [axis for axis, size in enumerate(chain.shape) if size == 1]
    if ones and len(chain.shape) > 1:
        axis = chain.random.choice(ones)
        chain.add("Squeeze", chain.constant(axis), shape=chain.at(axis))


def _concat(chain: Chain) -> None:
    axis = chain.axis()
    if chain.shape[axis] < 30:
        chain.add("Concat", chain.value, axis=axis, shape=chain.at(axis, 2 * chain.shape[axis]))


def _slice(chain: Chain) -> None:
    axis = chain.axis()
    start = chain.random.randrange(chain.shape[axis])
    rest = (chain.constant(start), chain.constant(2**62), chain.constant(axis))
    chain.add("Slice", *rest, shape=chain.at(axis, chain.shape[axis] - start))


def _gather(chain: Chain) -> None:
    axis, count = chain.axis(), chain.random.randint(1, 5)
    chain.add("Gather", chain.constant(*[0] * count), axis=axis, shape=chain.at(axis, count))


def _pad(chain: Chain) -> None:
    axis, rank = chain.axis(), len(chain.shape)
    pads = [0] * (2 * rank)
    pads[axis] = 2
    chain.add("Pad", chain.constant(*pads), shape=chain.at(axis, chain.shape[axis] + 2))


def _tile(chain: Chain) -> None:
    axis, repeats = chain.axis(), [1] * len(chain.shape)
    if chain.shape[axis] < 20:
        repeats[axis] = 3
        shape = chain.at(axis, 3 * chain.shape[axis])
        chain.add("Tile", chain.constant(*repeats), shape=shape)


def _expand(chain: Chain) -> None:
    ones = [axis for axis, size in enumerate(chain.shape) if size == 1]
    if ones:
        shape = chain.at(ones[0], 4)
        chain.add("Expand", chain.constant(*shape), shape=shape)


def _reduce(chain: Chain) -> None:
    axis = chain.axis()
    keeps = chain.random.randint(0, 1) if len(chain.shape) > 1 else 1
    shape = chain.at(axis, *[1] * keeps)
    chain.add("ReduceMean", chain.constant(axis), keepdims=keeps, shape=shape)


def _matmul(chain: Chain) -> None:
    if len(chain.shape) > 1:
        width = chain.random.randint(1, 6)
        rows = (chain.shape[-1], width)
        weights = chain.make("ConstantOfShape", chain.constant(*rows))
        chain.add("MatMul", weights, shape=(*chain.shape[:-1], width))


def _convolution(chain: Chain) -> None:
    if len(chain.shape) == 4 and min(chain.shape[2:]) > 1:
        weights = chain.make("ConstantOfShape", chain.constant(5, chain.shape[1], 2, 2))
        height, width = (size // 2 for size in chain.shape[2:])
        shape = (chain.shape[0], 5, height, width)
        chain.add("Conv", weights, strides=[2, 2], kernel_shape=[2, 2], shape=shape)


def _pool(chain: Chain) -> None:
    if len(chain.shape) == 4:
        chain.add("GlobalAveragePool", shape=(*chain.shape[:2], 1, 1))


def _resize(chain: Chain) -> None:
    if len(chain.shape) == 4 and max(chain.shape) < 20:
        scales = chain.constant(1, 1, 2, 2, kind=np.float32)
        height, width = (2 * size for size in chain.shape[2:])
        chain.add("Resize", "", scales, shape=(*chain.shape[:2], height, width))


def _top(chain: Chain) -> None:
    axis = chain.axis()
    count = chain.random.randint(1, chain.shape[axis])
    given = chain.constant(count)
    indices = chain.name()
    chain.add("TopK", given, axis=axis, shape=chain.at(axis, count))
    chain.nodes[-1].output.append(indices)


def _zeros(chain: Chain) -> None:
    chain.value = chain.make("ConstantOfShape", chain.make("Shape", chain.value))


def _one_hot(chain: Chain) -> None:
    if len(chain.shape) < 4:
        indices = chain.make("Cast", chain.value, to=TensorProto.INT64)
        depth, values = chain.constant(3), chain.constant(0, 1, kind=np.float32)
        chain.value = chain.make("OneHot", indices, depth, values)
        chain.shape = (*chain.shape, 3)


# As exporters write sizes that they compute from others.


def _size(chain: Chain, axis: int) -> str:
    """One size of the value, of shape [1]."""
    return chain.make("Gather", chain.make("Shape", chain.value), chain.constant(axis), axis=0)


def _halved(chain: Chain) -> None:
    """x[: floor(n / 2.0)], in floats."""
    axis = chain.axis()
    if chain.shape[axis] > 1:
        real = chain.make("Cast", _size(chain, axis), to=TensorProto.FLOAT)
        half = chain.make("Floor", chain.make("Div", real, chain.constant(2, kind=np.float32)))
        end = chain.make("Cast", half, to=TensorProto.INT64)
        shape = chain.at(axis, chain.shape[axis] // 2)
        chain.add("Slice", chain.constant(0), end, chain.constant(axis), shape=shape)


def _integer_halved(chain: Chain) -> None:
    """x[-((n + 1) // 2) :], with a negative dividend."""
    axis = chain.axis()
    up = chain.make("Add", _size(chain, axis), chain.constant(1))
    start = chain.make("Div", chain.make("Neg", up), chain.constant(2))
    size = (chain.shape[axis] + 1) // 2
    ends = chain.constant(2**40)
    chain.add("Slice", start, ends, chain.constant(axis), shape=chain.at(axis, size))


def _flattened(chain: Chain) -> None:
    total = chain.make("ReduceProd", chain.make("Shape", chain.value), keepdims=1)
    wanted = chain.make("Concat", chain.constant(1), total, axis=0)
    chain.add("Reshape", wanted, shape=(1, prod(chain.shape)))


def _most(chain: Chain) -> None:
    """The top min(n, 3), as detectors select."""
    axis = chain.axis()
    least = chain.make("Min", _size(chain, axis), chain.constant(3))
    chain.add("TopK", least, axis=axis, shape=chain.at(axis, min(3, chain.shape[axis])))
    chain.nodes[-1].output.append(chain.name())


def _arranged(chain: Chain) -> None:
    """A Gather of every second index."""
    axis = chain.axis()
    zero, step = chain.name(), chain.name()
    for name, value in ((zero, 0), (step, 2)):
        tensor = numpy_helper.from_array(np.array(value), name)
        chain.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
    end = chain.make("Squeeze", _size(chain, axis))
    at = chain.make("Range", zero, end, step)
    shape = chain.at(axis, (chain.shape[axis] + 1) // 2)
    chain.add("Gather", at, axis=axis, shape=shape)


def _masked(chain: Chain) -> None:
    """A Gather of the indices where a constant mask is set."""
    axis = chain.axis()
    mask = [chain.random.randint(0, 1) for _ in range(chain.shape[axis] - 1)] + [1]
    at = chain.make("NonZero", chain.constant(*mask))
    chain.add("Gather", chain.make("Squeeze", at, chain.constant(0)), axis=axis,
              shape=chain.at(axis, sum(mask)))  # fmt: skip


def _expanded(chain: Chain) -> None:
    """torch.expand: where a size is -1, the one of the shape."""
    rank = len(chain.shape)
    minus, ones = [-1] * rank, chain.constant(*[1] * rank)
    asked = chain.constant(*minus)
    same = chain.make("Equal", asked, chain.constant(*minus))
    chain.add("Expand", chain.make("Where", same, ones, asked))


def _upsampled(chain: Chain) -> None:
    if len(chain.shape) == 4 and max(chain.shape) < 20:
        front = chain.make("Slice", chain.make("Shape", chain.value), chain.constant(0),
                           chain.constant(2))  # fmt: skip
        back = [chain.make("Mul", _size(chain, axis), chain.constant(2)) for axis in (2, 3)]
        wanted = chain.make("Concat", front, *back, axis=0)
        height, width = (2 * size for size in chain.shape[2:])
        chain.add("Resize", "", "", wanted, shape=(*chain.shape[:2], height, width))


def _ceil_pool(chain: Chain) -> None:
    """Of which onnx is not asked, because it is sometimes wrong."""
    if len(chain.shape) == 4:
        sizes = [-(-max(0, size - 2) // 2) + 1 for size in chain.shape[2:]]
        shape = (*chain.shape[:2], *(min(n, -(-size // 2)) for n, size in
                                     zip(sizes, chain.shape[2:], strict=True)))  # fmt: skip
        if min(chain.shape[2:]) > 1:
            chain.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, shape=shape)


def _transposed_convolution(chain: Chain) -> None:
    if len(chain.shape) == 4 and max(chain.shape) < 20:
        weights = chain.make("ConstantOfShape", chain.constant(chain.shape[1], 3, 2, 2))
        height, width = (2 * size for size in chain.shape[2:])
        shape = (chain.shape[0], 3, height, width)
        chain.add("ConvTranspose", weights, strides=[2, 2], kernel_shape=[2, 2], shape=shape)


def _shuffled(chain: Chain) -> None:
    if len(chain.shape) == 4 and chain.shape[1] % 4 == 0:
        batch, channels, height, width = chain.shape
        shape = (batch, channels // 4, 2 * height, 2 * width)
        chain.add("DepthToSpace", blocksize=2, shape=shape)


def _summed(chain: Chain) -> None:
    if len(chain.shape) == 3:
        a, _, c = chain.shape
        chain.add("Einsum", chain.value, equation="abc,abd->acd", shape=(a, c, c))


def _recurrent(chain: Chain) -> None:
    if len(chain.shape) == 3:
        length, batch, width = chain.shape
        weights = chain.make("ConstantOfShape", chain.constant(1, 16, width))
        again = chain.make("ConstantOfShape", chain.constant(1, 16, 4))
        chain.add("LSTM", weights, again, hidden_size=4, shape=(length, 1, batch, 4))


def _piece(chain: Chain) -> None:
    axis = chain.axis()
    if chain.shape[axis] > 1:
        first = chain.make("Div", _size(chain, axis), chain.constant(2))
        rest = chain.make("Sub", _size(chain, axis), first)
        lengths = chain.make("Concat", first, rest, axis=0)
        chain.add("Split", lengths, axis=axis, shape=chain.at(axis, chain.shape[axis] // 2))
        chain.nodes[-1].output.append(chain.name())


def _same(chain: Chain) -> None:
    chain.add(chain.random.choice("Relu Sigmoid Softmax Neg Identity Elu".split()))


_STEPS: list[Callable[[Chain], None]] = [
    _transpose, _reshape, _computed_reshape, _unsqueeze, _squeeze, _concat, _slice, _gather, _pad,
    _tile, _expand, _reduce, _matmul, _convolution, _pool, _resize, _top, _zeros, _one_hot, _same,
    _halved, _integer_halved, _flattened, _most, _arranged, _masked, _expanded, _upsampled,
    _ceil_pool, _transposed_convolution, _shuffled, _summed, _recurrent, _piece,
]  # fmt: skip
# The steps that do not contain fixed sizes.
_OF_ANY_SIZE = [_transpose, _unsqueeze, _concat, _same]


def static_chains(first: int, count: int) -> tuple[onnx.ModelProto, dict[str, Shape]]:
    """A model of `count` chains of 1 to 12 steps, and the shape of each split's input, by name."""
    chains = []
    for seed in range(first, first + count):
        random = Random(seed)
        chain = Chain(random, f"c{seed}_")
        for _ in range(random.randint(1, 12)):
            random.choice(_STEPS)(chain)
        chain.cut()
        chains.append(chain)
    nodes = [node for chain in chains for node in chain.nodes]
    return _model(nodes, [chain.input for chain in chains]), {
        f"{chain.prefix}cut": chain.shape for chain in chains
    }


def dynamic_chain(seed: int, sizes: dict[str, int] | None = None) -> onnx.ModelProto:
    """A model of one chain whose input has dynamic sizes, or the given ones instead."""
    random = Random(seed)
    chain = Chain(random, "c_")
    names = [f"d{axis}" if random.random() < 0.5 else "" for axis in range(len(chain.shape))]
    kind = random.choice([TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8])
    shape = [
        (sizes or {}).get(name, name) if name else size
        for name, size in zip(names, chain.shape, strict=True)
    ]
    declared = helper.make_tensor_value_info(chain.value, kind, shape)
    for _ in range(random.randint(0, 6)):
        random.choice(_OF_ANY_SIZE)(chain)
    chain.cut()
    return _model(chain.nodes, [declared])


def dynamic_names(content: onnx.ModelProto) -> list[str]:
    """The names of the dynamic sizes of a model's inputs."""
    dims = [dim for entry in content.graph.input for dim in entry.type.tensor_type.shape.dim]
    return sorted({dim.dim_param for dim in dims if dim.dim_param})


def _model(nodes: list[Any], inputs: list[Any]) -> onnx.ModelProto:
    splits = [node for node in nodes if node.op_type == "Split"]
    outputs = " ".join(name for split in splits for name in split.output)
    return model(nodes, inputs, outputs=outputs, opsets={"": 18})
