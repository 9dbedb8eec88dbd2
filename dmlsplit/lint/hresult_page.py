"""The page of an HRESULT, in Markdown: what it means, which rules it may come from, what to run."""

import re
from itertools import groupby

from dmlsplit.lint.rules import HRESULTS, RULES, hresult_text
from dmlsplit.lint.runtimes import runtime_table

_CAUSES = {
    0x80070057: (
        "DirectML refuses a descriptor, without a reason. If ONNX Runtime fails while it creates "
        "the session, the message names no node. If a node fails at run time, the message names it."
    ),
    0x8007000E: (
        "No rule is broken. A Split needs its input and all of its outputs in memory at once. Use "
        "a smaller batch, as DirectML's developers advise."
    ),
    0x887A0004: (
        "The DirectML.dll that is loaded has a lower feature level than the program asks for. ONNX "
        "Runtime's provider asks for {minimum_levels}. The package of ONNX Runtime brings a "
        "DirectML.dll that suffices, so look for an older one next to the program, or for a "
        "program that loads the one of Windows."
    ),
    0x887A0005: (
        "A call before this one was wrong, such as a binding whose size or offset breaks a rule, "
        "or the driver or the GPU failed. `GetDeviceRemovedReason` and DirectML's debug layers "
        "name it."
    ),
}
_COMMANDS = {
    0x80070057: "`dmlsplit validate model.onnx` with your target, such as `--ort 1.17` or "
    "`--windows 19041`, names the rule that a Split breaks, and the fix.",
    0x8007000E: "`dmlsplit explain model.onnx` shows how many bytes each Split reads and writes.",
    0x887A0004: "`dmlsplit levels` lists the level of each DirectML, ONNX Runtime and Windows.",
    0x887A0005: "`dmlsplit run dispatch.json` checks the bindings of a DxDispatch model.",
}


def hresult_of(text: str) -> int | None:
    """The HRESULT that a text names: 80070057, 0x80070057, -2147024809 or E_INVALIDARG."""
    names = {name: number for number, (name, _) in HRESULTS.items()}
    plain = text.strip().upper()
    number = names.get(plain)
    if re.fullmatch(r"(0X)?[0-9A-F]{8}L?", plain):
        number = int(plain.removesuffix("L"), 16)
    elif re.fullmatch(r"-[0-9]{10}", plain):
        number = int(plain) % 2**32
    return number if number in HRESULTS else None


def hresult_page(number: int) -> str:
    """The page of one of the `HRESULTS`."""
    _, how = HRESULTS[number]
    rules = [rule for rule in RULES.values() if rule.hresult == number and not rule.impossible_in_c]
    listed = "\n".join(f"- {rule.id}: {rule.sentence}" for rule in rules)
    cause = _CAUSES[number].format(minimum_levels=_minimum_levels())
    blocks = [f"# {hresult_text(number)}", how.format(hresult_text(number)), cause]
    command = _COMMANDS[number]
    if rules:
        blocks.append(f"## Rules whose violation may end in it\n\n{listed}")
        command += " `dmlsplit explain RULE-ID` shows a rule with examples."
    return "\n\n".join([*blocks, "## Next", command]) + "\n"


def _minimum_levels() -> str:
    """The levels that ONNX Runtime's provider asks for, each up to or since a release."""
    by_level = groupby(runtime_table().onnxruntime, lambda row: row.provider.minimum_level.value)
    *older, (newest, first) = [(level, list(rows)) for level, rows in by_level]
    texts = [f"{level} up to {rows[-1]}" for level, rows in older]
    return " and for ".join([*texts, f"{newest} since {first[0]}"])
