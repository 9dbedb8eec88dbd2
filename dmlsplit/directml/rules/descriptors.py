"""The rules of descriptors: of their tensors, of the operator, and of feature levels.

Each sample changes one thing in a split of FLOAT32[1,2,6,2] that breaks no rule at any level.
"""

from functools import partial
from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import API, Rule, Sample
from dmlsplit.directml.tensor import UINT64_MAX, UINT_MAX, TensorDesc

SIZES, AXIS = (1, 2, 6, 2), 2


def tensor(total: int | None = None, alignment: int = 0, **fields: Any) -> TensorDesc:
    """FLOAT32[1,2,6,2] with some fields changed."""
    return TensorDesc(
        **{"data_type": "FLOAT32", "sizes": SIZES, **fields},
        total_tensor_size_in_bytes=total,
        guaranteed_base_offset_alignment=alignment,
    )


def parts(*sizes: int, **fields: Any) -> SplitOperatorDesc:
    """The split of `tensor(**fields)` into parts of the given sizes."""
    return SplitOperatorDesc.from_sizes(tensor(**fields), axis=AXIS, sizes=sizes)


GOOD = parts(2, 1, 3)


def with_input(**fields: Any) -> SplitOperatorDesc:
    """GOOD with some fields of its input changed."""
    return SplitOperatorDesc(tensor(**fields), GOOD.output_tensors, AXIS)


def _reaching(step: int) -> SplitOperatorDesc:
    return with_input(strides=(0, step, 2, 1))


def with_output(**fields: Any) -> SplitOperatorDesc:
    """GOOD with some fields of its first output changed."""
    first, *rest = GOOD.output_tensors
    first = tensor(**{"sizes": first.sizes, **fields})
    return SplitOperatorDesc(GOOD.input_tensor, [first, *rest], AXIS)


def copy_of(axis: int = AXIS, **fields: Any) -> SplitOperatorDesc:
    """The split of `tensor(**fields)` into one output like itself."""
    return SplitOperatorDesc(tensor(**fields), [tensor(**fields)], axis)


_documented = partial(Rule, basis="documented")
_buffer = partial(_documented, source=API + "ns-directml-dml_buffer_tensor_desc")
_data_type = partial(_documented, source=API + "ne-directml-dml_tensor_data_type")
_flags = partial(_documented, source=API + "ne-directml-dml_tensor_flags")
_helpers = partial(
    _documented, source="https://learn.microsoft.com/windows/ai/directml/dml-helper-functions"
)
_silent = partial(Rule, basis="policy", source="dmlsplit; DirectML's documents are silent")

_split = partial(_documented, source=API + "ns-directml-dml_split_operator_desc")
# Begins the hint of a rule that a higher feature level relaxes.
RAISE = "raise the feature level, or "

_HUGE = (1, 1, 4, 1 << 30)  # 2^32 elements
_WIDE = parts(2, 1, 3, data_type="INT64")
_PAIRS = parts(2, 1, 3, data_type="UINT32", sizes=(1, 2, 6, 4))
_FLAT = SplitOperatorDesc.from_sizes(tensor(sizes=(6, 2)), axis=0, sizes=(2, 1, 3))
_EMPTY_LAST = SplitOperatorDesc(tensor(), [tensor(), tensor(sizes=(1, 2, 0, 2), total=4)], AXIS)
_MOST = copy_of(data_type="FLOAT16", sizes=(1, 1, UINT_MAX, 1))

DESCRIPTORS = {
    "DML-UINT-RANGE": _buffer(
        "Descriptor fields are unsigned: TotalTensorSizeInBytes has 64 bits, the others 32.",
        hint="use a value from 0 to the field's maximum",
        at_every_size=True,
        beyond_c="a C field cannot hold such a value",
        broken=(
            Sample("axis -1", copy_of(-1), "axis"),
            Sample("a stride of -2", with_input(strides=(24, 12, -2, 1), total=96), "stride"),
            Sample("an alignment of 2^32", with_input(alignment=1 << 32), "alignment"),
            Sample("a total of 2^64 bytes", with_input(total=1 << 64), "total"),
        ),
    ),
    "DML-TENSOR-DATA-TYPE": _data_type(
        "A tensor has a data type other than DML_TENSOR_DATA_TYPE_UNKNOWN.",
        hint="name the tensor's data type",
        broken=(Sample("no data type", copy_of(data_type="UNKNOWN", total=96)),),
    ),
    "DML-TENSOR-DIMENSION-COUNT": _buffer(
        "A tensor has 1 to 8 dimensions.",
        hint="merge or drop dimensions; a scalar becomes one dimension of size 1",
        cured_by=("descriptor", "model"),
        at_every_size=True,
        broken=(Sample("nine dimensions", copy_of(8, sizes=(1,) * 8 + (4,))),),
        kept=(Sample("eight dimensions", copy_of(7, sizes=(1,) * 7 + (4,))),),
    ),
    "DML-TENSOR-ZERO-SIZE": _buffer(
        "Every dimension has a size of at least 1.",
        hint="leave empty tensors out of the operator",
        # An empty tensor claims 4 bytes, and so breaks no rule about TotalTensorSizeInBytes.
        broken=(
            Sample("an empty output next to one that takes everything", _EMPTY_LAST),
            Sample("an empty input", copy_of(sizes=(1, 2, 6, 0), total=4), "copy"),
        ),
    ),
    "DML-TENSOR-ELEMENT-COUNT": _buffer(
        "A buffer tensor has at most 2^32-1 elements.",
        hint="split the tensor along an outer dimension first",
        cured_by=("descriptor",),
        wording="has {found}; it must have {allowed}",
        at_every_size=True,
        broken=(Sample("2^32 elements", parts(2, 2, data_type="FLOAT16", sizes=_HUGE)),),
        kept=(Sample("2^32-1 elements", _MOST, "elements"),),
    ),
    "DML-TENSOR-STRIDE-COUNT": _buffer(
        "Strides has one entry per dimension, or is absent.",
        hint="give one stride per dimension, or none at all",
        wording="has {found}; it must have {allowed}",
        beyond_c="C passes strides without their count",
        broken=(Sample("three strides instead of four", with_input(strides=(12, 2, 1))),),
    ),
    "DML-TENSOR-SIZE-SMALL": _buffer(
        "TotalTensorSizeInBytes is at least what DMLCalcBufferTensorSize returns.",
        hint="raise TotalTensorSizeInBytes",
        broken=(
            Sample("4 bytes too few", with_input(total=92), "input"),
            Sample("4 bytes too few", with_output(total=28), "output"),
        ),
        kept=(
            Sample("more bytes", with_input(total=256), "total-larger"),
            Sample("a total of nearly 2^64", copy_of(total=UINT64_MAX - 3), "total-huge"),
        ),
    ),
    "DML-TENSOR-SIZE-DWORD": _helpers(
        "TotalTensorSizeInBytes is a multiple of 4.",
        hint="round TotalTensorSizeInBytes up to a multiple of 4",
        broken=(
            Sample("a total of 97 bytes", with_input(total=97), "input"),
            Sample("a total of 33 bytes", with_output(total=33), "output"),
        ),
    ),
    "DML-TENSOR-SIZE-WRAP": _helpers(
        "The index of the last element is at most 2^32-1. DMLCalcBufferTensorSize computes with 32"
        " bits, and would return a smaller size.",
        hint="use smaller strides, or split the tensor along an outer dimension first",
        wording="reaches {found}; it must reach {allowed}",
        cured_by=("descriptor",),
        broken=(Sample("a last element past 2^32; the 32-bit size is 44", _reaching(UINT_MAX)),),
        kept=(Sample("a last element at 2^32-1", _reaching(UINT_MAX - 11), "index"),),
    ),
    "DML-TENSOR-ALIGNMENT": _buffer(
        "GuaranteedBaseOffsetAlignment is 0, or a power of two of at least the element size.",
        hint="use 0, or a power of two such as 16 or 32",
        broken=(
            Sample("48, which is not a power of two", with_input(alignment=48), "input"),
            Sample("2, below the element size", with_output(alignment=2), "output"),
        ),
        kept=(
            Sample("the smallest alignment", copy_of(alignment=4), "alignment-element"),
            Sample("alignment 2^31", copy_of(alignment=1 << 31), "alignment-largest"),
        ),
    ),
    "DML-TENSOR-OWNED-OUTPUT": _flags(
        "DML_TENSOR_FLAG_OWNED_BY_DML is for inputs only.",
        hint="clear the flag on outputs",
        broken=(Sample("an output owned by DirectML", with_output(flags="OWNED_BY_DML")),),
        kept=(
            Sample("an input owned by DirectML", with_input(flags="OWNED_BY_DML"), "owned-input"),
        ),
    ),
    "DML-TENSOR-OUTPUT-OVERLAP": _silent(
        "No two elements of an output share an address.",
        hint="give outputs strides that keep elements apart",
        wording="is {found}; it must provide {allowed}",
        broken=(
            Sample("an output with stride 0", with_output(strides=(0, 0, 2, 1)), "zero"),
            Sample("rows of an output overlap", with_output(strides=(8, 4, 1, 1)), "nested"),
        ),
        kept=(
            Sample(
                "any stride on an output's dimension of 1",
                with_output(strides=(0, 4, 2, 1)),
                "stride-one",
            ),
        ),
    ),
    "DML-SPLIT-OUTPUT-COUNT": _split(
        "A split has at least one output.",
        hint="give at least one output",
        broken=(Sample("no outputs", SplitOperatorDesc(tensor(), [], AXIS)),),
    ),
    "DML-SPLIT-AXIS-RANGE": _split(
        "Axis is below the input's DimensionCount.",
        hint="count the axis from 0 at the outermost dimension",
        broken=(
            Sample("axis 4 of 4 dimensions", copy_of(4)),
            Sample("axis 2^32-1, which is -1 in C", copy_of(UINT_MAX), "minus-one"),
        ),
    ),
    "DML-SPLIT-DATA-TYPE-MATCH": _split(
        "Every output has the data type of the input.",
        hint="give the output the input's data type",
        broken=(Sample("an INT32 output of a FLOAT32 input", with_output(data_type="INT32")),),
    ),
    "DML-SPLIT-DIMENSION-COUNT-MATCH": _split(
        "Every output has as many dimensions as the input.",
        hint="give the output the input's number of dimensions",
        broken=(Sample("an output of 3 dimensions", with_output(sizes=(2, 2, 2))),),
    ),
    "DML-SPLIT-SIZE-MATCH": _split(
        "Outputs have the input's sizes, except along Axis.",
        hint="give the output the input's size",
        broken=(Sample("an output with a different size", with_output(sizes=(1, 3, 2, 2))),),
    ),
    "DML-SPLIT-AXIS-SUM": _split(
        "The outputs' sizes along Axis add up to the input's.",
        hint="change the sizes along the axis so that they add up",
        wording="adds up to {found}; it must add up to {allowed}",
        broken=(
            Sample("parts that add up to 5 instead of 6", parts(2, 1, 2), "less"),
            Sample("parts that add up to 7 instead of 6", parts(2, 2, 3), "more"),
        ),
    ),
    "DML-LEVEL-DATA-TYPE": _split(
        "The feature level supports the tensor's data type for Split.",
        hint=RAISE + "carry the bits in a supported type of another width",
        cured_by=("descriptor", "model", "level"),
        at_every_size=True,
        broken=(Sample("64-bit elements at a level without them", _WIDE, level="4_0"),),
        kept=(Sample("the same bytes", _PAIRS, level="4_0"),),
    ),
    "DML-LEVEL-DIMENSION-COUNT": _split(
        "The feature level supports the tensor's dimension count for Split.",
        hint=RAISE + "pad with size-1 dimensions, or merge dimensions",
        cured_by=("descriptor", "model", "level"),
        at_every_size=True,
        broken=(Sample("two dimensions at a level that requires four", _FLAT, level="2_0"),),
        kept=(Sample("four dimensions", GOOD, level="2_0"),),
    ),
}
