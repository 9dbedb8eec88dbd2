"""Every rule that a verdict can name: of descriptors, of nodes, and of ONNX Runtime's provider."""

from __future__ import annotations

from functools import partial

from dmlsplit.directml import rules
from dmlsplit.directml.rules import Rule, by_id
from dmlsplit.frontends.site import Cause

_ORT = "https://github.com/microsoft/onnxruntime/"
_rule = partial(Rule, "")  # `by_id` adds the id
# A node without a kernel fails nowhere: it runs on the CPU.
_kernels = partial(
    _rule, basis="documented", source=_ORT + "blob/main/docs/OperatorKernels.md", hresult=None
)
_provider = partial(_rule, source=_ORT + "tree/main/onnxruntime/core/providers/dml")

RULES = rules.RULES | by_id(
    {
        "SPLIT-NODE-INVALID": _rule(
            "A node obeys the rules of its own operator.",
            "documented",
            "the specification of the node's operator",
            "correct the node; no runtime can be relied on to take it",
        ),
        "SPLIT-NODE-TEXT": _rule(
            "The elements of a tensor have a fixed number of bytes.",
            "documented",
            rules.RULES["DML-TENSOR-DATA-TYPE"].source,
            "keep the node on the CPU",
            hresult=None,
        ),
        "SPLIT-NODE-UNKNOWN": _rule(
            "The sizes of a split are known before the model runs.",
            "policy",
            "dmlsplit; DirectML compiles an operator for fixed sizes",
            "fix the dynamic dimensions, then validate again",
            hresult=None,
        ),
        "SPLIT-NODE-SURPRISE": _rule(
            "A node means the same to every runtime.",
            "policy",
            "dmlsplit; runtimes disagree about some legal nodes",
            "write the node so that every runtime reads it alike",
            hresult=None,
        ),
        "SPLIT-DEFECT-MEET": _rule(
            "Pieces of one split do not meet again in an element-wise operator. DirectML is known"
            " to compute such a graph wrongly, without an error, where it is fused: one piece is"
            " used in place of the other.",
            "policy",
            _ORT + "issues/32146",
            "compare the results with the CPU's, or disable graph fusion in ONNX Runtime (session"
            " option ep.dml.disable_graph_fusion=1, which the reporter of 21007 verified). A Slice"
            " is no cure: it becomes a DirectML Split too (onnxruntime pull request 18289)",
            hresult=None,
        ),
        "SPLIT-IMPLIED": _rule(
            "Nodes of other operators become DirectML Splits in ONNX Runtime.",
            "policy",
            _ORT + "pull/18289",
            "nothing has to be done",
            hresult=None,
        ),
        "ORT-FEATURE-LEVEL": _provider(
            "ONNX Runtime's DirectML provider creates its device with feature level 5_0 or above.",
            basis="documented",
            hint="ship DirectML.dll 1.8.0 or later beside the application",
            hresult=0x887A0004,  # DXGI_ERROR_UNSUPPORTED: no device is created
        ),
        "ORT-NUM-OUTPUTS": _rule(
            "A Split-18 has split or num_outputs: ONNX Runtime 1.31 does not load a model with"
            " neither where the size of the axis is known.",
            "policy",
            _ORT + "blob/main/onnxruntime/core/providers/cpu/tensor/split.h",
            "set num_outputs",
            hresult=None,
        ),
        "ORT-VERSION": _rule(
            "ONNX Runtime 1.16 or later: before, a Split-18 with num_outputs ran on the CPU.",
            "documented",
            _ORT + "issues/14523",
            "ship ONNX Runtime 1.16 or later, or give the sizes as split. As it is, the node runs"
            " on the CPU",
            hresult=None,
        ),
        "ORT-OPERATOR": _kernels(
            "The DirectML provider has a kernel for this version of the operator.",
            hint="export the model at opset 13 or later. As it is, the node runs on the CPU",
        ),
        "ORT-SEQUENCE": _kernels(
            "The DirectML provider has no SplitToSequence.",
            hint="use Split and SequenceConstruct, as --write-fixed does where the sizes are known."
            " As it is, the node runs on the CPU",
        ),
        "ORT-DATA-TYPE": _kernels(
            "The DirectML provider's Split takes the element type.",
            hint="cast the tensor to a listed type around the split. As it is, the node runs on the"
            " CPU",
        ),
        "ORT-DIMENSION-COUNT": _provider(
            "A tensor of the DirectML provider has at most 8 dimensions.",
            basis="documented",
            hint="reshape around the split: merge the dimensions before the axis, and those after"
            " it",
        ),
        "ORT-EMPTY-PIECE": _provider(
            "No piece is empty: by its source code, the provider skips the whole node if an output"
            " is empty, and leaves the other outputs unwritten without an error.",
            basis="policy",
            hint="leave the empty pieces out of the node and make them constants",
            hresult=None,  # nothing fails, which is worse
        ),
    }
)

# What to do about a split that is unknown, by the cause of it. NAME stands for the dimension.
REMEDIES = {
    Cause.DYNAMIC: "give the size with --dim NAME=N; fix it in the model with python -m"
    " onnxruntime.tools.make_dynamic_shape_fixed --dim_param NAME --dim_value N",
    Cause.LENGTHS: "make the split lengths a constant of the model, or use num_outputs",
    Cause.UNTRACKED: "save the shapes in the model: python -m"
    " onnxruntime.tools.symbolic_shape_infer; or install onnx, if it is missing, for its shape"
    " inference: pip install 'dmlsplit[onnx]'",
    Cause.WEIGHTS: "keep small tensors in the model, as onnx.save does with size_threshold=1024",
    Cause.OPERATION_SET: "convert the model with a version of OpenVINO that writes opset1 splits",
    Cause.COUNT: "give the pieces a larger chunk size; no model needs so many",
    Cause.ORDER: "sort the nodes so that each follows those whose values it takes; a graph with a "
    "cycle cannot run",
    Cause.CALLER: "inline the functions (onnx.inliner), then validate again",
}
