"""Other ways to split on the CPU. Each function prepares one and returns the call to time.

A peer writes into the given outputs, or returns new ones if it cannot. The caller compares the
bytes of the arrays that `Prepared.outputs` returns.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import dmlsplit as dml
from benchmarks.cases import NEW, STEP, Case
from benchmarks.timing import Call
from dmlsplit.backends.cpu import native, threads
from dmlsplit.backends.find import find_backend


@dataclass(frozen=True, slots=True)
class Problem:
    """A case with its memory."""

    case: Case
    array: np.ndarray
    outputs: list[np.ndarray]
    threads: int

    @property
    def views(self) -> list[np.ndarray]:
        """The pieces of the input, as views."""
        ends = np.cumsum(self.case.sizes)[:-1]
        return np.split(self.array, ends, self.case.axis)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call, and the place of its result."""

    call: Call
    outputs: Callable[[], list[np.ndarray]]


Peer = Callable[[Problem], Prepared]


@contextmanager
def environment_variable(name: str, value: object) -> Iterator[None]:
    """Set a variable that the CPU engine reads."""
    before = os.environ.get(name)
    os.environ[name] = str(value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def dmlsplit_bound(problem: Problem) -> Prepared:
    """Compile and bind once, dispatch many times."""
    address = int(problem.array.ctypes.data)
    addresses = [int(out.ctypes.data) for out in problem.outputs]
    program = find_backend("cpu").compile(problem.case.geometry)
    program.prepare()
    with environment_variable(threads.VARIABLE, problem.threads):
        copy = program.bind(address, addresses)
    return Prepared(copy, lambda: problem.outputs)


def dmlsplit_numpy(problem: Problem) -> Prepared:
    """NumPy copies, as without the C library."""
    with environment_variable(native.VARIABLE, 0):
        return dmlsplit_bound(problem)


def dmlsplit_eager(problem: Problem) -> Prepared:
    """`dml.split`: checks, allocates and copies."""
    case, result = problem.case, [[np.empty(0)]]

    def call() -> None:
        result[0] = dml.split(problem.array, case.sizes, case.axis)

    return Prepared(call, lambda: result[0])


def dmlsplit_dispatch(problem: Problem) -> Prepared:
    """Dispatch a compiled operator, which checks the binding table on every call."""
    case, array = problem.case, problem.array
    pad = (1,) * (4 - len(case.shape))
    tensor = dml.TensorDesc("FLOAT32", (*pad, *case.shape))
    desc = dml.SplitOperatorDesc.from_sizes(tensor, axis=len(pad) + case.axis, sizes=case.sizes)
    operator = dml.Device("cpu").compile(desc)
    padded = array.reshape(*pad, *array.shape)
    outputs = [out.reshape(*pad, *out.shape) for out in problem.outputs]
    return Prepared(lambda: operator.dispatch(padded, outputs), lambda: problem.outputs)


def plain_copy(problem: Problem) -> Prepared:
    """Copy the same number of bytes without splitting: the lower bound of a split's time."""
    copies, start = [], 0
    flat = problem.array.reshape(-1)
    for out in problem.outputs:
        copies.append((out.reshape(-1), flat[start : start + out.size]))
        start += out.size
    parts = [out.reshape(part.shape) for out, part in copies]

    def call() -> None:
        for dst, src in copies:
            np.copyto(dst, src)

    # The outputs are not those of a split, so they are checked here.
    call()
    for part, (_, src) in zip(parts, copies, strict=True):
        assert part.tobytes() == src.tobytes()
    return Prepared(call, list)


def numpy_copyto(problem: Problem) -> Prepared:
    """One `numpy.copyto` per output, into the caller's memory."""
    pairs = list(zip(problem.outputs, problem.views, strict=True))

    def call() -> None:
        for dst, src in pairs:
            np.copyto(dst, src)

    return Prepared(call, lambda: problem.outputs)


def numpy_split(problem: Problem) -> Prepared:
    """`numpy.split` and a copy of each view: what most programs do."""
    ends = np.cumsum(problem.case.sizes)[:-1]
    result = [[np.empty(0)]]

    def call() -> None:
        result[0] = [v.copy() for v in np.split(problem.array, ends, problem.case.axis)]

    return Prepared(call, lambda: result[0])


def torch_split_copy(problem: Problem) -> Prepared:
    """`torch.split_with_sizes_copy(out=)`."""
    import torch

    torch.set_num_threads(problem.threads)
    array = torch.from_numpy(problem.array)
    outputs = [torch.from_numpy(out) for out in problem.outputs]
    sizes, axis = list(problem.case.sizes), problem.case.axis

    def call() -> None:
        torch.split_with_sizes_copy(array, sizes, axis, out=outputs)

    return Prepared(call, lambda: problem.outputs)


def torch_new(problem: Problem) -> Prepared:
    """`torch.split_with_sizes_copy`, which allocates its outputs."""
    import torch

    return _new(problem, torch.split_with_sizes_copy)


def dmlsplit_new(problem: Problem) -> Prepared:
    """`dml.split` of a tensor."""
    return _new(problem, dml.split)


def _new(problem: Problem, split: Callable[..., Any]) -> Prepared:
    import torch

    torch.set_num_threads(problem.threads)
    array, sizes, axis = torch.from_numpy(problem.array), problem.case.sizes, problem.case.axis
    result: list[Any] = [[]]

    def call() -> None:
        with environment_variable(threads.VARIABLE, problem.threads):
            result[0] = split(array, sizes, axis)

    return Prepared(call, lambda: [piece.numpy() for piece in result[0]])


def onnxruntime_split(problem: Problem) -> Prepared:
    """Run an ONNX Split-18 with IOBinding on the caller's memory."""
    import onnxruntime as ort
    from onnx import helper

    case = problem.case
    element = helper.np_dtype_to_tensor_dtype(problem.array.dtype)
    names = [f"y{index}" for index in range(len(case.sizes))]
    sizes = helper.make_tensor("sizes", 7, [len(case.sizes)], case.sizes)
    graph = helper.make_graph(
        [helper.make_node("Split", ["x", "sizes"], names, axis=case.axis)],
        "split",
        [helper.make_tensor_value_info("x", element, case.shape)],
        [
            helper.make_tensor_value_info(name, element, shape)
            for name, shape in zip(names, case.output_shapes, strict=True)
        ],
        [sizes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = problem.threads
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    array = problem.array
    binding.bind_input("x", "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, out in zip(names, problem.outputs, strict=True):
        binding.bind_output(name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return Prepared(lambda: session.run_with_iobinding(binding), lambda: problem.outputs)


def openvino_split(problem: Problem) -> Prepared:
    """Run an OpenVINO VariadicSplit with the caller's tensors set as its outputs."""
    import openvino as ov
    from openvino import opset1

    case = problem.case
    data = opset1.parameter(list(case.shape), ov.Type(problem.array.dtype))
    axis = opset1.constant(np.array(case.axis, np.int64))
    split = opset1.variadic_split(data, axis, opset1.constant(np.array(case.sizes, np.int64)))
    model = ov.Model([opset1.result(split.output(i)) for i in range(len(case.sizes))], [data])
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": problem.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(0, ov.Tensor(problem.array, shared_memory=True))
    for index, out in enumerate(problem.outputs):
        request.set_output_tensor(index, ov.Tensor(out, shared_memory=True))
    return Prepared(request.infer, lambda: problem.outputs)


PEERS: dict[str, Peer] = {
    "dmlsplit": dmlsplit_bound,
    "dmlsplit, NumPy": dmlsplit_numpy,
    "plain copy": plain_copy,
    "numpy copyto": numpy_copyto,
    "numpy split": numpy_split,
    "torch": torch_split_copy,
    "onnxruntime": onnxruntime_split,
    "openvino": openvino_split,
}
# Kinds of cases that have peers of their own.
PEERS_OF: dict[str, dict[str, Peer]] = {
    NEW: {"dmlsplit": dmlsplit_new, "torch": torch_new},
    STEP: {"dmlsplit": dmlsplit_bound},
}
# These always use one thread.
ONE_THREAD = {"plain copy", "numpy copyto", "numpy split"}
# The CPU engine must not be slower than these.
BAR = ("torch", "onnxruntime", "openvino")
