"""An ONNX backend that runs whole models, for ONNX's own suite, with their splits on a `Device`.

ONNX's reference evaluator runs all other nodes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from dmlsplit.arrays import to_device, to_host
from dmlsplit.errors import DmlError, InvalidArgumentError
from dmlsplit.execution.device import Device
from dmlsplit.execution.onnx import run
from dmlsplit.models.onnx.arguments import check_types, node_arguments, refuse
from dmlsplit.models.onnx.operators import OPERATORS, ElementType, operator_version


class DmlSplitBackend(Backend):
    """ONNX's backend interface over dmlsplit and the reference evaluator."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> "DmlSplitModel":
        """Load a model for a device: ``"CPU"``, ``"CUDA"`` or ``"CUDA:N"``.

        Raises
        ------
        InvalidArgumentError
            If there is no such device, or external data would have to be read.
        """
        return DmlSplitModel(model, Device(device.lower()), **kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node; the keyword `opset_version` defaults to onnx's newest opset."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(filter(None, node.input))],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        imports = [onnx.helper.make_opsetid(node.domain, opset)]
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `dmlsplit.Device` finds the device."""
        try:
            Device(device.lower())
        except DmlError:
            return False
        return True


class DmlSplitModel(BackendRep):
    """A loaded model. `split_count` counts the splits that have run, on `device`."""

    def __init__(self, model: onnx.ModelProto, device: Device, **options: Any) -> None:
        self.device = device
        self.split_count = 0
        self._defaults = {tensor.name for tensor in model.graph.initializer}
        own_operators = [_operator(self, name) for name in OPERATORS]

        class Evaluator(ReferenceEvaluator):
            """A reference evaluator that splits with dmlsplit, also in bodies and functions."""

            def __init__(self, proto: Any, **options: Any) -> None:
                # The first class of a name wins, so ours come before the caller's.
                options["new_ops"] = [*own_operators, *(options.get("new_ops") or ())]
                super().__init__(proto, **options)

        try:
            self._evaluator = Evaluator(model, **options)
        except Exception as error:
            # A malformed model can make the evaluator raise any exception.
            raise InvalidArgumentError(f"the model cannot be loaded: {error}") from error

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model on arrays in the order of its inputs, or on a dict of them by name."""
        names, feeds = self._evaluator.input_names, inputs
        if not isinstance(inputs, dict):
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(arrays) > len(names):
                raise InvalidArgumentError(
                    f"{len(arrays)} inputs are given; the model has {len(names)}: "
                    f"{', '.join(names)}"
                )
            feeds = dict(zip(names, arrays, strict=False))
        missing = [name for name in names if name not in feeds and name not in self._defaults]
        if missing:
            raise InvalidArgumentError(f"inputs of the model are missing: {', '.join(missing)}")
        return tuple(self._evaluator.run(None, feeds))

    def split(self, node: onnx.NodeProto, opset: int, inputs: Any, attributes: Any) -> list[Any]:
        """Run one Split or SplitToSequence node."""
        operator = operator_version(node.op_type, opset)
        values = {name: value for name, value in attributes.items() if value is not None}
        arguments = node_arguments(operator, values, inputs[1:], len(node.output))
        x = next(iter(inputs), None)
        if x is None:
            refuse(operator, "the node has no input", "it must have one")
        self.split_count += 1
        if self.device.name == "cpu" or x.dtype.kind in "OUT":  # Strings stay on the host.
            return run(arguments, x, self.device)
        check_types(operator, ElementType.of_dtype(x.dtype), arguments.split_type)
        raw = x if x.dtype.kind in "biufc" else x.view(f"u{x.dtype.itemsize}")
        pieces = run(arguments, to_device(raw, self.device.name), self.device)
        return [to_host(piece).view(x.dtype) for piece in pieces]


def _operator(model: DmlSplitModel, name: str) -> type[OpRun]:
    def run_node(self: OpRun, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        opset = self.run_params["opsets"][self.onnx_node.domain]
        pieces = model.split(self.onnx_node, opset, inputs, attributes)
        return (pieces,) if name == "SplitToSequence" else tuple(pieces)

    # Without a schema, only the node's own attributes come in; dmlsplit knows the defaults.
    return type(name, (OpRun,), {"op_domain": "", "op_schema": None, "_run": run_node})
