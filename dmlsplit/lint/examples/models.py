"""Examples of the rules of nodes, and of ONNX Runtime's provider: models of one node."""

from __future__ import annotations

from dmlsplit.lint.examples.example import Example

_WIDEST = 76


def _model(
    node: str,
    given: str = "float[6] x",
    returned: str = "float[2] a, float[4] b",
    opset: int = 18,
    arguments: str = "",
) -> str:
    """Return a model in ONNX's text form, after the command that validates it."""
    body = "\n".join(f"  {line}" for line in node.splitlines())
    head = f"net ({given}) => ({returned}) {{"
    if len(head) > _WIDEST:
        head = head.replace(" => ", "\n    => ")
    return (
        f"# dmlsplit validate model.onnx{arguments and ' '}{arguments}\n"
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n{head}\n{body}\n}}'
    )


_CUT = "sizes = Constant <value = int64[2] {2, 4}> ()\na, b = Split <axis = 0> (x, sizes)"
_COUNTED = "a, b = Split <axis = 0, num_outputs = 2> (x)"
_UNSIZED = "a, b = Split <axis = 0> (x)"
_ENDS = """\
starts = Constant <value = int64[1] {{{start}}}> ()
ends = Constant <value = int64[1] {{{end}}}> ()
axes = Constant <value = int64[1] {{0}}> ()
y = Slice (x, starts, ends, axes)"""
_HALVES = "float[3] a, float[3] b"
_ORT = "--via ort"

MODELS = {
    "SPLIT-NODE-INVALID": Example(
        "onnx",
        _model(_UNSIZED, "float[5] x", "float a, float b", opset=13),
        _model(_UNSIZED, "float[6] x", _HALVES, opset=13),
        "Split-13: the axis, of size 5, has no sizes and 2 outputs; 2 must divide it. Fix: give the"
        " size of each piece",
    ),
    "SPLIT-NODE-TEXT": Example(
        "onnx",
        _model(_CUT, "string[6] x", "string[2] a, string[4] b"),
        _model(_CUT, "int64[6] x", "int64[2] a, int64[4] b"),
        "InputTensor.DataType is STRING; DirectML has no strings",
    ),
    "SPLIT-NODE-UNKNOWN": Example(
        "onnx",
        _model(_CUT, "float[n] x"),
        _model(_CUT, "float[n] x", arguments="--dim n=6"),
        "the axis, dimension 0 is dynamic (n)",
    ),
    "SPLIT-NODE-SURPRISE": Example(
        "onnx",
        _model(_UNSIZED, returned=_HALVES),
        _model(_COUNTED, returned=_HALVES),
        "Split-18 has neither sizes nor num_outputs, which ONNX forbids; 2 equal pieces are"
        " assumed, one per output. Fix: set num_outputs",
    ),
    "SPLIT-DEFECT-MEET": Example(
        "onnx",
        _model(f"{_COUNTED}\ns = Sigmoid (b)\ny = Mul (a, s)", returned="float[3] y"),
        _model(f"{_COUNTED}\ns = Sigmoid (b)", returned="float[3] a, float[3] s"),
        "its pieces meet again in Mul[2] of net. In fused graphs, as of GLU, DirectML is known to"
        " use one in place of the other (onnxruntime issues 32146, 24311, 21007)",
    ),
    "SPLIT-IMPLIED": Example(
        "onnx",
        _model(_ENDS.format(start=2, end=6), returned="float[4] y", arguments=_ORT),
        _model(_ENDS.format(start=0, end=4), returned="float[4] y", arguments=_ORT),
        "ONNX Runtime makes a DirectML Split of this Slice (onnxruntime pull request 18289)",
    ),
    "ORT-FEATURE-LEVEL": Example(
        "onnx",
        _model(_CUT, arguments="--via ort --windows 22000"),
        _model(_CUT, arguments="--via ort --windows 22621"),
        "FeatureLevel is 4_0; must be at least 5_0",
    ),
    "ORT-NUM-OUTPUTS": Example(
        "onnx",
        _model(_UNSIZED, returned=_HALVES, arguments=_ORT),
        _model(_COUNTED, returned=_HALVES, arguments=_ORT),
        "num_outputs is absent; must be given, as split is absent",
    ),
    "ORT-VERSION": Example(
        "onnx",
        _model(_COUNTED, returned=_HALVES, arguments="--via ort --ort-version 1.15"),
        _model(_COUNTED, returned=_HALVES, arguments="--via ort --ort-version 1.16"),
        "version of ONNX Runtime is 1.15; must be at least 1.16",
    ),
    "ORT-OPERATOR": Example(
        "onnx",
        _model("a, b = Split <axis = 0, split = [2, 4]> (x)", opset=1, arguments=_ORT),
        _model(_CUT, opset=13, arguments=_ORT),
        "OperatorType is Split-1; must be one of Split-2, Split-11, Split-13, Split-18",
    ),
    "ORT-SEQUENCE": Example(
        "onnx",
        _model(
            "size = Constant <value = int64 {3}> ()\ny = SplitToSequence <axis = 0> (x, size)",
            returned="seq(float[3]) y",
            arguments=_ORT,
        ),
        _model(
            f"{_COUNTED}\ny = SequenceConstruct (a, b)",
            returned="seq(float[3]) y",
            arguments=_ORT,
        ),
        "OperatorType is SplitToSequence-11; must be one of Split-2, Split-11, Split-13, Split-18",
    ),
    "ORT-DATA-TYPE": Example(
        "onnx",
        _model(_CUT, "bfloat16[6] x", "bfloat16[2] a, bfloat16[4] b", arguments=_ORT),
        _model(_CUT, "float16[6] x", "float16[2] a, float16[4] b", arguments=_ORT),
        "InputTensor.DataType is BFLOAT16; must be one of BOOL, DOUBLE, FLOAT, FLOAT16, INT16,"
        " INT32, INT64, INT8, UINT16, UINT32, UINT64, UINT8",
    ),
    "ORT-DIMENSION-COUNT": Example(
        "onnx",
        _model(
            _CUT,
            "float[6,1,1,1,1,1,1,1,2] x",
            "float[2,1,1,1,1,1,1,1,2] a, float[4,1,1,1,1,1,1,1,2] b",
            arguments=_ORT,
        ),
        _model(
            _CUT,
            "float[6,1,1,1,1,1,1,2] x",
            "float[2,1,1,1,1,1,1,2] a, float[4,1,1,1,1,1,1,2] b",
            arguments=_ORT,
        ),
        "InputTensor.DimensionCount is 9; must be at most 8",
    ),
    "ORT-EMPTY-PIECE": Example(
        "onnx",
        _model(
            "sizes = Constant <value = int64[3] {2, 0, 4}> ()\n"
            "a, none, b = Split <axis = 0> (x, sizes)",
            returned="float[2] a, float[0] none, float[4] b",
            arguments=_ORT,
        ),
        _model(_CUT, arguments=_ORT),
        "OutputTensors[1].Sizes is 0; must be above 0",
    ),
}
