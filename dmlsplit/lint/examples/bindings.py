"""Examples of the rules of bindings: FLOAT32[6] is split into pieces of 2 and 4 elements."""

from __future__ import annotations

from dmlsplit.lint.examples.example import Example

_PROGRAM = """\
import numpy as np
import dmlsplit as dml

x = dml.TensorDesc("FLOAT32", (6,){tensor})
desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4))
op = dml.Device("cpu").compile(desc)
a, outs = np.zeros(6, "f4"), [np.zeros(2, "f4"), np.zeros(4, "f4")]
{bind}"""


def _bound(broken: str, said: str, kept: str = "op.bind(a, outs)", tensor: str = "") -> Example:
    """Return an example whose programs differ in what they bind."""

    def program(bind: str) -> str:
        return _PROGRAM.format(bind=bind, tensor=tensor)

    return Example("python", program(broken), program(kept), said)


def _buffer(broken: str, kept: str, said: str, tensor: str = "") -> Example:
    """Return an example whose programs differ in how they bind one buffer as the input."""
    bind = 'buffer = np.zeros(64, "u1")\nop.bind(dml.BufferBinding(buffer, {}), outs)'
    return _bound(bind.format(broken), said, bind.format(kept), tensor)


BINDINGS = {
    "DML-BIND-COUNT": _bound(
        "op.bind(a, outs[:1])",
        "Outputs.BindingCount: is 1; must be 2",
    ),
    "DML-BIND-KIND": _bound(
        'buffer = np.zeros(64, "u1")[::2]\nop.bind(dml.BufferBinding(buffer), outs)',
        "InputTensor.Buffer: is a strided array; must be a contiguous array",
        kept='buffer = np.zeros(32, "u1")\nop.bind(dml.BufferBinding(buffer), outs)',
    ),
    "DML-BIND-OFFSET-ALIGNMENT": _buffer(
        "offset=8",
        "offset=16",
        "InputTensor.Offset: is 8; must be a multiple of 16",
    ),
    "DML-BIND-GUARANTEED-ALIGNMENT": _buffer(
        "offset=16",
        "offset=32",
        "InputTensor.Offset: is 16; must be a multiple of 32",
        tensor=", guaranteed_base_offset_alignment=32",
    ),
    "DML-BIND-RANGE": _buffer(
        "offset=32, size_in_bytes=48",
        "offset=16, size_in_bytes=48",
        "InputTensor.SizeInBytes: is bytes 32 to 80; must be inside the buffer's 64 bytes",
    ),
    "DML-BIND-SIZE": _buffer(
        "size_in_bytes=20",
        "size_in_bytes=24",
        "InputTensor.SizeInBytes: is 20; must be at least 24",
    ),
    "DML-BIND-READ-ONLY": _bound(
        "outs[0].flags.writeable = False\nop.bind(a, outs)",
        "OutputTensors[0]: is read-only; must be writable",
    ),
    "DML-BIND-OUTPUT-OVERLAP": _bound(
        'y = np.zeros(6, "f4")\nop.bind(a, [y[:2], y[:4]])',
        "OutputTensors[1]: is overlapping OutputTensors[0]; must be apart from OutputTensors[0]",
        kept='y = np.zeros(6, "f4")\nop.bind(a, [y[:2], y[2:]])',
    ),
    "DML-BIND-IN-PLACE": _bound(
        "op.bind(a, [a[:2], outs[1]])",
        "OutputTensors[0]: is overlapping the input; must be apart from the input",
    ),
    "DML-ARRAY-DATA-TYPE": _bound(
        'op.bind(a.view("i4"), outs)',
        "InputTensor.DataType: is <i4; must be <f4 (FLOAT32)",
    ),
    "DML-ARRAY-SHAPE": _bound(
        "op.bind(a.reshape(2, 3), outs)",
        "InputTensor.Sizes: is [2, 3]; must be [6]",
    ),
    "DML-ARRAY-STRIDES": _bound(
        "op.bind(a[::-1], outs)",
        "InputTensor.Strides: is [-4] bytes; must be [4] bytes",
        kept="op.bind(a[::-1].copy(), outs)",
    ),
}
