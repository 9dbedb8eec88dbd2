"""Examples of the rules of descriptors: tensors, the operator, and feature levels."""

from __future__ import annotations

from dmlsplit.lint.examples.example import Example


def _validated(broken: str, kept: str, said: str, given: str = "", level: str = "") -> Example:
    """Return an example whose programs validate `desc`, at a feature level if it matters."""
    at = f', feature_level="{level}"' if level else ""

    def program(lines: str) -> str:
        shared = f"{given}\n" if given else ""
        return f"import dmlsplit as dml\n\n{shared}{lines}\nprint(dml.validate(desc{at}))"

    return Example("python", program(broken), program(kept), said)


def _tensors(broken: str, kept: str, said: str, rest: str, level: str = "") -> Example:
    """Return an example whose programs differ in one tensor, which the rest of them uses."""
    return _validated(f"{broken}\n{rest}", f"{kept}\n{rest}", said, level=level)


_X = 'x = dml.TensorDesc("FLOAT32", (6, 2))'
_CUT = "desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4))"
_HALVES = "desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1, 1))"
_COPY = f"{_X}\ndesc = dml.SplitOperatorDesc(x, [y], axis=0)"

DESCRIPTORS = {
    "DML-UINT-RANGE": _validated(
        "desc = dml.SplitOperatorDesc.from_sizes(x, axis=-2, sizes=(2, 4))",
        _CUT,
        "Axis: is -2; must be 0 to 4294967295",
        given=_X,
    ),
    "DML-TENSOR-DATA-TYPE": _tensors(
        'x = dml.TensorDesc("UNKNOWN", (6, 2))',
        _X,
        "InputTensor.DataType: is UNKNOWN; must be a known type",
        rest=_CUT,
    ),
    "DML-TENSOR-DIMENSION-COUNT": _tensors(
        'x = dml.TensorDesc("FLOAT32", (6, 2, 1, 1, 1, 1, 1, 1, 1))',
        'x = dml.TensorDesc("FLOAT32", (6, 2, 1, 1, 1, 1, 1, 1))',
        "InputTensor.DimensionCount: is 9; must be 1 to 8",
        rest=_CUT,
    ),
    "DML-TENSOR-ZERO-SIZE": _validated(
        "desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 0, 4))",
        _CUT,
        "OutputTensors[1].Sizes[0]: is 0; must be at least 1",
        given=_X,
    ),
    "DML-TENSOR-ELEMENT-COUNT": _tensors(
        'x = dml.TensorDesc("UINT8", (2, 2**31))',
        'x = dml.TensorDesc("UINT8", (2, 2**30))',
        "InputTensor.Sizes: is 4294967296 elements; must be at most 4294967295",
        rest=_HALVES,
    ),
    "DML-TENSOR-STRIDE-COUNT": _tensors(
        'x = dml.TensorDesc("FLOAT32", (6, 2), strides=(1,))',
        'x = dml.TensorDesc("FLOAT32", (6, 2), strides=(1, 6))',
        "InputTensor.Strides: is 1 entries; must be 2 entries, one per dimension",
        rest=_CUT,
    ),
    "DML-TENSOR-SIZE-SMALL": _tensors(
        'x = dml.TensorDesc("FLOAT32", (6, 2), total_tensor_size_in_bytes=44)',
        'x = dml.TensorDesc("FLOAT32", (6, 2), total_tensor_size_in_bytes=48)',
        "InputTensor.TotalTensorSizeInBytes: is 44; must be at least 48",
        rest=_CUT,
    ),
    "DML-TENSOR-SIZE-DWORD": _tensors(
        'x = dml.TensorDesc("UINT8", (6, 2), total_tensor_size_in_bytes=14)',
        'x = dml.TensorDesc("UINT8", (6, 2), total_tensor_size_in_bytes=16)',
        "InputTensor.TotalTensorSizeInBytes: is 14; must be a multiple of 4",
        rest=_CUT,
    ),
    "DML-TENSOR-SIZE-WRAP": _tensors(
        'x = dml.TensorDesc("FLOAT32", (2, 4), strides=(2**32 - 1, 1))',
        'x = dml.TensorDesc("FLOAT32", (2, 4), strides=(2**20, 1))',
        "InputTensor.Strides: is reaching element 4294967298 (DMLCalcBufferTensorSize wraps to 12"
        " bytes); must be at most element 4294967295",
        rest=_HALVES,
    ),
    "DML-TENSOR-ALIGNMENT": _tensors(
        'x = dml.TensorDesc("FLOAT32", (6, 2), guaranteed_base_offset_alignment=24)',
        'x = dml.TensorDesc("FLOAT32", (6, 2), guaranteed_base_offset_alignment=32)',
        "InputTensor.GuaranteedBaseOffsetAlignment: is 24; must be 0, or a power of two of at"
        " least 4",
        rest=_CUT,
    ),
    "DML-TENSOR-OWNED-OUTPUT": _validated(
        "desc = dml.SplitOperatorDesc(x, [owned], axis=0)",
        "desc = dml.SplitOperatorDesc(owned, [x], axis=0)",
        "OutputTensors[0].Flags: is OWNED_BY_DML; must be NONE",
        given=f'{_X}\nowned = dml.TensorDesc("FLOAT32", (6, 2), flags="OWNED_BY_DML")',
    ),
    "DML-TENSOR-OUTPUT-OVERLAP": _tensors(
        'y = dml.TensorDesc("FLOAT32", (6, 2), strides=(1, 1))',
        'y = dml.TensorDesc("FLOAT32", (6, 2), strides=(1, 6))',
        "OutputTensors[0].Strides: is [1, 1]; must be strides that keep the elements of sizes"
        " [6, 2] apart",
        rest=_COPY,
    ),
    "DML-SPLIT-OUTPUT-COUNT": _validated(
        "desc = dml.SplitOperatorDesc(x, [], axis=0)",
        "desc = dml.SplitOperatorDesc(x, [x], axis=0)",
        "OutputCount: is 0; must be greater than 0",
        given=_X,
    ),
    "DML-SPLIT-AXIS-RANGE": _validated(
        "desc = dml.SplitOperatorDesc(x, [x], axis=2)",
        "desc = dml.SplitOperatorDesc(x, [x], axis=1)",
        "Axis: is 2; must be below the input's DimensionCount, 2",
        given=_X,
    ),
    "DML-SPLIT-DATA-TYPE-MATCH": _tensors(
        'y = dml.TensorDesc("INT32", (6, 2))',
        'y = dml.TensorDesc("FLOAT32", (6, 2))',
        "OutputTensors[0].DataType: is INT32; must be FLOAT32, as in InputTensor",
        rest=_COPY,
    ),
    "DML-SPLIT-DIMENSION-COUNT-MATCH": _tensors(
        'y = dml.TensorDesc("FLOAT32", (1, 6, 2))',
        'y = dml.TensorDesc("FLOAT32", (6, 2))',
        "OutputTensors[0].DimensionCount: is 3; must be 2, as in InputTensor",
        rest=_COPY,
    ),
    "DML-SPLIT-SIZE-MATCH": _tensors(
        'y = dml.TensorDesc("FLOAT32", (6, 3))',
        'y = dml.TensorDesc("FLOAT32", (6, 2))',
        "OutputTensors[0].Sizes[1]: is 3; must be 2, as in InputTensor",
        rest=_COPY,
    ),
    "DML-SPLIT-AXIS-SUM": _validated(
        "desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 5))",
        _CUT,
        "OutputTensors.Sizes[0]: is 7 in sum; must be 6, the input's Sizes[0]",
        given=_X,
    ),
    "DML-LEVEL-DATA-TYPE": _tensors(
        'x = dml.TensorDesc("INT64", (6, 2))',
        'x = dml.TensorDesc("UINT32", (6, 4))  # the same bytes',
        "InputTensor.DataType: is INT64; must be one of FLOAT32, FLOAT16, UINT32, UINT16, UINT8,"
        " INT32, INT16, INT8 at 4_0",
        rest=_CUT,
        level="4_0",
    ),
    "DML-LEVEL-DIMENSION-COUNT": _validated(
        f"{_X}\n{_CUT}",
        'x = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))\n'
        "desc = dml.SplitOperatorDesc.from_sizes(x, axis=2, sizes=(2, 4))",
        "InputTensor.DimensionCount: is 2; must be 4 at 2_0",
        level="2_0",
    ),
}
