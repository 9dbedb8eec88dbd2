"""The rules of bindings. Their examples bind a split of FLOAT32[6] into pieces of 2 and 4."""

from functools import partial

from dmlsplit.directml.rules.rule import API, DEVICE_REMOVED, Example, Rule

_PROGRAM = """\
import numpy as np
import dmlsplit as dml

x = dml.TensorDesc("FLOAT32", (6,){tensor})
desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4))
op = dml.Device("cpu").compile(desc)
a, outs = np.zeros(6, "f4"), [np.zeros(2, "f4"), np.zeros(4, "f4")]
{bind}"""


def _bound(broken: str, message: str, kept: str = "op.bind(a, outs)", tensor: str = "") -> Example:
    """Programs that differ in what they bind."""

    def program(bind: str) -> str:
        return _PROGRAM.format(bind=bind, tensor=tensor)

    return Example("python", program(broken), program(kept), message)


def _buffer(broken: str, kept: str, message: str, tensor: str = "") -> Example:
    """Programs that differ in how they bind one buffer as the input."""
    bind = 'buffer = np.zeros(64, "u1")\nop.bind(dml.BufferBinding(buffer, {}), outs)'
    return _bound(bind.format(broken), message, bind.format(kept), tensor)


_documented = partial(Rule, basis="documented", hresult=DEVICE_REMOVED)
_outputs = partial(_documented, source=API + "nf-directml-idmlbindingtable-bindoutputs")
_binding = partial(_documented, source=API + "ns-directml-dml_buffer_binding")
_tensor = partial(_documented, source=API + "ns-directml-dml_buffer_tensor_desc")
_array = partial(
    Rule,
    basis="policy",
    source="dmlsplit; DirectML buffers are untyped",
    beyond_c="DirectML has no arrays",
)

BINDINGS = {
    "DML-BIND-COUNT": _outputs(
        "One buffer is bound for each tensor of the operator.",
        hint="bind exactly one buffer per tensor",
        example=_bound("op.bind(a, outs[:1])", "Outputs.BindingCount is 1; it must be 2"),
    ),
    "DML-BIND-KIND": Rule(
        "A binding is an array on the operator's device, or a BufferBinding of a contiguous one.",
        basis="documented",
        source=API + "nf-directml-idmlbindingtable-bindinputs",
        hint="pass a contiguous array on the operator's device",
        beyond_c="a C binding is always a whole D3D12 buffer",
        example=_bound(
            'buffer = np.zeros(64, "u1")[::2]\nop.bind(dml.BufferBinding(buffer), outs)',
            "InputTensor.Buffer is a strided array; it must be a contiguous array",
            kept='buffer = np.zeros(32, "u1")\nop.bind(dml.BufferBinding(buffer), outs)',
        ),
    ),
    "DML-BIND-OFFSET-ALIGNMENT": _binding(
        "Offset is a multiple of DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT (16).",
        hint="move the tensor to an offset that is a multiple of 16",
        example=_buffer(
            "offset=8", "offset=16", "InputTensor.Offset is 8; it must be a multiple of 16"
        ),
    ),
    "DML-BIND-GUARANTEED-ALIGNMENT": _tensor(
        "Offset is a multiple of the tensor's GuaranteedBaseOffsetAlignment.",
        hint="move the tensor, or lower GuaranteedBaseOffsetAlignment",
        example=_buffer(
            "offset=16",
            "offset=32",
            "InputTensor.Offset is 16; it must be a multiple of 32",
            tensor=", guaranteed_base_offset_alignment=32",
        ),
    ),
    "DML-BIND-RANGE": _binding(
        "The bound range is inside the buffer.",
        hint="use a larger buffer, a lower offset or a smaller range",
        wording="selects {found}; the range must be {allowed}",
        example=_buffer(
            "offset=32, size_in_bytes=48",
            "offset=16, size_in_bytes=48",
            "InputTensor.SizeInBytes selects bytes 32 to 80; the range must be inside the buffer's"
            " 64 bytes",
        ),
    ),
    "DML-BIND-SIZE": _tensor(
        "SizeInBytes is at least the tensor's TotalTensorSizeInBytes.",
        hint="bind a larger range",
        example=_buffer(
            "size_in_bytes=20",
            "size_in_bytes=24",
            "InputTensor.SizeInBytes is 20; it must be at least 24",
        ),
    ),
    "DML-BIND-READ-ONLY": Rule(
        "An output is writable.",
        basis="policy",
        source="dmlsplit; a D3D12 buffer needs unordered access",
        hint="pass a writable array",
        example=_bound(
            "outs[0].flags.writeable = False\nop.bind(a, outs)",
            "OutputTensors[0] is read-only; it must be writable",
        ),
    ),
    "DML-BIND-OUTPUT-OVERLAP": _outputs(
        "The writeable areas of two outputs do not overlap.",
        hint="give every output memory of its own",
        wording="overlaps {found}; outputs must not overlap",
        example=_bound(
            'y = np.zeros(6, "f4")\nop.bind(a, [y[:2], y[:4]])',
            "OutputTensors[1] overlaps OutputTensors[0]; outputs must not overlap",
            kept='y = np.zeros(6, "f4")\nop.bind(a, [y[:2], y[2:]])',
        ),
    ),
    "DML-BIND-IN-PLACE": _outputs(
        "No output overlaps the input, because Split cannot run in place.",
        hint="give the output memory of its own",
        wording="overlaps {found}; Split cannot run in place",
        example=_bound(
            "op.bind(a, [a[:2], outs[1]])",
            "OutputTensors[0] overlaps the input; Split cannot run in place",
        ),
    ),
    "DML-ARRAY-DATA-TYPE": _array(
        "A bound array has the tensor's data type, in native byte order.",
        hint="convert the array, or view the same bytes as the tensor's type",
        example=_bound(
            'op.bind(a.view("i4"), outs)',
            "InputTensor.DataType is int32; it must be float32 (FLOAT32)",
        ),
    ),
    "DML-ARRAY-SHAPE": _array(
        "A bound array has the tensor's sizes.",
        hint="reshape the array, or bind it as a BufferBinding",
        example=_bound(
            "op.bind(a.reshape(2, 3), outs)", "InputTensor.Sizes is [2, 3]; it must be [6]"
        ),
    ),
    "DML-ARRAY-STRIDES": _array(
        "A bound array has the tensor's strides.",
        hint="copy the array to the tensor's layout, or describe the array's strides",
        example=_bound(
            "op.bind(a[::-1], outs)",
            "InputTensor.Strides is [-4] bytes; it must be [4] bytes",
            kept="op.bind(a[::-1].copy(), outs)",
        ),
    ),
}
