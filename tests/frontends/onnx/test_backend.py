"""The ONNX backend: ONNX's own suite, counted and compared exactly, and whole models."""

import re
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import runner
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import dmlsplit.frontends.onnx
from dmlsplit import CompiledOperator, InvalidArgumentError
from dmlsplit.frontends.onnx import DmlSplitBackend, scan
from tests.support import onnx_suite

# onnx 1.23: every test whose model holds a Split or SplitToSequence, by name.
SPLIT_NODE = [
    f"test_split_{name}"
    for name in (
        "1d_uneven_split_opset18",
        "2d_uneven_split_opset18",
        "equal_parts_1d_opset13",
        "equal_parts_1d_opset18",
        "equal_parts_2d",
        "equal_parts_2d_opset13",
        "equal_parts_default_axis_opset13",
        "equal_parts_default_axis_opset18",
        "variable_parts_1d_opset13",
        "variable_parts_1d_opset18",
        "variable_parts_2d_opset13",
        "variable_parts_2d_opset18",
        "variable_parts_default_axis_opset13",
        "variable_parts_default_axis_opset18",
        "zero_size_splits_opset13",
        "zero_size_splits_opset18",
    )
]
SEQUENCE_NODE = [f"test_split_to_sequence_{name}" for name in ("1", "2", "nokeepdims")]
ON_DISK = ["test_GLU", "test_GLU_dim", "test_operator_chunk"] + [
    f"test_sequence_model{n}" for n in (6, 7, 8)
]
EXPANDED = [
    f"test_affine_grid_{n}d{corners}_expanded" for n in (2, 3) for corners in ("", "_align_corners")
] + [
    f"test_rotary_embedding{kind}_expanded"
    for kind in (
        "",
        "_3d_input",
        "_interleaved",
        "_no_position_ids",
        "_no_position_ids_interleaved",
        "_no_position_ids_rotary_dim",
        "_with_interleaved_rotary_dim",
        "_with_rotary_dim",
    )
]
OFFICIAL = [*SPLIT_NODE, *SEQUENCE_NODE, *ON_DISK, *EXPANDED]
prepared: list[Any] = []


class Recording(DmlSplitBackend):
    """Remembers the models it has run, so that the tests can count what really ran."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        loaded = super().prepare(model, device, **kwargs)
        prepared.append(loaded)
        return loaded


@pytest.fixture(scope="module")
def cases(builds: Path) -> dict[str, TestCase]:
    return onnx_suite.all_cases(builds)


@pytest.fixture(scope="module")
def official_tests(builds: Path) -> dict[str, Callable[[], None]]:
    """ONNX's test methods by name, for the CPU."""

    def load(kind: str) -> list[TestCase]:
        return onnx_suite.node_cases(builds) if kind == "node" else load_model_tests(kind=kind)

    with patch.object(runner, "load_model_tests", load):
        suite = onnx.backend.test.BackendTest(Recording, __name__)
    found = {}
    for case in suite.test_cases.values():
        instance = case()
        for name in dir(case):
            if name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = getattr(instance, name)
    return found


def splits_of(model: onnx.ModelProto) -> int:
    """Return how many nodes of a model are splits, bodies and functions included."""

    def count(nodes: Any) -> int:
        total = 0
        for node in nodes:
            total += node.op_type in ("Split", "SplitToSequence")
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    total += count(graph.node)
        return total

    return count(model.graph.node) + sum(count(f.node) for f in model.functions)


def test_the_list_of_37_is_what_the_installed_suite_contains(cases: dict[str, TestCase]) -> None:
    with_split = set()
    for name, case in cases.items():
        model, _ = onnx_suite.model_of(case)
        if splits_of(model):
            with_split.add(name)
    assert with_split == set(OFFICIAL)
    assert len(OFFICIAL) == 37


def test_every_official_model_can_be_scanned_and_every_split_is_found(
    tmp_path: Path, cases: dict[str, TestCase]
) -> None:
    path = tmp_path / "model.onnx"
    for name, case in cases.items():
        model, _ = onnx_suite.model_of(case)
        path.write_bytes(model.SerializeToString())
        found = [site for site in scan(path) if not site.implied]
        assert len(found) == splits_of(model), name
        # affine_grid has a branch for 4 dimensions and one for 5, and takes one of them.
        problems = [site for site in found if site.problem]
        assert all("may never be taken" in site.warnings[-1] for site in problems), name
        assert not problems or "affine_grid" in name


# Every piece of these is empty, so that nothing is left to dispatch.
NOTHING_TO_DISPATCH = {
    "test_split_zero_size_splits_opset13",
    "test_split_zero_size_splits_opset18",
    "test_sequence_model8",
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_backend_test_passes_and_our_code_ran(
    name: str, official_tests: dict[str, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatched = []
    original = CompiledOperator.__call__

    def counted(self: CompiledOperator, array: Any, stream: Any = None) -> list[Any]:
        dispatched.append(self.desc)
        return original(self, array, stream)

    monkeypatch.setattr(CompiledOperator, "__call__", counted)
    prepared.clear()
    official_tests[name]()
    (model,) = prepared
    assert model.split_count > 0
    assert bool(dispatched) == (name not in NOTHING_TO_DISPATCH)
    assert len(dispatched) <= model.split_count


@pytest.mark.parametrize("device", ["CPU", pytest.param("CUDA", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", OFFICIAL)
def test_official_vectors_are_met_bit_by_bit_where_only_bits_move(
    name: str, device: str, cases: dict[str, TestCase]
) -> None:
    if not DmlSplitBackend.supports_device(device):
        pytest.skip("there is no CUDA device")
    model, sets = onnx_suite.model_of(cases[name])
    loaded = DmlSplitBackend.prepare(model, device)
    for inputs, expected in sets:
        found = loaded.run([value for value in inputs if value is not None])
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            if isinstance(other, list):
                assert isinstance(one, list)
                assert len(one) == len(other)
            pairs = zip(one, other, strict=True) if isinstance(other, list) else [(one, other)]
            for piece, wanted in pairs:
                assert piece.shape == wanted.shape
                assert piece.dtype == wanted.dtype
                if name in EXPANDED or "GLU" in name:  # These compute as well.
                    np.testing.assert_allclose(piece, wanted, rtol=1e-5, atol=1e-6)
                else:
                    assert piece.tobytes() == wanted.tobytes()


def test_no_official_test_is_passed_by_declining_it() -> None:
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

    assert issubclass(BackendIsNotSupposedToImplementIt, unittest.SkipTest)
    sources = list(Path(dmlsplit.frontends.onnx.__file__).parent.rglob("*.py"))
    assert sources
    for path in sources:
        assert not re.search("NotSupposed|SkipTest", path.read_text())


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any] | None]],
    outputs: list[str],
    opset: int = 18,
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in {f.domain for f in functions}]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def test_glu_of_onnxruntime_issue_32146_is_zero() -> None:
    # Swapped or aliased halves give a minimum of about -0.2785 instead.
    x = np.concatenate([np.zeros(4096), np.linspace(-4, 4, 4096)]).astype(np.float32)[None]
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=-1, num_outputs=2),
        helper.make_node("Sigmoid", ["b"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["y"]),
    ]
    loaded = DmlSplitBackend.prepare(model_of(nodes, {"x": (1, [1, 8192])}, ["y"]))
    (y,) = loaded.run([x])
    assert loaded.split_count == 1
    assert y.shape == (1, 4096)
    assert not y.any()


@pytest.mark.parametrize("taken", [True, False])
def test_splits_in_the_bodies_of_if_are_ours(taken: bool) -> None:
    def branch(name: str, sizes: list[int]) -> onnx.GraphProto:
        lengths = numpy_helper.from_array(np.array(sizes, np.int64), "sizes")
        nodes = [helper.make_node("Split", ["x", "sizes"], ["a", "b"])]
        outputs = [onnx.ValueInfoProto(name=n) for n in "ab"]
        return helper.make_graph(nodes, name, [], outputs, [lengths])

    node = helper.make_node(
        "If",
        ["cond"],
        ["p", "q"],
        then_branch=branch("then", [1, 5]),
        else_branch=branch("else", [4, 2]),
    )
    inputs = {"cond": (TensorProto.BOOL, []), "x": (1, [6])}
    loaded = DmlSplitBackend.prepare(model_of([node], inputs, ["p", "q"]))
    p, q = loaded.run([np.array(taken), np.arange(6, dtype=np.float32)])
    assert loaded.split_count == 1
    assert (p.tolist(), q.tolist()) == (([0], [1, 2, 3, 4, 5]) if taken else ([0, 1, 2, 3], [4, 5]))


def test_a_split_in_the_body_of_a_loop_runs_once_per_iteration() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["still"]),
            helper.make_node("Split", ["v"], ["l", "r"], num_outputs=2),
            helper.make_node("Concat", ["r", "l"], ["turned"], axis=0),
        ],
        "body",
        [onnx.ValueInfoProto(name=n) for n in ("i", "on", "v")],
        [onnx.ValueInfoProto(name=n) for n in ("still", "turned")],
    )
    node = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
    inputs = {"n": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "x": (1, [4])}
    loaded = DmlSplitBackend.prepare(model_of([node], inputs, ["y"]))
    (y,) = loaded.run([np.array(3), np.array(True), np.arange(4, dtype=np.float32)])
    assert loaded.split_count == 3
    assert y.tolist() == [2, 3, 0, 1]


def test_splits_in_functions_are_ours_with_the_function_s_opset_and_attributes() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"])
    node.attribute.add(name="axis", ref_attr_name="at", type=onnx.AttributeProto.INT)
    function = helper.make_function(
        "own", "Halve", ["x"], ["a", "b"], [node], [helper.make_opsetid("", 13)], ["at"]
    )
    call = helper.make_node("Halve", ["x"], ["a", "b"], domain="own", at=1)
    # Split-18 refuses a node with neither sizes nor num_outputs; the function is opset 13.
    model = model_of([call], {"x": (1, [2, 4])}, ["a", "b"], 18, (function,))
    loaded = DmlSplitBackend.prepare(model)
    a, b = loaded.run({"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    assert loaded.split_count == 1
    assert (a.tolist(), b.tolist()) == ([[0, 1], [4, 5]], [[2, 3], [6, 7]])


def test_split_1_runs_with_its_float_typed_sizes() -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=0)
    model = model_of([node], {"x": (1, [3]), "sizes": (1, [2])}, ["a", "b"], 1)
    loaded = DmlSplitBackend.prepare(model)
    a, b = loaded.run([np.arange(3, dtype=np.float32), np.array([2, 1], np.float32)])
    assert (a.tolist(), b.tolist()) == ([0, 1], [2])
    with pytest.raises(InvalidArgumentError, match=r"Split-1: split holds 2\.5"):
        loaded.run([np.arange(3, dtype=np.float32), np.array([2.5, 0.5], np.float32)])


def test_run_node_takes_a_node_and_its_opset() -> None:
    node = helper.make_node("Split", ["x", ""], ["a", "", "c"], num_outputs=3)
    x = np.arange(6, dtype=np.int8)
    assert [v.tolist() for v in DmlSplitBackend.run_node(node, [x], opset_version=18)] == [
        [0, 1],
        [4, 5],
    ]


def test_sequences_of_the_right_length_even_without_pieces() -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0)
    for length in (0, 1, 3):
        (found,) = DmlSplitBackend.run_node(node, [np.ones((length, 2), np.int16)])
        assert [piece.shape for piece in found] == [(2,)] * length


@pytest.mark.parametrize(
    ("attributes", "inputs", "message"),
    [
        ({"split": [1, 5]}, ["x"], "Split-13: attribute 'split' is set; its attributes are axis"),
        ({}, ["x", "x"], "Split-13: split has data type FLOAT; it must be INT64"),
        ({}, [""], "Split-13: the node has no input"),
        ({}, [], "Split-13: the node has no input"),
    ],
)
def test_a_node_that_its_opset_does_not_know_is_refused(
    attributes: dict[str, Any], inputs: list[str], message: str
) -> None:
    node = helper.make_node("Split", inputs, ["a", "b"], **attributes)
    with pytest.raises(InvalidArgumentError, match=message):
        DmlSplitBackend.run_node(
            node, [np.zeros(6, np.float32)][: len(set(inputs) - {""})], opset_version=13
        )


def test_a_model_that_cannot_be_loaded_is_one_clear_error() -> None:
    model = model_of([helper.make_node("NoSuchOperator", ["x"], ["y"])], {"x": (1, [2])}, ["y"])
    with pytest.raises(InvalidArgumentError, match=r"the model cannot be loaded: .*NoSuchOperator"):
        DmlSplitBackend.prepare(model)


def test_devices() -> None:
    assert DmlSplitBackend.supports_device("CPU")
    assert not DmlSplitBackend.supports_device("TPU")
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (1, [2])}, ["y"])
    with pytest.raises(InvalidArgumentError, match="device is 'tpu'"):
        DmlSplitBackend.prepare(model, "TPU")
    with pytest.raises(InvalidArgumentError, match="there are 2 inputs; the model takes 1: x"):
        DmlSplitBackend.prepare(model).run([np.zeros(2), np.zeros(2)])
    with pytest.raises(InvalidArgumentError, match="the model's inputs x are missing"):
        DmlSplitBackend.prepare(model).run([])
