"""Runs two ONNX models on the same random inputs and compares every output bit by bit.

The models run in a child process, because a runtime may abort its process on a malformed model.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, one_line

SECONDS = 600
# Sizes for dynamic dimensions, tried in turn until the first model runs.
_DYNAMIC_SIZES = (2, 1, 4, 8, 3)

# Name, type and sizes of an input; None is a dynamic size.
_Input = tuple[str, np.dtype, list[int | None]]
_Run = Callable[[Mapping[str, np.ndarray]], list[Any]]


def compare_models(first: Path, second: Path) -> str:
    """Compare all outputs of both models, bit for bit, and return the runtime that ran them.

    Raises
    ------
    InvalidArgumentError
        If an output differs.
    UnsupportedError
        If a model could not be run.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(str(first), str(second), sender), daemon=True)
    child.start()
    sender.close()
    try:
        kind, text = "failed", f"it took over {SECONDS} s"
        if receiver.poll(SECONDS):
            kind, text = receiver.recv()
    except EOFError:
        child.join()
        kind, text = "failed", f"the runtime ended its process ({child.exitcode})"
    finally:
        child.kill()
        child.join()
    if kind == "equal":
        return str(text)
    if kind == "different":
        raise InvalidArgumentError(f"the rewritten model computes something else: {text}")
    raise UnsupportedError(f"the models could not be compared: {text}")


def _child(first: str, second: str, sender: Connection) -> None:
    try:
        sender.send(_compared(first, second))
    except Exception as error:
        # Runtimes raise errors of many types; after any of them nothing is proven.
        sender.send(("failed", one_line(error)[:300]))


def _compared(first: str, second: str) -> tuple[str, str]:
    """Return ``equal`` and what ran the models, or ``different`` and in what they differ."""
    failures = []
    for name, load in (("onnxruntime", _onnxruntime), ("onnx.reference", _reference)):
        try:
            feeds, expected = _first_that_runs(load(first), _inputs(first))
        except Exception as error:
            failures.append(f"{name}: {error}")
            continue
        different = _difference("outputs", expected, load(second)(feeds))
        return ("different", different) if different else ("equal", name)
    raise RuntimeError("; ".join(failures))


def _onnxruntime(path: str) -> _Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, dict(feeds)))


def _reference(path: str) -> _Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    return lambda feeds: list(evaluator.run(None, dict(feeds)))


def _inputs(path: str) -> list[_Input]:
    """Return the inputs that have no initializer."""
    import onnx
    from onnx import helper

    graph = onnx.load_model(path, load_external_data=False).graph
    given = {tensor.name for tensor in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in given:
            continue
        if not value.type.HasField("tensor_type"):
            raise RuntimeError(
                f"input {value.name!r} is not a tensor, so no random value can be made for it"
            )
        tensor = value.type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found.append((value.name, np.dtype(kind), sizes))
    return found


def _first_that_runs(run: _Run, inputs: list[_Input]) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Return inputs that the model accepts, and its outputs.

    Integers are of their whole range, or else 0 and 1: some are indices or sizes.
    """
    failure: Exception = RuntimeError("no inputs were tried")
    dynamic = any(None in sizes for _, _, sizes in inputs)
    for size, make in product(_DYNAMIC_SIZES if dynamic else (0,), (_full_range, _small)):
        random = np.random.default_rng(20)
        feeds = {
            name: make(random, kind, tuple(size if n is None else n for n in sizes))
            for name, kind, sizes in inputs
        }
        try:
            return feeds, run(feeds)
        except Exception as error:
            failure = error
    raise failure


def _full_range(random: np.random.Generator, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return _small(random, kind, shape)


def _small(random: np.random.Generator, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if kind.kind in "OUST":
        return random.integers(0, 100, shape).astype(str).astype(object)
    if kind.kind in "iub":
        return random.integers(0, 2, shape).astype(kind)
    return random.standard_normal(shape).astype(kind)


def _difference(where: str, expected: Any, found: Any) -> str:
    """Return in what two outputs differ; an empty string if they are equal bit for bit."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{where}: {len(expected)} values became {len(found)}"
        pairs = enumerate(zip(expected, found, strict=True))
        differences = (_difference(f"{where}[{index}]", *pair) for index, pair in pairs)
        return next(filter(None, differences), "")
    one, other = np.asarray(expected), np.asarray(found)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{where}: {one.dtype}{one.shape} became {other.dtype}{other.shape}"
    same = np.array_equal(one, other) if one.dtype.hasobject else one.tobytes() == other.tobytes()
    return "" if same else f"{where}: the values differ"
