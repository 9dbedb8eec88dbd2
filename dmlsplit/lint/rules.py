"""Every rule that a verdict can name: of descriptors, of nodes, and of ONNX Runtime's provider."""

from __future__ import annotations

from functools import partial

from dmlsplit.directml import rules
from dmlsplit.directml.rules import Rule, by_id

_ORT = "https://github.com/microsoft/onnxruntime/"
_rule = partial(Rule, "")  # `by_id` adds the id
_kernels = partial(_rule, basis="documented", source=_ORT + "blob/main/docs/OperatorKernels.md")
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
        ),
        "SPLIT-NODE-UNKNOWN": _rule(
            "The sizes of a split are known before the model runs.",
            "policy",
            "dmlsplit; DirectML compiles an operator for fixed sizes",
            "fix the dimension in the model, then validate again",
        ),
        "SPLIT-NODE-SURPRISE": _rule(
            "A node means the same to every runtime.",
            "policy",
            "dmlsplit; runtimes disagree about some legal nodes",
            "write the node so that every runtime reads it alike",
        ),
        "ORT-FEATURE-LEVEL": _provider(
            "ONNX Runtime's DirectML provider creates its device with feature level 5_0 or above.",
            basis="documented",
            hint="ship DirectML.dll 1.8.0 or later beside the application",
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
        ),
    }
)
