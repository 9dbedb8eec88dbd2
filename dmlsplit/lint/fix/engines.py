"""The runtimes that run models to compare them, and that say which nodes were run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Run(Protocol):
    """A loaded model."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[Any]:
        """Return all outputs."""

    def close(self) -> None:
        """Complete the set of the nodes that were run."""


# Loads a model; the names of its nodes that are run are added to a set, if one is given.
Load = Callable[[str, set[str] | None], Run]


class _OnnxRuntime:
    def __init__(self, path: str, ran: set[str] | None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._ran = ran
        if ran is not None:
            self._folder = tempfile.TemporaryDirectory()
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._folder.name, "nodes"))
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(path, options, providers=providers)

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[Any]:
        return list(self._session.run(None, dict(feeds)))

    def close(self) -> None:
        if self._ran is None:
            return
        with self._folder:
            events = json.loads(Path(self._session.end_profiling()).read_bytes())
        names = (event["name"] for event in events if event.get("cat") == "Node")
        self._ran |= {name.removesuffix("_kernel_time") for name in names}


class _Reference:
    def __init__(self, path: str, ran: set[str] | None) -> None:
        from onnx.reference import ReferenceEvaluator
        from onnx.reference.op_run import OpRun

        self._evaluator = ReferenceEvaluator(path)
        if ran is not None:
            honest: Any = OpRun.run

            # The evaluator has no hook for it; this process runs nothing else.
            def run(self: Any, *arguments: Any, **options: Any) -> Any:
                ran.add(self.onnx_node.name)
                return honest(self, *arguments, **options)

            OpRun.run = run  # type: ignore[method-assign]

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[Any]:
        return list(self._evaluator.run(None, dict(feeds)))

    def close(self) -> None:
        """Do nothing: the set is complete all along."""


ENGINES: dict[str, Load] = {"onnxruntime": _OnnxRuntime, "onnx.reference": _Reference}
