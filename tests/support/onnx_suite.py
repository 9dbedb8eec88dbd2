"""ONNX's own backend tests: their models, inputs and expected outputs, by name.

ONNX computes the cases of single nodes on request, which takes seconds. They depend only on the
installed packages, so they are cached with the compiled files (`builds`).
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tests.support import builds as kept

ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")


def node_cases(builds: Path) -> list[TestCase]:
    """The cases of single nodes, for which ONNX ships no model files."""

    def make(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ONNX's own data overflows casts on purpose.
            path.write_bytes(pickle.dumps(node.collect_testcases(None)))

    name = kept.key("onnx cases", onnx.__version__, np.__version__)
    found: list[TestCase] = pickle.loads(kept.made(builds / name, make).read_bytes())
    return found


def all_cases(builds: Path) -> dict[str, TestCase]:
    """Every case by its name."""
    on_disk = [case for kind in ON_DISK for case in load_model_tests(kind=kind)]
    return {case.name: case for case in [*node_cases(builds), *on_disk]}


def model_of(case: TestCase) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """The model of a case, and its inputs and expected outputs."""
    if case.model is not None:
        return case.model, [(list(given), list(wanted)) for given, wanted in case.data_sets or ()]
    folder = Path(case.model_dir or "")
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        # An input that has an initializer has no file.
        inputs = [_load(data / f"input_{i}.pb", v) for i, v in enumerate(model.graph.input)]
        outputs = [_load(data / f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]
        sets.append((inputs, outputs))
    return model, sets


def _load(path: Path, declared: onnx.ValueInfoProto) -> Any:
    if not path.exists():
        return None
    if declared.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
