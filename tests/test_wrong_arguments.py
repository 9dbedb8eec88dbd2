"""Every argument of every public callable gets wrong values; each gives one error that names it."""

import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.frontends import dxdispatch, onnx, openvino

MODULES = (dml, onnx, openvino, dxdispatch)
DISPATCH = Path(__file__).parent / "data" / "dispatch.json"
THING = object()
HUGE = 10**30

NOT_INTEGERS: list[Any] = [
    1.5, "1", True, [], [1], THING, float("nan"), 2j, b"1", {1}, np.float32(1), np.array([1, 2]),
    np.array(1.5), len,
]  # fmt: skip
INTEGERS = [None, *NOT_INTEGERS]
FAR = [HUGE, -HUGE]
NO_LISTS: list[Any] = [
    "12", b"12", {1, 2}, {1: 2}, THING, 1.5, (1.5,), ("1",), (True,), (None,), [[1]], ((1, 2),),
]  # fmt: skip
LISTS = [None, 3, *NO_LISTS]
NO_ARRAYS: list[Any] = [
    None, 3, 1.5, "abc", b"abc", [1, 2], (1,), {}, {1}, THING, np.ma.masked_array([1, 2.0]), int,
    iter([1]), len,
]  # fmt: skip
ARRAYS = [*NO_ARRAYS, np.zeros(4, object)]
DEVICES: list[Any] = [
    "gpu", "CUDA", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:0 ", "cuda:99999", "", 0, 3, THING,
    b"cpu", ["cpu"], True, 1.5,
]  # fmt: skip
LEVELS = ["7_9", "", 1.0, None, True, [], THING, 0x9999, -1, b"6_4", HUGE, {}, float("nan")]
TYPES = [
    None, 1.5, "FLOAT33", "", True, 99, -1, THING, [], {}, b"FLOAT32", np.dtype("U3"), int, HUGE,
]  # fmt: skip
STREAMS: list[Any] = ["junk", -5, 0, 7, np.zeros(3), THING, 1.5, True]
PATHS = [None, 3, 1.5, b"x", THING, [], True, "", "no/such/file", "/", "x\0y"]

INPUT_DESC = dml.TensorDesc("FLOAT32", (1, 6))
DESC = dml.SplitOperatorDesc.from_sizes(INPUT_DESC, axis=1, sizes=(2, 4))
CPU = dml.Device("cpu")
OPERATOR = CPU.compile(DESC)
ARRAY = np.arange(6, dtype=np.float32)[None]
OUTS = [np.zeros((1, 2), np.float32), np.zeros((1, 4), np.float32)]
DESCRIPTORS = [None, 3, "x", INPUT_DESC, ARRAY, [DESC], THING, dml.TensorDesc, {}]
TENSORS = [None, 3, "x", DESC, ARRAY, [INPUT_DESC], THING, dml.TensorDesc, {}]
FROZEN = np.frombuffer(bytes(8), np.float32).reshape(1, 2)
OUTPUTS: list[Any] = [
    [ARRAY[:, 4:], OUTS[1]], [OUTS[1][:, :2], OUTS[1]], [FROZEN, OUTS[1]],
    3, THING, ARRAY, [1, 2], [None, None], [ARRAY], [], "ab", {}, [ARRAY, ARRAY], (1, 2),
    [OUTS[0], OUTS[0]],
    iter(OUTS), [np.zeros(3), np.zeros(4)],
]  # fmt: skip
SPLIT, SEQUENCE = onnx.operator_version("Split", 18), onnx.operator_version("SplitToSequence", 11)
ARGUMENTS = onnx.read_arguments(SPLIT, axis=0, split=[2, 4])
OPERATORS = [None, "Split", THING, 18, DESC]
ROW = np.arange(6.0)


@dataclass(frozen=True)
class Case:
    """A callable, the right value of each argument, wrong values, and other names in errors."""

    name: str
    call: Callable[..., Any]
    right: dict[str, Any]
    wrong: dict[str, list[Any]]
    called: str = ""  # other names for the arguments

    def failures(self, argument: str) -> Iterator[str]:
        words = [argument, argument.replace("_", " "), *self.called.split("|")]
        for value in self.wrong[argument]:
            call_text = f"{argument}={value!r:.60}"
            try:
                self.call(**{**self.right, argument: value})
            except dml.DmlError as error:
                if not any(word and re.search(rf"\b{word}\b", str(error)) for word in words):
                    yield f"{call_text}: the error names no argument: {error}"
                pickle.loads(pickle.dumps(error))
            except Exception as error:
                yield f"{call_text}: {error!r}"
            else:
                yield f"{call_text} is accepted"


def binding(**arguments: Any) -> Any:
    return OPERATOR.bind(dml.BufferBinding(**arguments), OUTS)


CASES = [
    Case("dmlsplit.Device", dml.Device, {"device": "cpu", "feature_level": "6_4"},
         {"device": DEVICES, "feature_level": LEVELS}),
    Case("dmlsplit.Device.check_feature_levels", CPU.check_feature_levels, {"requested": ["1_0"]},
         {"requested": [None, 3, "6_4", THING, [], [None], [1.5], ["x"]]}, "feature level"),
    Case("dmlsplit.Device.supports_data_type", CPU.supports_data_type, {"data_type": "INT8"},
         {"data_type": TYPES}),
    Case("dmlsplit.Device.compile", CPU.compile, {"desc": DESC}, {"desc": DESCRIPTORS}),
    Case("dmlsplit.Device.warm", CPU.warm, {"descs": [DESC], "alignment": None},
         {"descs": [None, 3, THING, [None], [INPUT_DESC]],
          "alignment": [0, 3, 32, "x", True, THING]},
         "desc"),
    Case("dmlsplit.selftest", dml.selftest,
         {"device": "cpu", "seconds": 0, "show": None, "progress": None, "strict": False},
         {"device": DEVICES, "seconds": [None, "x", -1, float("nan"), True, THING],
          "show": [3, "x", THING], "progress": [3, "x", THING], "strict": [None, 1, "x", THING]}),
    Case("dmlsplit.CompiledOperator.__call__", OPERATOR, {"array": ARRAY, "stream": None},
         {"array": ARRAYS, "stream": STREAMS}, "InputTensor"),
    Case("dmlsplit.CompiledOperator.dispatch", OPERATOR.dispatch,
         {"array": ARRAY, "outputs": OUTS, "stream": None},
         {"array": ARRAYS, "outputs": [None, *OUTPUTS], "stream": STREAMS},
         "InputTensor|OutputTensors|Outputs"),
    Case("dmlsplit.CompiledOperator.bind", OPERATOR.bind, {"array": ARRAY, "outputs": OUTS},
         {"array": ARRAYS, "outputs": [None, *OUTPUTS]}, "InputTensor|OutputTensors|Outputs"),
    Case("dmlsplit.BoundOperator.dispatch", OPERATOR.bind(ARRAY, OUTS).dispatch, {"stream": None},
         {"stream": STREAMS}),
    Case("dmlsplit.BufferBinding", binding,
         {"buffer": np.zeros(64, np.uint8), "offset": 0, "size_in_bytes": 24},
         {"buffer": ARRAYS, "offset": [*INTEGERS, *FAR], "size_in_bytes": [*NOT_INTEGERS, *FAR]},
         "InputTensor|SizeInBytes"),
    Case("dmlsplit.TensorDesc", dml.TensorDesc,
         {"data_type": "FLOAT32", "sizes": (1, 2), "strides": None, "flags": 0,
          "total_tensor_size_in_bytes": None, "guaranteed_base_offset_alignment": 0},
         {"data_type": TYPES, "sizes": LISTS, "strides": [3, *NO_LISTS],
          "flags": [None, 1.5, "x", THING, {}, 99, -1, True, ["x"], [None]],
          "total_tensor_size_in_bytes": NOT_INTEGERS,
          "guaranteed_base_offset_alignment": INTEGERS}),
    Case("dmlsplit.SplitOperatorDesc", dml.SplitOperatorDesc,
         {"input_tensor": INPUT_DESC, "output_tensors": DESC.output_tensors, "axis": 1},
         {"input_tensor": TENSORS, "axis": INTEGERS,
          "output_tensors": [None, 3, INPUT_DESC, "ab", [1], [None], [DESC], THING,
                             {INPUT_DESC: 2}, {INPUT_DESC}]}),
    Case("dmlsplit.SplitOperatorDesc.from_sizes", dml.SplitOperatorDesc.from_sizes,
         {"input_tensor": INPUT_DESC, "axis": 1, "sizes": (2, 4)},
         {"input_tensor": TENSORS, "axis": INTEGERS, "sizes": LISTS}),
    Case("dmlsplit.FeatureLevel.parse", dml.FeatureLevel.parse, {"value": "1_0"},
         {"value": LEVELS}, "feature level"),
    Case("dmlsplit.TensorDataType.parse", dml.TensorDataType.parse, {"value": "INT8"},
         {"value": TYPES}, "data type"),
    Case("dmlsplit.TensorFlags.parse", dml.TensorFlags.parse, {"value": 0},
         {"value": [None, 1.5, "x", THING, {}, 99, -1, True, ["x"], [None]]}, "tensor flags"),
    Case("dmlsplit.validate", dml.validate, {"desc": DESC, "feature_level": "6_4"},
         {"desc": DESCRIPTORS, "feature_level": LEVELS}),
    Case("dmlsplit.minimum_feature_level", dml.minimum_feature_level, {"desc": DESC},
         {"desc": DESCRIPTORS}),
    Case("dmlsplit.legalize", dml.legalize, {"desc": DESC, "feature_level": "1_0"},
         {"desc": DESCRIPTORS, "feature_level": LEVELS}),
    Case("dmlsplit.split", dml.split,
         {"array": ARRAY, "sizes_or_count": (2, 4), "axis": 1, "out": None, "dim": None},
         {"array": ARRAYS, "sizes_or_count": [None, *NO_LISTS, 0, -1, *FAR, True, 5, (2, 5), ()],
          "axis": [*INTEGERS, *FAR, 2], "out": OUTPUTS, "dim": [1, *INTEGERS[1:]]}, "count|sizes"),
    Case("onnx.split", onnx.split,
         {"x": ROW, "split": [2, 4], "axis": 0, "num_outputs": None, "output_count": None,
          "opset": 18, "device": None},
         {"x": NO_ARRAYS, "split": [3, -1, *NO_LISTS, np.zeros((2, 2), int), [7, -1]],
          "axis": [*NOT_INTEGERS, *FAR, 1], "num_outputs": [*NOT_INTEGERS, 0, -1, 7, *FAR],
          "output_count": [*NOT_INTEGERS, 0, -1, 7, *FAR], "opset": [*INTEGERS, 0, -1, -HUGE],
          "device": DEVICES}, "the input|outputs"),
    Case("onnx.split_to_sequence", onnx.split_to_sequence,
         {"x": ROW, "split": None, "axis": 0, "keepdims": 1, "opset": 11, "device": None},
         {"x": NO_ARRAYS, "split": [0, -1, *NO_LISTS, np.zeros((2, 2), int), [7, -1]],
          "axis": [*NOT_INTEGERS, *FAR, 1], "keepdims": [*NOT_INTEGERS, 2, -1, *FAR],
          "opset": [*INTEGERS, 0, -1, -HUGE], "device": DEVICES}, "the input"),
    Case("onnx.run", onnx.run, {"arguments": ARGUMENTS, "x": ROW, "device": None},
         {"arguments": OPERATORS, "x": NO_ARRAYS, "device": DEVICES}, "the input"),
    Case("onnx.lower", onnx.lower,
         {"arguments": ARGUMENTS, "data_type": onnx.ElementType.FLOAT, "shape": (6,)},
         {"arguments": OPERATORS, "data_type": [None, 1, "FLOAT", THING, 99],
          "shape": [*LISTS, (), (5,), (-6,)]}, "the input|size of the axis"),
    Case("onnx.node_arguments", onnx.node_arguments,
         {"operator": SPLIT, "attributes": {}, "inputs": [np.array([2, 4])], "output_count": 2},
         {"operator": OPERATORS, "attributes": [None, 3, "x", {"a": 1}, THING, [1]],
          "inputs": [None, 3, THING, "ab", [1, 2, 3], {1}],
          "output_count": [*NOT_INTEGERS, 0, -1, 7]}, "outputs|attribute"),
    Case("onnx.operator_version", onnx.operator_version, {"name": "Split", "opset": 18},
         {"name": [None, 3, "Spl", THING, []], "opset": [*INTEGERS, 0, -1, -HUGE]}),
    Case("onnx.read_arguments", onnx.read_arguments,
         {"operator": SEQUENCE, "axis": 0, "split": None, "num_outputs": None, "keepdims": None,
          "output_count": None},
         {"operator": OPERATORS, "axis": NOT_INTEGERS, "split": [0, -1, *NO_LISTS],
          "num_outputs": [], "keepdims": [*NOT_INTEGERS, 2, -1], "output_count": []}),
    Case("onnx.FixedSizes", onnx.FixedSizes, {"sizes": {"a": 1}},
         {"sizes": [None, 3, "x", THING, [1], {"a": "x"}, {"a": 1.5}, {"a": True}, {"a": -1}]}),
    Case("onnx.scan", onnx.scan, {"path": "x", "dimensions": None},
         {"path": PATHS, "dimensions": [3, "x", {"a": 1}, THING]},
         "cannot be read|file"),
    Case("openvino.split", openvino.split,
         {"data": ROW, "axis": 0, "num_splits": 2, "device": None},
         {"data": NO_ARRAYS, "axis": [*INTEGERS, *FAR, 1],
          "num_splits": [*INTEGERS, 0, -1, 5, *FAR], "device": DEVICES}),
    Case("openvino.variadic_split", openvino.variadic_split,
         {"data": ROW, "axis": 0, "split_lengths": [2, -1], "device": None},
         {"data": NO_ARRAYS, "axis": [None, *FAR, 1, 1.5, "1", True, THING],
          "split_lengths": [*LISTS, (1, 1), (-1, -1), (7, -1)], "device": DEVICES}),
    Case("openvino.lower_split", openvino.lower_split,
         {"shape": (6,), "axis": 0, "num_splits": 2, "data_type": dml.TensorDataType.INT8,
          "lanes": 1},
         {"shape": [*LISTS, (), (-6,)], "axis": [*INTEGERS, *FAR],
          "num_splits": [*INTEGERS, 0, -1, 5], "data_type": TYPES, "lanes": [*INTEGERS, 0, -1]},
         "dimensions"),
    Case("openvino.lower_variadic_split", openvino.lower_variadic_split,
         {"shape": (6,), "axis": 0, "split_lengths": (2, 4), "data_type": dml.TensorDataType.INT8,
          "lanes": 1},
         {"shape": [*LISTS, (), (-6,)], "axis": [*INTEGERS, *FAR],
          "split_lengths": [*LISTS, (1, 1)], "data_type": TYPES, "lanes": [*INTEGERS, 0, -1]},
         "dimensions"),
    Case("openvino.scan", openvino.scan, {"path": "x"}, {"path": PATHS}, "file"),
    Case("dxdispatch.load", dxdispatch.load, {"path": DISPATCH}, {"path": PATHS}, "file"),
    Case("dxdispatch.scan", dxdispatch.scan, {"path": DISPATCH}, {"path": PATHS}, "file"),
    Case("dxdispatch.run", dxdispatch.run,
         {"path": DISPATCH, "device": "cpu", "output": None, "overwrite": False},
         {"path": PATHS, "device": DEVICES, "output": [3, "x", THING], "overwrite": []}, "file"),
    Case("dxdispatch.read_descriptor", dxdispatch.read_descriptor, {"mapping": {}},
         {"mapping": [None, 3, "x", THING, [], {}, {"Type": 3}, {1: 2}]}, "it must be|lacks"),
]  # fmt: skip
NAMED = {case.name: case for case in CASES}
# Types that callers do not construct. Enumerations are Python's.
MADE = """
    dmlsplit.BoundOperator dmlsplit.CompiledOperator dmlsplit.FeatureLevel dmlsplit.SelfTest
    dmlsplit.SelfTest.lines dmlsplit.SelfTest.to_json dmlsplit.TensorDataType
    dmlsplit.TensorFlags dmlsplit.ValidationReport dmlsplit.Violation onnx.Arguments
    onnx.ElementType onnx.ElementType.of_dtype onnx.FixedSizes.size
    onnx.FixedSizes.register onnx.FixedSizes.check_all_used onnx.FixedSizes.fix
    onnx.Lengths onnx.Lowering
    onnx.OperatorVersion openvino.Lowering dxdispatch.Model dxdispatch.Result
""".split()


def public() -> Iterator[str]:
    """Every public function, class and method."""
    for module in MODULES:
        for name in module.__all__:
            value, place = getattr(module, name), module.__name__.rpartition(".")[2]
            if inspect.isclass(value) and issubclass(value, Exception):
                continue
            yield f"{place}.{name}"
            if inspect.isclass(value):
                own_names = {
                    member_name
                    for member_name in vars(value)
                    if not member_name.startswith("_") or member_name == "__call__"
                }
                methods = (
                    member_name
                    for member_name in own_names
                    if callable(getattr(value, member_name))
                )
                yield from (f"{place}.{name}.{member_name}" for member_name in methods)


def test_wrong_values_cover_every_public_callable() -> None:
    enumerations = {name for name in public() if name.rpartition(".")[2].isupper()}
    assert sorted(set(public()) - enumerations) == sorted({*NAMED, *MADE})


@pytest.mark.parametrize("name", NAMED)
def test_wrong_values_cover_every_argument(name: str) -> None:
    case = NAMED[name]
    call = dml.BufferBinding if case.call is binding else case.call
    arguments = list(inspect.signature(call).parameters)
    assert sorted(arguments) == sorted(case.right) == sorted(case.wrong)


@pytest.mark.parametrize(
    ("name", "argument"), [(case.name, argument) for case in CASES for argument in case.wrong]
)
def test_a_wrong_value_is_refused_with_the_name_of_the_argument(name: str, argument: str) -> None:
    assert list(NAMED[name].failures(argument)) == []
    assert not any(out.any() for out in (*OUTS, FROZEN))
    assert ARRAY.tolist() == [[0, 1, 2, 3, 4, 5]]
