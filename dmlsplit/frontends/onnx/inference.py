"""ONNX's shape inference, in a child process with limits of time and memory.

Small malformed models make it end its process, and others make it allocate without end, so it
never runs in the caller's. The child loads the model without its weights, and hands it back with
the shapes that were inferred.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.errors import UnsupportedError
from dmlsplit.frontends.onnx.messages import MAXIMUM_VALUES

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

SECONDS = 60
MEMORY_BYTES = 4 << 30
# Tensors that a scan does not read (`MAXIMUM_VALUES`) are not handed back either.
_LARGEST_BYTES = 8 * MAXIMUM_VALUES
_MOST_BYTES = 256 << 20  # of a model without its weights


def is_installed() -> bool:
    """Whether there is a package onnx to infer shapes with."""
    return find_spec("onnx") is not None


def with_inferred_shapes(path: str, sizes: Mapping[str, int]) -> bytes:
    """Return a model without its weights, and with the shapes of its values.

    Parameters
    ----------
    path
        The model. External data that it names is not opened.
    sizes
        Sizes of its dynamic dimensions, as in `FixedSizes`.

    Raises
    ------
    UnsupportedError
        If the inference fails in any way, with the reason in one line.
    """
    # -P keeps the current folder, which may hold anything, from being imported from.
    line = [sys.executable, "-P", "-m", __name__, os.path.abspath(path), json.dumps(dict(sizes))]  # noqa: PTH100
    ours = str(Path(__file__).parents[3])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    }
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnsupportedError(f"it took over {SECONDS} s") from None
    except OSError as error:
        raise UnsupportedError(f"its process did not start: {error.strerror}") from None
    if done.returncode < 0:
        raise UnsupportedError(f"it ended its process with signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        why = next((text for text in reversed(lines) if text.strip()), "")
        raise UnsupportedError(f"{' '.join(why.split())[:200]} (exit status {done.returncode})")
    return done.stdout


def _child(path: str, sizes: str) -> None:
    _limit_memory()
    import onnx

    model = onnx.load_model(path, load_external_data=False)
    fix_dimensions(model, json.loads(sizes))
    _drop_weights(model.graph)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    found = inferred.SerializeToString()
    if len(found) > _MOST_BYTES:
        raise MemoryError(f"the shapes take {len(found)} bytes; at most {_MOST_BYTES} are read")
    sys.stdout.buffer.write(found)


def _limit_memory() -> None:
    """Bound the memory of this process where the system can; Windows has no such call."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def fix_dimensions(model: ModelProto, sizes: Mapping[str, int]) -> None:
    """Give the dynamic dimensions of a model their sizes, as `FixedSizes` has them, in place."""
    by_name = dict(sizes)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = sizes.get(f"{value.name}.{axis}", by_name.get(dim.dim_param))
            if size is not None:
                if dim.dim_param:
                    by_name[dim.dim_param] = size
                dim.dim_value = size
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in by_name:
                    dim.dim_value = by_name[dim.dim_param]


def _drop_weights(graph: GraphProto) -> None:
    for body in _graphs(graph):
        constants = [a.t for node in body.node for a in node.attribute if a.HasField("t")]
        for tensor in (*body.initializer, *constants):
            if len(tensor.raw_data) > _LARGEST_BYTES:
                tensor.ClearField("raw_data")
            for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                if len(getattr(tensor, name)) > MAXIMUM_VALUES:
                    tensor.ClearField(name)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(body)


if __name__ == "__main__":
    _child(*sys.argv[1:])
