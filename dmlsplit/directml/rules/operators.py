"""The rules of the operator: its axis, what its tensors share, what a feature level supports."""

from functools import partial

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import API, Rule, Sample, by_id
from dmlsplit.directml.rules.samples import AXIS, GOOD, copy_of, parts, tensor, with_output
from dmlsplit.directml.tensor import UINT_MAX

_split = partial(Rule, basis="documented", source=API + "ns-directml-dml_split_operator_desc")
# Begins the hint of a rule that a higher feature level relaxes.
RAISE = "raise the feature level, or "

OPERATORS = by_id(
    {
        "DML-SPLIT-OUTPUT-COUNT": _split(
            "OutputCount is greater than 0.",
            hint="give at least one output",
            broken=(Sample("", "no outputs", SplitOperatorDesc(tensor(), [], AXIS)),),
        ),
        "DML-SPLIT-AXIS-RANGE": _split(
            "Axis is below the input's DimensionCount.",
            hint="count the axis from 0 at the outermost dimension",
            broken=(
                Sample("", "axis 4 of 4 dimensions", copy_of(4)),
                Sample("minus-one", "axis 2^32-1, which is -1 in C", copy_of(UINT_MAX)),
            ),
        ),
        "DML-SPLIT-DATA-TYPE-MATCH": _split(
            "Every output has the data type of the input.",
            hint="give the output the input's data type",
            broken=(Sample("", "an INT32 output of FLOAT32", with_output(data_type="INT32")),),
        ),
        "DML-SPLIT-DIMENSION-COUNT-MATCH": _split(
            "Every output has as many dimensions as the input.",
            hint="give the output the input's number of dimensions",
            broken=(Sample("", "an output of 3 dimensions", with_output(sizes=(2, 2, 2))),),
        ),
        "DML-SPLIT-SIZE-MATCH": _split(
            "Outputs have the input's sizes, except along Axis.",
            hint="give the output the input's size",
            broken=(Sample("", "an output with another size", with_output(sizes=(1, 3, 2, 2))),),
        ),
        "DML-SPLIT-AXIS-SUM": _split(
            "The outputs' sizes along Axis add up to the input's.",
            hint="change the sizes along the axis so that they add up",
            broken=(
                Sample("less", "parts of 5 in sum, of 6", parts(2, 1, 2)),
                Sample("more", "parts of 7 in sum, of 6", parts(2, 2, 3)),
            ),
        ),
        "DML-LEVEL-DATA-TYPE": _split(
            "The feature level supports the tensor's data type for Split.",
            hint=RAISE + "carry the bits in a supported type of another width",
            cured_by=("descriptor", "model"),
            at_every_size=True,
            broken=(
                Sample(
                    "",
                    "64-bit elements at a level without them",
                    parts(2, 1, 3, data_type="INT64"),
                    level="4_0",
                ),
            ),
            kept=(
                Sample(
                    "",
                    "the same bytes",
                    parts(2, 1, 3, data_type="UINT32", sizes=(1, 2, 6, 4)),
                    level="4_0",
                ),
            ),
        ),
        "DML-LEVEL-DIMENSION-COUNT": _split(
            "The feature level supports the tensor's dimension count for Split.",
            hint=RAISE + "pad with size-1 dimensions, or merge dimensions",
            cured_by=("descriptor", "model"),
            at_every_size=True,
            broken=(
                Sample(
                    "",
                    "two dimensions at a level that takes four",
                    SplitOperatorDesc.from_sizes(tensor(sizes=(6, 2)), axis=0, sizes=(2, 1, 3)),
                    level="2_0",
                ),
            ),
            kept=(Sample("", "four dimensions", GOOD, level="2_0"),),
        ),
    }
)
