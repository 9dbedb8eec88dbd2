"""One split of a model: its lengths, and reports of what is unknown, wrong or surprising."""

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.frontends import Invalid, Unknown
from dmlsplit.models.onnx import node_facts, reader
from dmlsplit.models.site import Cause
from tests.support.models import is_loaded
from tests.support.onnx_graphs import INT64, Scanned, model, node, sizes, value
from tests.support.sites import why


def test_the_reason_of_an_unknown_split_names_what_is_dynamic(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b", axis=1)
    lengths = (sizes("s", 2, 4),)

    def unknown(shape: Any, **model_parts: Any) -> str:
        (site,) = scanned(model([cut], [value("x", shape)], **model_parts))
        return site.state.reason

    assert unknown(["batch", 6], initializers=lengths) == "dimension 0 is dynamic (batch)"
    assert unknown(None, initializers=lengths) == "the rank of the graph's input 'x' is dynamic"
    (site,) = scanned(model([cut], [value("x", [2, 6]), value("s", [2], INT64)]))
    assert site.state.reason == "split is dynamic: it is known only when the model runs"
    (site,) = scanned(model([cut, node("Neg", "x", "s")], [value("x", [2, 6])]))
    assert site.state.reason == "no earlier node produces value 's'"


@pytest.mark.parametrize(("size", "name"), [("n", "n"), (-1, "x.1"), (-7, "x.1"), (None, "x.1")])
def test_an_axis_without_a_size_is_dynamic(size: Any, name: str, scanned: Scanned) -> None:
    cut = node("Split", "x", "a b", axis=1, num_outputs=2)
    (site,) = scanned(model([cut], [value("x", [2, size])]))
    assert why(site) == f"dimension 1, the axis, is dynamic ({name})"


def test_constant_sizes_on_a_dynamic_axis_of_an_input_fit_one_size_only(scanned: Scanned) -> None:
    cut, lengths = node("Split", "x s", "a b", axis=0), (sizes("s", 2, 4),)
    (site,) = scanned(model([cut], [value("x", ["batch", "n", 3])], initializers=lengths))
    assert site.frozen == ("batch", 6)
    assert site.shape == (6, "n", 3)
    assert isinstance(site.state, Unknown)
    assert site.state.pieces == (2, 4)
    assert dict(site.state.missing) == {"n": 1}
    # The sizes after an operator that is not followed may be the same for every input.
    nodes = [node("NonZero", "x", "y"), node("Split", "y s", "a b", axis=1)]
    (site,) = scanned(model(nodes, [value("x", [6])], initializers=lengths))
    assert (site.frozen, type(site.state)) == (None, Unknown)


def test_a_split_of_shapes_is_one_whose_input_follows_from_shapes_alone(scanned: Scanned) -> None:
    shape, cut = node("Shape", "x", "p"), node("Split", "q", "a b", axis=0, num_outputs=2)
    inputs = [value("x", [2, "n"]), value("y", [2], INT64)]
    for second, expected in (("two", True), ("y", False)):
        nodes = [shape, node("Mul", f"p {second}", "q"), cut]
        (site,) = scanned(model(nodes, inputs, initializers=(sizes("two", 2, 2),)))
        assert site.is_shape == expected


def test_the_neighbours_of_a_split_are_those_next_to_it(scanned: Scanned) -> None:
    nodes = [
        node("Transpose", "x", "y"),
        node("Split", "y", "a b", num_outputs=2),
        node("Cast", "a", "c", to=10),
        node("Reshape", "c shape", "d"),
        node("Relu", "b", "e"),
    ]
    (site,) = scanned(model(nodes, [value("x", [4, 4])]))
    assert site.neighbours == ("Transpose", "Cast")


def test_an_operator_of_another_domain_is_no_neighbour(scanned: Scanned) -> None:
    own = {"domain": "my.domain"}
    nodes = [
        node("Transpose", "x", "y", **own),
        node("Split", "y", "a b", num_outputs=2),
        node("Cast", "a", "c", **own),
    ]
    (site,) = scanned(model(nodes, [value("x", [4, 4])], opsets={"": 18, "my.domain": 1}))
    assert site.neighbours == ()


def test_a_dynamic_batch_does_not_hide_wrong_sizes(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b", axis=1)
    (site,) = scanned(model([cut], [value("x", ["n", 7])], initializers=(sizes("s", 2, 4),)))
    assert (
        "split is [2, 4], which adds up to 6; it must add up to 7, the size of the axis"
        in site.state.problem
    )


def test_nodes_that_onnx_runtime_crashes_on_or_refuses_give_a_warning(scanned: Scanned) -> None:
    cut = helper.make_node("Split", ["x", ""], ["a", "", "c"], num_outputs=3)
    (site,) = scanned(model([cut], [value("x", [6])]))
    assert site.state.descriptor.split_sizes == (2, 2, 2)
    crash = "output 1 has no name; on the CPU, ONNX Runtime crashes"
    assert any(crash in text for text in site.warnings)
    assert any("an input without a name next to num_outputs" in text for text in site.warnings)


@pytest.mark.parametrize(
    ("opset", "outputs", "attributes", "exit_status", "warning"),
    [
        (18, ["a", "b", "c"], {"num_outputs": 2}, -signal.SIGABRT, "aborts the process of ONNX"),
        (18, ["a", ""], {"num_outputs": 2}, -signal.SIGSEGV, "output 1 has no name; on the CPU"),
        (13, ["", "a"], {}, -signal.SIGSEGV, "output 0 has no name; on the CPU"),
        (11, ["a", ""], {}, -signal.SIGSEGV, "output 1 has no name; on the CPU"),
        (11, ["a", ""], {"split": [2, 4]}, -signal.SIGSEGV, "output 1 has no name; on the CPU"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="processes end otherwise on Windows")
def test_onnx_runtime_crashes_or_fails_as_the_warning_says(
    scanned: Scanned,
    opset: int,
    outputs: list[str],
    attributes: dict[str, Any],
    exit_status: int,
    warning: str,
) -> None:
    cut = helper.make_node("Split", ["x"], outputs, **attributes)
    content = model([cut], [value("x", [6])], opsets={"": opset})
    content.graph.output.append(value("a"))
    (site,) = scanned(content)
    assert warning in "".join([why(site), *site.warnings])
    code = (
        "import sys, numpy, onnxruntime as o; s = o.InferenceSession(sys.stdin.buffer.read());"
        "s.run(None, {'x': numpy.ones(6, 'f')})"
    )
    line = [sys.executable, "-c", code]
    process = subprocess.run(line, input=content.SerializeToString(), capture_output=True)
    assert process.returncode == exit_status


def test_num_outputs_on_a_dynamic_axis_gives_a_warning(scanned: Scanned) -> None:
    for count, warned in ((2, 0), (3, 1)):
        cut = node("Split", "x", " ".join("abc"[:count]), num_outputs=count)
        (site,) = scanned(model([cut], [value("x", ["n"])]))
        assert len(site.warnings) == warned


def lengths_of(data_type: int, dims: list[int], **fields: Any) -> Any:
    return TensorProto(name="s", data_type=data_type, dims=dims, **fields)


PROBLEMS: list[tuple[str, dict[str, Any], str]] = [
    (
        "short lengths",
        {"s": lengths_of(INT64, [3], int64_data=[1])},
        "has byte length 8; its sizes [3] need",
    ),
    (
        "torn lengths",
        {"s": lengths_of(INT64, [2], raw_data=b"123")},
        "has byte length 3; its sizes [2] need",
    ),
    ("no lengths", {"s": lengths_of(INT64, [2])}, "has byte length 0; its sizes [2] need 16"),
    ("negative size", {"s": lengths_of(INT64, [-2], int64_data=[2, 4])}, "none may be negative"),
    ("negative length", {"s": sizes("s", -(2**63), 6)}, "split[0] is -9223372036854775808"),
    ("overflowing sum", {"s": sizes("s", *[2**62] * 2)}, "adds up to 9223372036854775808"),
    (
        "lengths in a column",
        {"s": lengths_of(INT64, [2, 1], int64_data=[2, 4])},
        "split has shape [2, 1]; it must be 1-D",
    ),
    ("unknown type", {"s": lengths_of(2**31 - 1, [2])}, "split has data type UNDEFINED"),
    (
        "float axis",
        {"axis": 1.5},
        "'axis' has a value of another kind; it must be an integer or a list of integers",
    ),
    ("far axis", {"axis": 2**63 - 1}, "axis is 9223372036854775807; it must be from -1 to 0"),
    ("near axis", {"axis": -(2**63)}, "axis is -9223372036854775808; it must be from -1 to 0"),
    ("huge num_outputs", {"num_outputs": 2**63 - 1}, "num_outputs is 9223372036854775807 for"),
    (
        "more lengths than are read",
        {"s": lengths_of(INT64, [2], int64_data=[0] * 70_000)},
        "has byte length 524296; its sizes [2] need 16",
    ),
    ("no output", {"outputs": "", "num_outputs": 1}, "num_outputs is 1 for 0 outputs"),
    ("no input", {"inputs": ""}, "the node has no input"),
]


@pytest.mark.parametrize(("case", "parts", "message"), PROBLEMS, ids=[p[0] for p in PROBLEMS])
def test_a_hostile_node_becomes_an_invalid_site_with_a_one_line_problem(
    scanned: Scanned, case: str, parts: dict[str, Any], message: str
) -> None:
    defaults = {"s": sizes("s", 2, 4), "shape": [6], "outputs": "a b"}
    defaults["inputs"] = "x" if "num_outputs" in parts else "x s"
    attributes = {name: content for name, content in parts.items() if name not in defaults}
    parts = defaults | parts
    cut = node("Split", parts["inputs"], parts["outputs"], **attributes)
    (site,) = scanned(model([cut], [value("x", parts["shape"])], initializers=(parts["s"],)))
    assert message in site.state.problem
    assert len(site.state.problem.splitlines()) == 1


WRONG_SIZES: dict[str, Any] = {
    "three": [1, 2, 3],
    "seven": [2, 5],
    "negative": [-1, 7],
    "column": [[2], [4]],
    "scalar": 3,
    "zero": 0,
}
# Each of them breaks a rule on some axis or on every one.
WRONG = [
    *((13, node("Split", f"x {name}", "a b")) for name in WRONG_SIZES),
    *((13, node("SplitToSequence", f"x {name}", "a")) for name in ("seven", "negative", "zero")),
    *((11, node("Split", "x", "a b", split=split)) for split in ([1, 2, 3], [2, 5], [-1, 7])),
    *((18, node("Split", "x", "a b", num_outputs=count)) for count in (3, 0, -2)),
    (18, node("Split", "x", "a b", num_outputs=2, far=1)),
    (13, node("Split", "x", "a b c d")),
    (13, node("SplitToSequence", "x", "a", keepdims=2)),
]


@pytest.mark.parametrize("shape", [[6, 4], ["n", 4], None], ids=["static", "dynamic", "no rank"])
@pytest.mark.parametrize("are_defaults", [False, True])
@pytest.mark.parametrize(("opset", "cut"), WRONG)
def test_onnx_runtime_loads_what_it_cannot_check_without_the_size_of_the_axis(
    scanned: Scanned, opset: int, cut: Any, are_defaults: bool, shape: Any
) -> None:
    tensors = [
        numpy_helper.from_array(np.array(WRONG_SIZES[name], np.int64), name)
        for name in cut.input[1:]
    ]
    defaults = [value(t.name, list(t.dims), INT64) for t in tensors] if are_defaults else []
    content = model(
        [cut],
        [value("x", shape), *defaults],
        initializers=tuple(tensors),
        opsets={"": opset},
        outputs="a",
    )
    (site,) = scanned(content)
    loads = not isinstance(site.state, Invalid) or site.state.is_loaded
    assert loads == is_loaded(content)


@pytest.mark.parametrize(
    ("opset", "cut", "limit"),
    [
        (13, node("Split", "x ones", "a b"), "65,536 values"),
        (11, node("Split", "x", "a b", split=[1] * 70_000), "65,536 int"),
        (13, node("SplitToSequence", "x ones", "a"), "65,536"),
    ],
    ids=["lengths of an input", "lengths of an attribute", "lengths of a sequence"],
)
def test_more_lengths_than_a_scan_reads_make_a_split_unknown(
    opset: int, cut: Any, limit: str, scanned: Scanned
) -> None:
    ones = sizes("ones", *[1] * 70_000)
    content = model([cut], [value("x", [70_000])], initializers=(ones,), opsets={"": opset})
    (site,) = scanned(content)
    assert isinstance(site.state, Unknown)
    assert site.state.cause is Cause.COUNT
    assert limit in site.state.reason


@pytest.mark.parametrize("lengths", ["gathered", "sum"])
def test_lengths_computed_from_more_values_than_a_scan_computes_with_make_a_split_unknown(
    lengths: str, scanned: Scanned
) -> None:
    nodes = [
        node("Gather", "twos positions", "gathered"),
        node("Add", "gathered positions", "sum"),
        node("Split", f"x {lengths}", "a b"),
    ]
    initializers = sizes("twos", *[2] * 2000), sizes("positions", 0, 1)
    content = model(nodes, [value("x", [4])], initializers=initializers, opsets={"": 13})
    (site,) = scanned(content)
    assert isinstance(site.state, Unknown)
    assert site.state.cause is Cause.LIMIT
    assert "at most 1,024" in site.state.reason


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 pieces of a node and 8000 values of a file, so that small models reach them."""
    assert (node_facts.MAX_NODE_PIECES, reader.MAX_COMPUTED) == (32_768, 262_144)
    monkeypatch.setattr(node_facts, "MAX_NODE_PIECES", 1024)
    monkeypatch.setattr(reader, "MAX_COMPUTED", 8000)
    monkeypatch.setattr(reader, "MIN_COMPUTED", 8000)


def reasons(splits: list[Any], size: int, scanned: Scanned) -> list[str]:
    """Why each of these splits of x, of one dimension, is unknown; empty for those that are not."""
    return [why(site) for site in scanned(model(splits, [value("x", [size])]))]


def split_into_ones(count: int) -> Any:
    return node("Split", "x", " ".join(f"y{i}" for i in range(count)), num_outputs=count)


@pytest.mark.usefixtures("low_limits")
def test_pieces_are_limited_per_node(scanned: Scanned) -> None:
    (reason,) = reasons([split_into_ones(1025)], 1025, scanned)
    assert reason == "it makes 1025 pieces; a scan describes at most 1,024 of a node"


@pytest.mark.usefixtures("low_limits")
def test_pieces_of_splits_are_not_limited_per_file(scanned: Scanned) -> None:
    """A file names each of them, so their number grows with the file."""
    assert reasons([split_into_ones(1024)] * 9, 1024, scanned) == [""] * 9


@pytest.mark.usefixtures("low_limits")
def test_pieces_of_sequences_are_limited_per_file(scanned: Scanned) -> None:
    *first_eight, ninth = reasons([node("SplitToSequence", "x", "s")] * 9, 1000, scanned)
    assert first_eight == [""] * 8
    assert "with its pieces, the model has more than 8,000 computed values" in ninth


def test_sizes_beyond_32_bits_become_a_descriptor(scanned: Scanned) -> None:
    cut = node("Split", "x", "a b", num_outputs=2)
    (site,) = scanned(model([cut], [value("x", [2**62, 2**62])]))
    assert site.state.descriptor.split_sizes == (2**61, 2**61)
