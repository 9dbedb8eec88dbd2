"""Random ONNX models with a split, of every kind that --write-fixed may meet.

Types, opsets, places (bodies, functions), dynamic sizes with odd names, defaults of inputs that a
caller may override, computed lengths, and sequences. `runs` has the inputs to run a model with.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

KINDS = "FLOAT FLOAT16 DOUBLE INT8 UINT8 INT32 INT64 BOOL".split()
OPSETS = [1, 2, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 17, 18, 18, 19, 21, 23, 24, 25]
NAMES = ["?", "?", "n", "batch", "a.0", "x.0", "x.1", "None", "-1", "0", "Größe", "n + 1", " ", ""]
PLACES = ["main"] * 6 + ["If", "Loop", "Scan", "function"]
Dim = int | str | None


class Model(NamedTuple):
    """A model, and what a user may say about it."""

    content: onnx.ModelProto
    shape: list[Dim]  # of the input `x`
    kind: int
    given_sizes: dict[str, int]  # sizes, for --dim
    defaults: dict[str, list[np.ndarray]]  # other values for defaults of inputs
    traits: frozenset[str]  # for counts: what it is an example of


class Run(NamedTuple):
    """The inputs of one run, and the sizes of dynamic dimensions."""

    feeds: dict[str, np.ndarray]
    sizes: tuple[int, ...]
    is_overridden: bool


class _Builder:
    """The nodes around a split, in the order in which they are added."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.opset = draw.choice(OPSETS)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.defaults: dict[str, list[np.ndarray]] = {}
        self.traits: set[str] = set()

    def add(self, operator: str, inputs: str, outputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs.split(), outputs.split(), **attributes))
        return outputs

    def constant(self, name: str, numbers: Any, *other_values: Any) -> str:
        """Integers as an initializer, or as the default of an input, or the output of a node."""
        array = np.array(numbers, np.int64)
        form = self.draw.choice(["node", "initializer", "default"])
        if form == "node":
            self.nodes.append(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            )
            return name
        self.constants[name] = array
        if form == "default":
            self.defaults[name] = [np.array(other_value, np.int64) for other_value in other_values]
        return name

    def computed(self, name: str, numbers: Any, *other_values: Any) -> str:
        """A `constant`, or what a node computes from one."""
        source = self.constant(name, numbers, *other_values)
        operator = self.draw.choice(["", "", "Identity", "Abs"])
        return self.add(operator, source, f"{name}_computed") if operator else source


def split_model(seed: int) -> Model:
    """The model of a seed."""
    build = _Builder(draw := Random(seed))
    rank, kind = draw.choice([1, 2, 2, 3, 3, 4, 5, 5, 6]), draw.choice(KINDS)
    axis = draw.randrange(rank)
    pieces = _pieces(draw)
    shape: list[Dim] = [draw.randint(1, 3) for _ in range(rank)]
    for index in range(rank):
        if draw.random() < 0.5:
            shape[index] = draw.choice([*NAMES, None])
    shape[axis] = draw.choice([sum(pieces)] * 3 + NAMES)
    dim_sizes = _given(draw, shape, axis, sum(pieces))
    place = _place(draw, build.opset, rank)
    inside, cut_axis = ("row", axis - 1) if place == "Scan" and axis else ("x", axis)
    if place == "Scan" and not axis:
        place = "main"
    source = _prepared(build, inside, shape, axis, TensorProto.DataType.Value(kind), place)
    if source == "counted":
        cut_axis, pieces = 1, []
    results = _cut(build, source, cut_axis, pieces, is_body=place != "main")
    content = _placed(build, results, place, shape, TensorProto.DataType.Value(kind))
    return Model(
        content=content,
        shape=shape,
        kind=TensorProto.DataType.Value(kind),
        given_sizes=dim_sizes,
        defaults=build.defaults,
        traits=frozenset(build.traits),
    )


def _pieces(draw: Random) -> list[int]:
    sizes = [draw.choice([0, 1, 1, 2, 3]) for _ in range(draw.randint(1, 4))]
    return sizes if any(sizes) else [1, 1]


def _given(draw: Random, shape: list[Dim], axis: int, total: int) -> dict[str, int]:
    """Sizes that the user gives; some that others follow from may be missing."""
    dim_sizes: dict[str, int] = {}
    for index in sorted(range(len(shape)), key=lambda i: i != axis):
        size, number = shape[index], total if index == axis else draw.choice([1, 2, 4, 8])
        if isinstance(size, int) or (index != axis and draw.random() < 0.7):
            continue
        dim_sizes.setdefault(_dimension(size, index), number)
    return dim_sizes


def _dimension(name: Dim, axis: int) -> str:
    """The name by which --dim gives a size: that of the axis, if the dimension has none."""
    is_name = isinstance(name, str) and name and name not in {f"x.{i}" for i in range(6)}
    return str(name) if is_name else f"x.{axis}"


def _place(draw: Random, opset: int, rank: int) -> str:
    place = draw.choice(PLACES)
    since = {"main": 1, "If": 11, "Loop": 13, "Scan": 11, "function": 13}[place]
    return place if opset >= since and (place != "Scan" or rank > 1) else "main"


def _prepared(
    build: _Builder, source: str, shape: list[Dim], axis: int, kind: int, place: str
) -> str:
    """What is split: the input, or a value computed from it."""
    draw, opset = build.draw, build.opset
    step = draw.choice(["", "", "Identity", "Add", "Reshape", "NonZero"])
    if step == "Add" and kind in (TensorProto.FLOAT, TensorProto.INT64) and opset >= 7:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        build.constants["bias"] = np.zeros(1, dtype)
        build.defaults["bias"] = [np.ones(1, dtype)]  # no size follows from it
        return build.add("Add", f"{source} bias", "sum")
    if step == "Identity":
        return build.add("Identity", source, "same")
    if step == "Reshape" and opset >= 5 and place != "Scan":
        static_shape = [size if isinstance(size, int) else 0 for size in shape]
        other_axes = [i for i, size in enumerate(static_shape) if size > 1 and i != axis]
        if other_axes and 0 not in static_shape:
            other_shape = list(static_shape)
            other_shape[other_axes[0]], other_shape[(other_axes[0] + 1) % len(static_shape)] = 1, -1
            return build.add(
                "Reshape", f"{source} {build.computed('to', static_shape, other_shape)}", "shaped"
            )
    if step == "NonZero" and opset >= 9:
        build.traits.add("unknown size")
        build.add("Cast", source, "truths", to=TensorProto.BOOL)
        build.add("NonZero", "truths", "places")
        return build.add("Cast", "places", "counted", to=kind)
    return source


def _cut(build: _Builder, source: str, axis: int, pieces: list[int], *, is_body: bool) -> list[str]:
    """A split; the names of its results."""
    draw, opset = build.draw, build.opset
    if opset >= 11 and pieces and draw.random() < 0.4:
        return _sequence(build, source, axis, pieces, is_body)
    outputs = [f"piece{index}" for index in range(len(pieces) or 2)]
    equal = len(set(pieces)) < 2
    forms = ["sizes"] * bool(pieces) + ["bare"] * (equal and opset != 1)
    form = draw.choice(forms or ["bare"])
    names = " ".join(outputs)
    if form == "bare":
        count_attribute = {"num_outputs": len(outputs)} if opset >= 18 else {}
        build.add("Split", source, names, name="cut", axis=axis, **count_attribute)
    elif opset < 13:
        build.add("Split", source, names, name="cut", axis=axis, split=pieces)
    else:
        lengths = build.computed("sizes", pieces, pieces[::-1], sorted(pieces))
        build.add("Split", f"{source} {lengths}", names, name="cut", axis=axis)
    return outputs


def _sequence(
    build: _Builder, source: str, axis: int, pieces: list[int], is_body: bool
) -> list[str]:
    draw, total = build.draw, sum(pieces)
    form = draw.choice(["none", "scalar", "scalar", "sizes"])
    keepdims = draw.choice([None, 0, 1])
    attributes = {} if keepdims is None else {"keepdims": keepdims}
    inputs = source
    if form == "scalar":
        chunk = draw.choice([1, 1, 1, 2, total, total + 1])
        build.traits |= {"scalar without keepdims"} if keepdims == 0 else set()
        inputs += f" {build.computed('sizes', chunk, chunk + 1, 1)}"
    elif form == "sizes":
        inputs += f" {build.computed('sizes', pieces, pieces[::-1], [total])}"
    build.add("SplitToSequence", inputs, "pieces", name="cut", axis=axis, **attributes)
    if draw.random() < 0.3 and not is_body:
        return ["pieces"]
    build.nodes.append(
        helper.make_node("Constant", [], ["first"], value=numpy_helper.from_array(np.array(0)))
    )
    piece_at = build.add("SequenceAt", "pieces first", "piece")
    if draw.random() < 0.5:  # a model that only takes pieces needs no sequence
        last = build.constant("last", -1, 0)
        return [piece_at, build.add("SequenceAt", f"pieces {last}", "last_piece")]
    build.add("SequenceLength", "pieces", "count")
    return [piece_at, "count"]


def _placed(
    build: _Builder, results: list[str], place: str, shape: list[Dim], kind: int
) -> onnx.ModelProto:
    """The model with the nodes in their place."""
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    if place == "If":
        inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    nodes, functions = build.nodes, []
    outer = [f"{name}_out" for name in results]
    constants = [numpy_helper.from_array(a, name) for name, a in build.constants.items()]
    if place == "If":
        branches = {
            name: helper.make_graph(_renamed(nodes, name), name, [], _untyped(results, name))
            for name in ("then", "else")
        }
        bodies = {f"{name}_branch": branch for name, branch in branches.items()}
        nodes = [helper.make_node("If", ["flag"], outer, **bodies)]
    elif place in ("Loop", "Scan"):
        nodes = _repeated(place, nodes, results, outer, shape, kind)
    elif place == "function":
        inner = [*build.constants]
        opset = [helper.make_opsetid("", build.opset)]
        functions = [helper.make_function("own", "Cut", ["x", *inner], results, nodes, opset)]
        nodes = [helper.make_node("Cut", ["x", *inner], outer, domain="own")]
    else:
        outer = results
    graph = helper.make_graph(nodes, "net", inputs, _untyped(outer), constants)
    for name in build.defaults:
        array = build.constants[name]
        tensor_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(name, tensor_type, array.shape))
    versions = [helper.make_opsetid("", build.opset), helper.make_opsetid("own", 1)]
    content = helper.make_model(
        graph, opset_imports=versions[: 2 if functions else 1], functions=functions
    )
    oldest = helper.find_min_ir_version_for(versions[:1], ignore_unknown=True)
    least = max(oldest, 8 if functions else 3)
    content.ir_version = build.draw.choice([least, max(least, 4), max(least, 10)])
    return content


def _untyped(names: list[str], suffix: str = "") -> list[ValueInfoProto]:
    return [helper.make_empty_tensor_value_info(name + suffix) for name in names]


def _renamed(nodes: list[NodeProto], suffix: str) -> list[NodeProto]:
    """Copies of nodes for a body, whose names must be of its own."""
    output_names = {name for node in nodes for name in node.output}
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    for node in copies:
        for field in (node.input, node.output):
            field[:] = [name + suffix if name in output_names else name for name in field]
    return copies


def _repeated(
    place: str, nodes: list[NodeProto], results: list[str], outer: list[str],
    shape: list[Dim], kind: int,
) -> list[NodeProto]:  # fmt: skip
    """A Loop of two turns, or a Scan over the first axis; its outputs are stacked."""
    if place == "Scan":
        row = helper.make_tensor_value_info("row", kind, shape[1:])
        body = helper.make_graph(nodes, "scan", [row], _untyped(results))
        return [helper.make_node("Scan", ["x"], outer, body=body, num_scan_inputs=1)]
    entries = [
        helper.make_tensor_value_info("turn", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
    ]
    again = helper.make_node("Identity", ["goes_on"], ["still"])
    body = helper.make_graph([again, *nodes], "loop", entries, _untyped(["still", *results]))
    turns = numpy_helper.from_array(np.array(2))
    return [
        helper.make_node("Constant", [], ["turns"], value=turns),
        helper.make_node("Loop", ["turns", ""], outer, body=body),
    ]


SIZES = [(2,), (1,), (0,), (4,), (3, 5), (0, 2), (2, 0), (1, 3)]


def runs(model: Model) -> Iterator[Run]:
    """Inputs at sizes 0, 1, 2 and others of the dynamic dimensions, and with other defaults."""
    names = [_dimension(n, i) for i, n in enumerate(model.shape) if not isinstance(n, int)]
    free = [name for name in dict.fromkeys(names) if name not in model.given_sizes]
    for number, turn in enumerate(SIZES if free else SIZES[:1]):
        sizes = {name: turn[i % len(turn)] for i, name in enumerate(free)} | model.given_sizes
        shape = [
            size if isinstance(size, int) else sizes[_dimension(size, i)]
            for i, size in enumerate(model.shape)
        ]
        feeds = {"x": _data(shape, model.kind, number)}
        if any(entry.name == "flag" for entry in model.content.graph.input):
            feeds["flag"] = np.array(number % 2 == 0)
        dim_values = tuple(sizes[name] for name in free)
        yield Run(feeds, dim_values, False)
        for name, values in model.defaults.items():
            for value in values:
                yield Run({**feeds, name: value}, dim_values, True)


def _data(shape: list[int], kind: int, seed: int) -> np.ndarray:
    """Random numbers other than 0, so that NonZero finds all of them."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return np.random.default_rng(seed).integers(1, 100, shape).astype(dtype)
