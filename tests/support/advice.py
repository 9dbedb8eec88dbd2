"""Carries out the advice of reports."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.cli import main
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.verdict import Verdict
from dmlsplit.messages import Note
from tests.support.fixtures import Capsys
from tests.support.models import model, one_split, split_nodes
from tests.support.openvino_files import weights

FLOAT = TensorProto.FLOAT

OPTION = re.compile(r'--dim (?:"[^"]*"|[^\s;,]+)')
COMMAND = re.compile(r'python -c "[^"]*"')


# A descriptor in a fix: axis, data type, sizes, outputs.
EQUIVALENT = re.compile(r"dispatch SPLIT axis (\d): (\w+)\[([\d,]+)\] -> (.*)")
FUNCTION = '<domain: "local", opset_import: ["" : 18]> Cut '
OLD = ("--windows", "19041")
Reported = Callable[..., tuple[Verdict, ...]]


# What an advice becomes when names and sizes are filled in.
PATTERNS = {
    name: re.sub(r"\\{\w+\\}", ".*", re.escape(advice))
    for name, advice in Advice.__members__.items()
}


def advised(verdict: Verdict) -> dict[str, str]:
    """The fixes and notes that are not hints of rules, by the member of `Advice`."""
    texts = *verdict.fixes, *verdict.notes
    return {
        name: text
        for text in texts
        for name, pattern in PATTERNS.items()
        if re.fullmatch(pattern, text.fault if isinstance(text, Note) else text)
    }


def saved(content: onnx.ModelProto | str) -> str:
    """The file of a model, with its tensors in another one, or of an OpenVINO IR."""
    if isinstance(content, str):
        Path("model.bin").write_bytes(weights())
        Path("model.xml").write_text(content)
        return "model.xml"
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, "model.onnx", **(options if content.graph.initializer else {}))
    return "model.onnx"


def validated(capsys: Capsys, *line: str) -> list[dict[str, Any]]:
    """The splits of the JSON report."""
    assert main(["validate", *line, "--format", "json"]) in (0, 1)
    splits: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["splits"]
    return splits


def carry_out(command: str) -> None:
    """Run `python -c "..."` in this process, which has imported onnx already."""
    python, option, code = shlex.split(command)
    assert (python, option) == ("python", "-c")
    exec(code, {"__name__": "__main__"})


def followed(text: str, name: str, target: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Do what a fix says; the arguments of the next `validate`: the model, and the options."""
    options = shlex.split(" ".join(o for o in OPTION.findall(text) if not o.endswith("=N")))
    for command in COMMAND.findall(text):
        name = re.findall(r"'([\w./]+\.onnx)'", command)[-1]
        carry_out(command)
    if write_fixed_match := re.search(r"--write-fixed (\S+\.onnx)", text):
        assert main(["validate", name, *target, *shlex.split(write_fixed_match[0])]) == 0
        name = write_fixed_match[1]
    if version := re.search(r"(?:use|ship) DirectML ([0-9.]+)", text):
        target = ["--directml", version[1]]
    if split := EQUIVALENT.search(text):
        axis, kind, sizes, outputs = split.groups()
        pieces = [
            shape_text.split(",")[int(axis)] for shape_text in re.findall(r"\[(.*?)\]", outputs)
        ]
        flags = f"--axis {axis} --data-type {kind} --sizes {sizes} --split {','.join(pieces)}"
        return flags.split(), target
    return [name], [*target, *options]


def after(operator: str, shape: Any = (2, 6), **attributes: Any) -> onnx.ModelProto:
    """A split into 2 and 4 along axis 1 of the value y, which an operator makes."""
    node = helper.make_node(operator, ["x"], ["y"], name="lost", **attributes)
    return model([node, *split_nodes("cut", "y", (2, 4), 1)], {"x": (FLOAT, shape)}, {"cut_0": 1})


def custom() -> onnx.ModelProto:
    content = after("Mystery", domain="own")
    content.opset_import.append(helper.make_opsetid("own", 1))
    return content


def external() -> onnx.ModelProto:
    content = one_split(FLOAT, (2, 6), sizes=(2, 4), axis=1)
    sizes = content.graph.node.pop(0).attribute[0].t
    content.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(sizes), "s"))
    content.graph.node[0].input[1] = "s"
    return content
