"""Every rule that a verdict can name: of descriptors, nodes and ONNX Runtime's provider.

rules.yaml has the records of the last two.
"""

from pathlib import Path

from dmlsplit.directml import rules
from dmlsplit.directml.rules.rule import DEVICE_REMOVED, Effect, Example, read_rules
from dmlsplit.directml.rules.violation import Violation

# The name of each HRESULT, and how a call fails with it.
HRESULTS = {
    0x80070057: (
        "E_INVALIDARG",
        'Creating the operator fails with {}, "The parameter is incorrect".',
    ),
    0x8007000E: (
        "E_OUTOFMEMORY",
        'Creating a buffer fails with {}, "Not enough memory resources are available".',
    ),
    0x887A0004: ("DXGI_ERROR_UNSUPPORTED", "Creating the device fails with {}."),
    DEVICE_REMOVED: (
        "DXGI_ERROR_DEVICE_REMOVED",
        "DirectML removes the device: the next call fails with {}. dmlsplit raises"
        " InvalidArgumentError before that.",
    ),
}


RULES = rules.RULES | read_rules(
    Path(__file__).with_suffix(".yaml"), example=lambda fields: Example("onnx", **fields)
)


def hresult_text(hresult: int) -> str:
    """An HRESULT in the form that users search for: its number and name."""
    return f"{hresult:08X} ({HRESULTS[hresult][0]})"


def make_defect(rule_id: str, fault: str, fix: str = "") -> Violation:
    """The violation for a known defect of DirectML; `fault` says how it may affect the node."""
    rule = RULES[rule_id]
    return Violation(rule, found=fault, text=f"{fault}; {rule.wording}", fix=fix)


def make_violation(
    rule_id: str,
    tensor: str = "",
    *,
    field: str = "",
    found: str = "",
    allowed: str = "",
    text: str = "",
    fix: str = "",
    effect: Effect | None = None,
) -> Violation:
    """The violation of a rule, from a field, its value and what is allowed, or a whole `text`.

    The tensor is empty for a node or a target. `Violation` says what the arguments mean.
    """
    return Violation(
        RULES[rule_id], tensor, field, found, allowed, text=text, fix=fix, own_effect=effect
    )
