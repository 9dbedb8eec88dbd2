"""The ONNX backend runs ONNX's own suite, counted and compared exactly, and whole models."""

import pickle
import unittest
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import runner
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from dmlsplit import InvalidArgumentError
from dmlsplit.execution import lowered_split as execution
from dmlsplit.frontends import Invalid
from dmlsplit.frontends.onnx import scan
from dmlsplit.lint.fix.nested import graphs
from tests.support import builds as kept
from tests.support.arrays import assert_same
from tests.support.onnx_backend import DmlSplitBackend
from tests.support.onnx_graphs import INT64, halve, model, node, value

Official = dict[str, tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]]
ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")


def node_cases(builds: Path) -> list[TestCase]:
    """The cases of single nodes, for which ONNX ships no model files.

    ONNX computes them on request, which takes seconds. They depend only on the installed packages,
    so they are kept with the compiled files.
    """

    def make(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ONNX's own data overflows casts on purpose.
            path.write_bytes(pickle.dumps(collect_testcases(None)))

    name = kept.key("onnx cases", onnx.__version__, np.__version__)
    test_cases: list[TestCase] = pickle.loads(kept.made(builds / name, make).read_bytes())
    return test_cases


def model_of(case: TestCase) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """The model of a case, and its inputs and expected outputs."""
    if case.model is not None:
        return case.model, [
            (list(input_set), list(output_set)) for input_set, output_set in case.data_sets or ()
        ]
    folder = Path(case.model_dir or "")
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        # An input that has an initializer has no file.
        inputs = [_load(data / f"input_{i}.pb", v) for i, v in enumerate(model.graph.input)]
        outputs = [_load(data / f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]
        sets.append((inputs, outputs))
    return model, sets


def _load(path: Path, declaration: onnx.ValueInfoProto) -> Any:
    if not path.exists():
        return None
    if declaration.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


@pytest.fixture(scope="module")
def cases(kept_files: Path) -> dict[str, TestCase]:
    """ONNX's own test cases, by name."""
    on_disk = [case for kind in ON_DISK for case in load_model_tests(kind=kind)]
    return {case.name: case for case in [*node_cases(kept_files), *on_disk]}


def splits_of(model: onnx.ModelProto) -> int:
    """How many nodes of a model are splits, including those in bodies and functions."""
    bodies = [body for top in (model.graph, *model.functions) for _, body in graphs(top)]
    return sum(node.op_type in ("Split", "SplitToSequence") for b in bodies for node in b.node)


@pytest.fixture(scope="module")
def official(cases: dict[str, TestCase]) -> Official:
    """The models with splits, their inputs and expected outputs: 37 since onnx 1.23."""
    models = {name: model_of(case) for name, case in cases.items()}
    with_splits = {name: pair for name, pair in models.items() if splits_of(pair[0])}
    assert len(with_splits) == 37
    return with_splits


def test_every_official_model_is_scanned_and_its_shapes_are_those_of_onnx(
    tmp_path: Path, cases: dict[str, TestCase]
) -> None:
    path, shapes = tmp_path / "model.onnx", Counter[bool]()
    for name, case in cases.items():
        content, sets = model_of(case)
        probed = onnx.ModelProto.FromString(content.SerializeToString())
        pairs = zip(content.graph.output, sets[0][1] if sets else (), strict=False)
        expected_shapes = {out.name: x.shape for out, x in pairs if getattr(x, "shape", ())}
        del probed.graph.output[:]  # they declare the shapes
        probed.graph.node.extend(
            node("Split", n, f"{n}_", name=f"probe {n}") for n in expected_shapes
        )
        path.unlink(missing_ok=True)  # ext4 takes 3 ms to empty a file
        path.write_bytes(probed.SerializeToString())
        sites = scan(path)
        site_shapes = {s.node.removeprefix("probe "): s.shape for s in sites if "probe" in s.node}
        static_names = {
            n for n, shape in site_shapes.items() if shape is not None and None not in shape
        }
        assert {n: site_shapes[n] for n in static_names} == {
            n: expected_shapes[n] for n in static_names
        }, name
        shapes.update(n in static_names for n in expected_shapes)
        probed.graph.output.extend(content.graph.output)
        path.write_bytes(probed.SerializeToString())
        assert {site.model_fault for site in scan(path)} <= {None}, name
        sites = [site for site in sites if "probe" not in site.node]
        assert len(sites) == splits_of(content), name
        # affine_grid has a branch for 4 dimensions and one for 5, and only one of them runs.
        problems = [site for site in sites if isinstance(site.state, Invalid)]
        assert all(site.never_runs and site.state.is_loaded for site in problems), name
        assert not problems or "affine_grid" in name
    assert shapes[True] > 2 * shapes[False]  # the others depend on the values of inputs


def test_every_official_backend_test_passes(kept_files: Path, official: Official) -> None:
    def load(kind: str) -> list[TestCase]:
        return node_cases(kept_files) if kind == "node" else load_model_tests(kind=kind)

    with patch.object(runner, "load_model_tests", load):
        suite = onnx.backend.test.BackendTest(DmlSplitBackend, __name__)
    names = {f"{name}_cpu" for name in official}
    tests = [case(name) for case in suite.test_cases.values() for name in names & set(dir(case))]
    unittest.TestSuite(tests).run(result := unittest.TestResult())
    assert result.testsRun == len(official)
    assert [*result.errors, *result.failures, *result.skipped] == []


@pytest.fixture
def splits_that_ran(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """An entry for each split that our library, and no other, has carried out."""
    entries: list[object] = []
    honest = execution.split_view

    def counted(*arguments: Any) -> Any:
        entries.append(arguments[0])
        return honest(*arguments)

    monkeypatch.setattr(execution, "split_view", counted)
    return entries


def pieces_of(output: Any) -> list[Any]:
    """The tensors of a sequence, or the only one of a tensor."""
    return output if isinstance(output, list) else [output]


@pytest.mark.parametrize("device", ["CPU", pytest.param("CUDA", marks=pytest.mark.gpu)])
def test_official_vectors_are_reproduced_bit_by_bit(
    device: str, official: Official, splits_that_ran: list[object]
) -> None:
    for name, (content, sets) in official.items():
        splits_that_ran.clear()
        prepared_model = DmlSplitBackend.prepare(content, device)
        for inputs, expected in sets:
            outputs = prepared_model.run([value for value in inputs if value is not None])
            assert list(map(type, outputs)) == list(map(type, expected)), name
            for output, expected_output in zip(outputs, expected, strict=True):
                if "expanded" in name or "GLU" in name:  # These also compute.
                    np.testing.assert_allclose(
                        pieces_of(output), pieces_of(expected_output), rtol=1e-5, atol=1e-6
                    )
                else:
                    assert_same(pieces_of(output), pieces_of(expected_output))
        assert len(splits_that_ran) == prepared_model.split_count > 0, name


def test_a_split_in_the_body_of_a_loop_runs_once_per_iteration() -> None:
    nodes = [
        node("Identity", "on", "still"),
        node("Split", "v", "l r", num_outputs=2),
        node("Concat", "r l", "turned", axis=0),
    ]
    body_inputs = [onnx.ValueInfoProto(name=n) for n in ("i", "on", "v")]
    body = model(nodes, body_inputs, outputs="still turned").graph
    inputs = [value("n", [], INT64), value("go", [], TensorProto.BOOL), value("x", [4])]
    loop = node("Loop", "n go x", "y", body=body)
    prepared_model = DmlSplitBackend.prepare(model([loop], inputs, outputs="y"))
    (y,) = prepared_model.run([np.array(3), np.array(True), np.arange(4, dtype=np.float32)])
    assert prepared_model.split_count == 3
    assert y.tolist() == [2, 3, 0, 1]


def test_splits_in_functions_run_with_the_functions_opset_and_attributes() -> None:
    call = node("Halve", "x", "a b", domain="own", at=1)
    # Split-18 refuses a node with neither sizes nor num_outputs; the function is opset 13.
    content = model([call], [value("x", [2, 4])], functions=(halve(),), outputs="a b")
    prepared_model = DmlSplitBackend.prepare(content)
    a, b = prepared_model.run({"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    assert prepared_model.split_count == 1
    assert (a.tolist(), b.tolist()) == ([[0, 1], [4, 5]], [[2, 3], [6, 7]])


def test_run_node_takes_a_node_and_its_opset() -> None:
    cut = helper.make_node("Split", ["x", ""], ["a", "", "c"], num_outputs=3)
    pieces = DmlSplitBackend.run_node(cut, [np.arange(6, dtype=np.int8)], opset_version=18)
    assert [piece.tolist() for piece in pieces] == [[0, 1], [4, 5]]


@pytest.mark.parametrize(("size", "pieces"), [(0, [0, 0, 0]), (4, [2, 2, 0])])
def test_run_model_takes_num_outputs_that_leave_nothing_for_the_last_piece(
    size: int, pieces: list[int]
) -> None:
    content = model(
        [node("Split", "x", "a b c", num_outputs=3)], [value("x", [size, 2])], outputs="a b c"
    )
    outputs = DmlSplitBackend.run_model(content, [np.zeros((size, 2), np.float32)])
    assert [piece.shape for piece in outputs] == [(length, 2) for length in pieces]


@pytest.mark.parametrize("inputs", [[""], []])
def test_a_node_without_an_input_is_refused(inputs: list[str]) -> None:
    cut = helper.make_node("Split", inputs, ["a", "b"])
    with pytest.raises(InvalidArgumentError, match="Split-13: the node has no input"):
        DmlSplitBackend.run_node(cut, [], opset_version=13)


def test_a_model_that_cannot_be_loaded_gives_one_clear_error() -> None:
    content = model([node("NoSuchOperator", "x", "y")], [value("x", [2])], outputs="y")
    with pytest.raises(InvalidArgumentError, match=r"the model cannot be loaded: .*NoSuchOperator"):
        DmlSplitBackend.prepare(content)


def test_a_backend_supports_the_devices_that_exist() -> None:
    assert DmlSplitBackend.supports_device("CPU")
    assert not DmlSplitBackend.supports_device("TPU")
    content = model([node("Identity", "x", "y")], [value("x", [2])], outputs="y")
    with pytest.raises(InvalidArgumentError, match="device is 'tpu'"):
        DmlSplitBackend.prepare(content, "TPU")
    prepared_model = DmlSplitBackend.prepare(content)
    with pytest.raises(InvalidArgumentError, match="2 inputs are given; the model has 1: x"):
        prepared_model.run([np.zeros(2), np.zeros(2)])
    with pytest.raises(InvalidArgumentError, match="inputs of the model are missing: x"):
        prepared_model.run([])
