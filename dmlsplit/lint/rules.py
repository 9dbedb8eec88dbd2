"""Every rule that a verdict can name: of descriptors, nodes and ONNX Runtime's provider."""

from functools import partial

from dmlsplit.directml import rules
from dmlsplit.directml.rules.rule import DEVICE_REMOVED, Example, Rule, by_id
from dmlsplit.directml.rules.violation import Violation

_SOURCES = "https://github.com/microsoft/onnxruntime/"
_models = partial(Example, "onnx")
_no_hresult = partial(Rule, hresult=None)  # no call of DirectML fails
_MAY_BE_WRONG = "There is no error; results may be wrong."
_RUNS_ON_CPU = "ONNX Runtime runs the node on the CPU, without an error."
_KERNELS = _SOURCES + "blob/main/docs/OperatorKernels.md"
_kernels = partial(_no_hresult, basis="documented", source=_KERNELS, consequence=_RUNS_ON_CPU)
_PROVIDER = _SOURCES + "blob/main/onnxruntime/core/providers/dml/"
_WIDEST = 76
# The name of each HRESULT, and how a call fails with it.
HRESULTS = {
    0x80070057: (
        "E_INVALIDARG",
        'Creating the operator fails with {}, "The parameter is incorrect".',
    ),
    0x887A0004: ("DXGI_ERROR_UNSUPPORTED", "Creating the device fails with {}."),
    DEVICE_REMOVED: (
        "DXGI_ERROR_DEVICE_REMOVED",
        "DirectML removes the device: the next call fails with {}. dmlsplit raises"
        " InvalidArgumentError before that.",
    ),
}


def _model(
    node: str,
    inputs: str = "float[6] x",
    outputs: str = "float[2] a, float[4] b",
    opset: int = 18,
    arguments: str = "",
) -> str:
    """The command that validates a model, then the model in ONNX's text form."""
    body = "\n".join(f"  {line}" for line in node.splitlines())
    head = f"net ({inputs}) => ({outputs}) {{"
    if len(head) > _WIDEST:
        head = head.replace(" => ", "\n    => ")
    return (
        f"# dmlsplit validate model.onnx{arguments and ' '}{arguments}\n"
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n{head}\n{body}\n}}'
    )


def _of_rank(rank: int) -> tuple[str, str]:
    """The input and the outputs of `_CUT` for `_model`."""
    ones = ",1" * (rank - 2)
    return f"float[6{ones},2] x", f"float[2{ones},2] a, float[4{ones},2] b"


_CUT = "sizes = Constant <value = int64[2] {2, 4}> ()\na, b = Split <axis = 0> (x, sizes)"
_COUNTED = "a, b = Split <axis = 0, num_outputs = 2> (x)"
_UNSIZED = "a, b = Split <axis = 0> (x)"
_ENDS = """\
starts = Constant <value = int64[1] {{{start}}}> ()
ends = Constant <value = int64[1] {{{end}}}> ()
axes = Constant <value = int64[1] {{0}}> ()
y = Slice (x, starts, ends, axes)"""
_HALVES = "float[3] a, float[3] b"
_ort = partial(_model, arguments="--via ort")

RULES = rules.RULES | by_id(
    {
        "SPLIT-NODE-INVALID": _no_hresult(
            "A node obeys the rules of its own operator.",
            basis="documented",
            source="https://onnx.ai/onnx/operators/onnx__Split.html",
            consequence="A runtime does not load the model, or fails when it runs the node.",
            hint="correct the node; do not rely on any runtime to accept it",
            example=_models(
                _model(_UNSIZED, "float[5] x", "float a, float b", opset=13),
                _model(_UNSIZED, "float[6] x", _HALVES, opset=13),
                "the axis has size 5; without sizes, the number of outputs, 2, must divide it. Fix:"
                " give the size of each piece",
            ),
        ),
        "SPLIT-NODE-TEXT": _no_hresult(
            "The type of the tensor is not STRING: DirectML has no strings.",
            basis="documented",
            source=rules.RULES["DML-TENSOR-DATA-TYPE"].source,
            consequence=_RUNS_ON_CPU,
            hint="keep the node on the CPU",
            example=_models(
                _model(_CUT, "string[6] x", "string[2] a, string[4] b"),
                _model(_CUT, "int64[6] x", "int64[2] a, int64[4] b"),
                "InputTensor.DataType is STRING; DirectML has no strings",
            ),
        ),
        "SPLIT-NODE-UNKNOWN": _no_hresult(
            "The sizes of a split are known before the model runs.",
            basis="policy",
            source="dmlsplit; DirectML compiles an operator for fixed sizes",
            consequence="Whether DirectML refuses the split depends on its sizes.",
            hint="fix the dynamic dimensions, then validate again",
            severity="note",
            example=_models(
                _model(_CUT, "float[n] x"),
                _model(_CUT, "float[n] x", arguments="--dim n=6"),
                "dimension 0, the axis, is dynamic (n)",
            ),
        ),
        "SPLIT-NODE-SURPRISE": _no_hresult(
            "ONNX Runtime, OpenVINO and the ONNX specification agree about what the node computes.",
            basis="policy",
            source="dmlsplit; runtimes disagree about some legal nodes",
            consequence="One runtime refuses the node or gives other pieces than another one.",
            hint="write the node so that every runtime reads it the same way",
            severity="warning",
            example=_models(
                _model(_UNSIZED, outputs=_HALVES),
                _model(_COUNTED, outputs=_HALVES),
                "Split-18 has neither sizes nor num_outputs, which ONNX forbids; assuming 2 equal"
                " pieces, one per output. Fix: set num_outputs",
            ),
        ),
        "SPLIT-DEFECT-RECOMBINED": _no_hresult(
            "No element-wise operator combines pieces of one split again, as in GLU (Split,"
            " Sigmoid, Mul). In graphs that it fuses, DirectML is known to use one piece in place"
            " of the other.",
            basis="reported",
            source=_SOURCES + "issues/32146",
            consequence=_MAY_BE_WRONG,
            hint="compare the results with the CPU's, or disable graph fusion in ONNX Runtime"
            " (session option ep.dml.disable_graph_fusion=1, which the reporter of 21007"
            " verified). A Slice that begins after the start of the axis does not help: it becomes"
            " a DirectML Split too (onnxruntime pull request 18289)",
            wording="in fused graphs, such as GLU, DirectML is known to use one piece instead of"
            " the other (onnxruntime issues 32146, 24311, 21007)",
            severity="defect",
            example=_models(
                _model(f"{_COUNTED}\ns = Sigmoid (b)\ny = Mul (a, s)", outputs="float[3] y"),
                _model(f"{_COUNTED}\ns = Sigmoid (b)", outputs="float[3] a, float[3] s"),
                "its pieces are combined again by Mul[2] of net; in fused graphs, such as GLU,"
                " DirectML is known to use one piece instead of the other (onnxruntime issues"
                " 32146, 24311, 21007)",
            ),
        ),
        "SPLIT-DEFECT-UNCONNECTED": _no_hresult(
            "Every output of a split is used by a node or is an output of the model. Versions of"
            " DirectML before 1.9.1 have a bug with unconnected split nodes in the graphs that ONNX"
            " Runtime fuses; the release notes do not say which results are wrong.",
            basis="documented",
            source="https://github.com/microsoft/DirectML/blob/master/Releases.md#directml-191",
            consequence=_MAY_BE_WRONG,
            hint="ship DirectML 1.9.1 or later, or make every piece an output of the model",
            wording="DirectML before 1.9.1 has a bug with unused outputs in fused graphs",
            severity="defect",
            example=_models(
                _model(_CUT, outputs="float[2] a", arguments="--via ort --directml 1.8.0"),
                _model(_CUT, outputs="float[2] a", arguments="--via ort --directml 1.9.1"),
                "output 1 is unused; DirectML before 1.9.1 has a bug with unused outputs in fused"
                " graphs",
            ),
        ),
        "SPLIT-IMPLIED": _no_hresult(
            "A Slice that ONNX Runtime turns into a DirectML Split is reported as a note.",
            basis="source",
            source=_SOURCES + "pull/18289",
            consequence="Nothing fails; the node runs as a DirectML Split.",
            hint="none is needed",
            severity="note",
            example=_models(
                _ort(_ENDS.format(start=2, end=6), outputs="float[4] y"),
                _ort(_ENDS.format(start=0, end=4), outputs="float[4] y"),
                "ONNX Runtime turns this Slice into a DirectML Split (onnxruntime pull request"
                " 18289)",
            ),
        ),
        "ORT-FEATURE-LEVEL": Rule(
            "ONNX Runtime's DirectML provider creates its device with feature level 5_0 or above.",
            basis="source",
            source=_PROVIDER + "dml_provider_factory.cc",
            hint="ship DirectML.dll 1.8.0 or later beside the application",
            cured_by=("level",),
            hresult=0x887A0004,
            example=_models(
                _model(_CUT, arguments="--via ort --windows 22000"),
                _model(_CUT, arguments="--via ort --windows 22621"),
                "FeatureLevel is 4_0; it must be at least 5_0",
            ),
        ),
        "ORT-NUM-OUTPUTS": _no_hresult(
            "A Split-18 has split or num_outputs, at least if the size of its axis is known.",
            basis="source",
            source=_SOURCES + "blob/main/onnxruntime/core/providers/cpu/tensor/split.h",
            consequence="ONNX Runtime 1.32 does not load the model.",
            hint="set num_outputs",
            cured_by=("model",),
            example=_models(
                _ort(_UNSIZED, outputs=_HALVES),
                _ort(_COUNTED, outputs=_HALVES),
                "num_outputs is absent; it must be set if split is absent",
            ),
        ),
        "ORT-VERSION": _no_hresult(
            "A Split-18 with num_outputs needs ONNX Runtime 1.16 or later.",
            basis="reported",
            source=_SOURCES + "issues/14523",
            consequence=_RUNS_ON_CPU,
            hint="ship ONNX Runtime 1.16 or later, or give the sizes as split",
            cured_by=("model",),
            example=_models(
                _model(_COUNTED, outputs=_HALVES, arguments="--via ort --ort-version 1.15"),
                _model(_COUNTED, outputs=_HALVES, arguments="--via ort --ort-version 1.16"),
                "ONNX Runtime version is 1.15; it must be at least 1.16",
            ),
        ),
        "ORT-OPERATOR": _kernels(
            "The DirectML provider has a kernel for this version of the operator.",
            hint="export the model at opset 13 or later",
            example=_models(
                _ort("a, b = Split <axis = 0, split = [2, 4]> (x)", opset=1),
                _ort(_CUT, opset=13),
                "OperatorType is Split-1; it must be one of Split-2, Split-11, Split-13, Split-18",
            ),
        ),
        "ORT-SEQUENCE": _kernels(
            "The DirectML provider has no SplitToSequence.",
            hint="use Split and SequenceConstruct",
            cured_by=("model",),
            example=_models(
                _ort(
                    "size = Constant <value = int64 {3}> ()\n"
                    "y = SplitToSequence <axis = 0> (x, size)",
                    outputs="seq(float[3]) y",
                ),
                _ort(f"{_COUNTED}\ny = SequenceConstruct (a, b)", outputs="seq(float[3]) y"),
                "OperatorType is SplitToSequence-11; it must be one of Split-2, Split-11, Split-13,"
                " Split-18",
            ),
        ),
        "ORT-DATA-TYPE": _kernels(
            "The DirectML provider's Split supports the element type.",
            hint="cast the tensor to a listed type around the split",
            example=_models(
                _ort(_CUT, "bfloat16[6] x", "bfloat16[2] a, bfloat16[4] b"),
                _ort(_CUT, "float16[6] x", "float16[2] a, float16[4] b"),
                "InputTensor.DataType is BFLOAT16; it must be one of BOOL, DOUBLE, FLOAT, FLOAT16,"
                " INT16, INT32, INT64, INT8, UINT16, UINT32, UINT64, UINT8",
            ),
        ),
        "ORT-DIMENSION-COUNT": Rule(
            "A tensor of the DirectML provider has at most 8 dimensions.",
            basis="source",
            source=_PROVIDER + "DmlExecutionProvider/src/TensorDesc.cpp",
            hint="reshape around the split: merge the dimensions before the axis, and those after"
            " it",
            cured_by=("model",),
            example=_models(
                _ort(_CUT, *_of_rank(9)),
                _ort(_CUT, *_of_rank(8)),
                "InputTensor.DimensionCount is 9; it must be at most 8",
            ),
        ),
        "ORT-EMPTY-PIECE": _no_hresult(
            "No piece is empty.",
            basis="source",
            source=_PROVIDER + "DmlExecutionProvider/src/ExecutionProvider.cpp",
            consequence="According to its source code, the provider skips the whole node: the other"
            " outputs are not written, and there is no error.",
            hint="leave the empty pieces out of the node and make them constants",
            cured_by=("model",),
            example=_models(
                _ort(
                    "sizes = Constant <value = int64[3] {2, 0, 4}> ()\n"
                    "a, none, b = Split <axis = 0> (x, sizes)",
                    outputs="float[2] a, float[0] none, float[4] b",
                ),
                _ort(_CUT),
                "OutputTensors[1] is empty; every piece needs at least one element",
            ),
        ),
    }
)


def numbered(hresult: int) -> str:
    """An HRESULT in the form that users search for: its number and name."""
    return f"{hresult:08X} ({HRESULTS[hresult][0]})"


def defect(rule_id: str, fault: str) -> Violation:
    """The violation for a known defect of DirectML; `fault` says how it may affect the node."""
    rule = RULES[rule_id]
    return Violation(rule, found=fault, text=f"{fault}; {rule.wording}")


def violation(rule_id: str, *fields: str, text: str = "") -> Violation:
    """The violation of a rule, from tensor, field, value and allowed values, or a whole `text`.

    The tensor is empty for a node or a target.
    """
    return Violation(RULES[rule_id], *fields, text=text)
