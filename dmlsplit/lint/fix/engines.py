"""The runtimes that run models to compare them, and that say which nodes were run."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

# From inputs by name to all outputs.
Run = Callable[[Mapping[str, np.ndarray]], list[Any]]
# Loads a model. The names of its nodes that are run are added to a set, if one is given; it is
# complete when the block ends.
Load = Callable[[str, set[str] | None], AbstractContextManager[Run]]


@contextmanager
def _onnxruntime(path: str, ran: set[str] | None) -> Iterator[Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # after an error it is in use
        options.enable_profiling = ran is not None
        options.profile_file_prefix = str(Path(folder, "nodes"))
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        yield lambda feeds: list(session.run(None, dict(feeds)))
        if ran is not None:
            events = json.loads(Path(session.end_profiling()).read_bytes())
            names = (event["name"] for event in events if event.get("cat") == "Node")
            ran |= {name.removesuffix("_kernel_time") for name in names}


@contextmanager
def _reference(path: str, ran: set[str] | None) -> Iterator[Run]:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    evaluator = ReferenceEvaluator(path)
    if ran is not None:
        honest: Any = OpRun.run

        # The evaluator has no hook for it; this process runs nothing else.
        def run(self: Any, *arguments: Any, **options: Any) -> Any:
            ran.add(self.onnx_node.name)
            return honest(self, *arguments, **options)

        OpRun.run = run  # type: ignore[method-assign]
    yield lambda feeds: list(evaluator.run(None, dict(feeds)))


ENGINES: dict[str, Load] = {"onnxruntime": _onnxruntime, "onnx.reference": _reference}
