"""What is known in the bodies of Loop and Scan, and after them."""

from collections.abc import Sequence

from dmlsplit.checks import axis_from_front
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.values import Call, Value

# The opsets since which the operators have these forms.
LOOPS = {"Loop": 1, "Scan": 9}


def body_inputs(call: Call) -> list[Value]:
    """The inputs of the body of a Loop or Scan."""
    if call.node.op_type == "Loop":
        # The shape of a state may change from iteration to iteration.
        states = [Value(value.data_type) for value in call.inputs[2:]]
        return [Value(ElementType.INT64, ()), Value(ElementType.BOOL, ()), *states]
    states, rows = _scan_inputs(call)
    return [*states, *(_row(value, axis) for value, axis in rows)]


def loop_outputs(call: Call, results: Sequence[Value]) -> list[Value]:
    """The outputs of a Loop or Scan, whose body has these."""
    if call.node.op_type == "Loop":
        states = [Value(value.data_type) for value in call.inputs[2:]]
        return [*states, *(_stacked(value, 0, "?") for value in results[1 + len(states) :])]
    states, rows = _scan_inputs(call)
    length = next((row.shape[axis] for row, axis in rows if row.shape is not None), "?")
    stacked = results[len(states) :]
    axes = call.number("scan_output_axes", (0,) * len(stacked))
    return [*states, *(_stacked(*pair, length) for pair in zip(stacked, axes, strict=True))]


def _scan_inputs(call: Call) -> tuple[list[Value], list[tuple[Value, int]]]:
    """The states of a Scan, and the inputs that it scans, each with its axis."""
    count = call.number("num_scan_inputs", 0)
    if not 0 < count <= len(call.inputs):
        raise ValueError("num_scan_inputs")
    states = [Value(value.data_type, value.shape) for value in call.inputs[:-count]]
    axes = call.number("scan_input_axes", (0,) * count)
    return states, list(zip(call.inputs[-count:], axes, strict=True))


def _row(value: Value, axis: int) -> Value:
    """What one iteration gets of an input."""
    if value.shape is None:
        return Value(value.data_type)
    axis = axis_from_front(axis, len(value.shape))
    return Value(value.data_type, (*value.shape[:axis], *value.shape[axis + 1 :]))


def _stacked(value: Value, axis: int, length: int | str) -> Value:
    """Results of all iterations in a new axis."""
    if value.shape is None:
        return Value(value.data_type)
    axis = axis_from_front(axis, len(value.shape) + 1)
    return Value(value.data_type, (*value.shape[:axis], length, *value.shape[axis:]))
