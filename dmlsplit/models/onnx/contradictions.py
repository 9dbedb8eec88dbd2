"""Where the declarations of a model contradict what its nodes make."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dmlsplit.models.onnx.declarations import output_faults, shape_remark
from dmlsplit.models.onnx.protobuf import Shape
from dmlsplit.models.onnx.scope import Visit
from dmlsplit.models.onnx.values import UNKNOWN, Value, contradicts
from dmlsplit.models.site import NodePath


@dataclass(slots=True)
class Contradictions:
    """The contradictions of a model so far.

    Attributes
    ----------
    faults : list of str
        Those for which ONNX Runtime does not load the model.
    shapes : dict
        The inferred shapes of values whose declared shapes contradict them, by the path of the
        value's graph and the value's name.
    """

    faults: list[str] = field(default_factory=list)
    shapes: dict[tuple[NodePath, str], Shape] = field(default_factory=dict)

    def add_faults(self, faults: Iterable[str]) -> None:
        """Add faults of a graph."""
        self.faults += faults

    def checked_value(self, name: str, value: Value, visit: Visit) -> Value:
        """An output of a node, completed from its declaration, or with a remark if it is wrong."""
        scope = visit.scope
        declarations = visit.scope.declarations
        declared = declarations.by_name.get(name)
        is_stale = declarations.are_stale
        # ONNX Runtime does not read the declarations in functions.
        typed = None if scope.is_in_function else declared
        own = scope.values.maps[0].get(name, UNKNOWN)
        is_same = (own.data_type, own.shape) == (value.data_type, value.shape)
        # A Constant takes the place of an initializer of its type and shape.
        is_replaced = visit.node.op_type == "Constant" and own.constant is not None and is_same
        is_taken = name in scope.values and not is_replaced
        maker = visit.description
        faults = output_faults(visit.node, name, value, typed, maker, is_taken=is_taken)
        self.add_faults(faults)
        if declared is None:
            return value
        if not contradicts(declared.shape, value.shape):
            return value if is_stale else value.merged(declared)
        declarations.are_stale = True
        self.shapes[scope.path, name] = value.shape or ()
        remark = shape_remark(name, declared.shape, value.shape, maker)
        return replace(value, remark=remark)
