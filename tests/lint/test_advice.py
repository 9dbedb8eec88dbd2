"""What reports advise is carried out as printed, and changes the verdict."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.cli import main
from dmlsplit.frontends.onnx import child
from tests.support.models import model, parsed, sequence, single, split_nodes

pytestmark = pytest.mark.usefixtures("one_child")
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OPTION = re.compile(r'--dim (?:"[^"]*"|[^\s;,]+)')
COMMAND = re.compile(r'python -c "[^"]*"')


def validated(capsys: pytest.CaptureFixture[str], *line: str) -> list[dict[str, Any]]:
    """The splits of the JSON report."""
    assert main(["validate", *line, "--format", "json"]) in (0, 1)
    splits: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["splits"]
    return splits


def carry_out(command: str) -> None:
    """Run `python -c "..."` in this process, which has imported onnx already."""
    python, option, code = shlex.split(command)
    assert (python, option) == ("python", "-c")
    exec(code, {"__name__": "__main__"})


def after(operator: str, shape: Any = (2, 6), **attributes: Any) -> onnx.ModelProto:
    """A split into 2 and 4 along axis 1 of the value y, which an operator makes."""
    node = helper.make_node(operator, ["x"], ["y"], name="lost", **attributes)
    return model([node, *split_nodes("cut", "y", (2, 4), 1)], {"x": (FLOAT, shape)}, {"cut_0": 1})


def custom() -> onnx.ModelProto:
    content = after("Mystery", domain="own")
    content.opset_import.append(helper.make_opsetid("own", 1))
    return content


def counted(shape: Any, outputs: int) -> onnx.ModelProto:
    names = [f"p{index}" for index in range(outputs)]
    node = helper.make_node("Split", ["x"], names, name="cut", axis=-1, num_outputs=outputs)
    return model([node], {"x": (FLOAT, shape)}, dict.fromkeys(names, FLOAT))


# A split of a value without a shape in the body of a Loop.
IN_LOOP = """(bool on0, float[1,6] x) => (float[] all) {
    last, all = Loop <body = body (int64 i, bool on, float[] state)
                      => (bool on, float[] state, float[] cut_0) {
        sizes = Constant <value = int64[2] {2, 4}> ()
        [cut] cut_0, cut_1 = Split <axis = 1> (state, sizes)
    }> ("", on0, x)
}"""
FUNCTION = '<domain: "local", opset_import: ["" : 18]> Cut '
NOT_CALLED = """(float[2,6] x) => (float[] other_0) {
    y = Relu (x)
    sizes = Constant <value = int64[2] {2, 4}> ()
    [other] other_0, other_1 = Split <axis = 1> (y, sizes)
}"""
OF_CALLER = "<where> (a) => (b, c) { [cut] b, c = Split <axis: int = @where, num_outputs = 2> (a) }"
CALLED = """(float[2,6] x) => (int64[] p) {
    z = NonZero (x)
    y = Transpose (z)
    [call] p, q = local.Cut (y)
}"""
OF_ITS_OWN = "(a) => (b, c) { [cut] b, c = Split <axis = 0, num_outputs = 2> (a) }"


UNKNOWN = {
    "a dynamic axis": single(FLOAT, (2, "n"), (2, 4), 1),
    "a name with a space": single(FLOAT, (2, "n; of h"), (2, 4), 1),
    "two dynamic sizes": single(FLOAT, ("batch", "n"), (2, 4), 1),
    "a dynamic axis without a name": single(FLOAT, (2, None), (2, 4), 1),
    "a negative axis": counted((2, "n"), 3),
    "a dynamic rank": single(FLOAT, None, (2, 4), 1),
    "a value in the middle": after("NonZero"),
    "an unknown operator": custom(),
    "a body": parsed(IN_LOOP),
    "an attribute of a caller": parsed(NOT_CALLED, FUNCTION + OF_CALLER),
    "a value in a function": parsed(CALLED, FUNCTION + OF_ITS_OWN),
    "a sequence": sequence(FLOAT, ("n", "m")),
}


@pytest.mark.parametrize("content", UNKNOWN.values(), ids=UNKNOWN)
def test_advice_for_an_unknown_split_decides_it(
    content: onnx.ModelProto, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(content, "model.onnx")
    (before,) = (s for s in validated(capsys, "model.onnx") if s["verdict"] == "unknown")
    given = OPTION.findall(before["fix"])
    assert bool(given) != bool(COMMAND.findall(before["fix"]))
    name = "model.onnx"
    for command in COMMAND.findall(before["fix"]):
        name = re.findall(r"'(\w+\.onnx)'", command)[-1]
        carry_out(command)
    after = validated(capsys, name, *shlex.split(" ".join(given)))
    # Inlined, a function that is called has a split with an option of its own.
    if said := [split["fix"] for split in after if split["verdict"] == "unknown"]:
        assert not given
        after = validated(capsys, name, *shlex.split(" ".join(OPTION.findall(said[0]))))
    assert all(split["verdict"] != "unknown" for split in after)


def test_advice_for_external_lengths_decides_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = single(FLOAT, (2, 6), (2, 4), 1)
    sizes = content.graph.node[0].attribute[0].t
    content.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(sizes), "s"))
    content.graph.node[1].input[1] = "s"
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, "model.onnx", **options)
    (before,) = validated(capsys, "model.onnx")
    (command,) = COMMAND.findall(before["fix"])
    assert before["verdict"] == "unknown"
    carry_out(command)
    assert validated(capsys, "inside.onnx")[0]["verdict"] == "ok"


def test_what_is_installed_is_not_advised(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(after("NonZero"), "model.onnx")
    assert "install" not in validated(capsys, "model.onnx")[0]["fix"]
    monkeypatch.setattr(child, "is_installed", lambda: False)
    assert "pip install 'dmlsplit[onnx]'" in validated(capsys, "model.onnx")[0]["fix"]


def test_advice_for_refused_splits_is_carried_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(single(INT64, ("batch", 6), (2, 4), 1), "model.onnx")
    line = ["model.onnx", "--windows", "19041"]
    (before,) = validated(capsys, *line)
    assert before["verdict"] == "refused for every size"
    line += shlex.split(" ".join(OPTION.findall(before["fix"])))
    (found,) = validated(capsys, *line)
    assert (found["verdict"], found["missing"]) == ("refused, an equivalent exists", {})
    assert "--write-fixed fixed.onnx" in found["fix"]
    assert main(["validate", *line, "--write-fixed", "fixed.onnx"]) == 0
    assert main(["validate", "fixed.onnx", "--windows", "19041"]) == 0


def test_a_refused_split_that_no_nodes_replace_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(single(TensorProto.DOUBLE, (6,), (2, 4), 0), "model.onnx")
    (found,) = validated(capsys, "model.onnx", "--windows", "19041")
    assert "standard ONNX nodes cannot replace it: Cast would round FLOAT64" in found["fix"]
    assert "--write-fixed" not in found["fix"]


def test_openvino_fixes_its_own_sizes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ov = pytest.importorskip("openvino")
    x = ov.opset8.parameter([-1, -1], np.float32)
    cut = ov.opset8.variadic_split(x, 1, [2, 4])
    ov.save_model(ov.Model(cut.outputs(), [x]), "model.xml")
    (before,) = validated(capsys, "model.xml")
    assert before["verdict"] == "unknown"
    assert "Model.reshape, then openvino.save_model" in before["fix"]
    assert "--dim" not in before["fix"]
    fixed = ov.Core().read_model("model.xml")
    fixed.reshape([-1, 6])
    ov.save_model(fixed, "fixed.xml")
    (found,) = validated(capsys, "fixed.xml")
    assert found["verdict"] == "ok for every size"
    assert found["sizes"] == {"names": ["dimension 0"], "most": (2**32 - 1) // 6}


# Models as they are exported, which were unknown whatever was given.


# As silero-vad: gates of an LSTM cell, of a dynamic batch.
VOICE_ACTIVITY = """(float[batch,128] x) => (float[] a) {
    shape = Constant <value = int64[2] {128, 512}> ()
    w = ConstantOfShape (shape)
    gates = MatMul (x, w)
    sizes = Constant <value = int64[4] {128, 128, 128, 128}> ()
    [cut] a, b, c, d = Split <axis = 1> (gates, sizes)
}"""
# A Reshape by a computed shape before the split, as PyTorch exports pixel shuffles.
SUPER_RESOLUTION = """(float[1, 4, h, w] x) => (float[] a) {
    two = Constant <value = int64 {2}> ()
    scale = Constant <value = float {2.0}> ()
    zero = Constant <value = int64[1] {0}> ()
    batch = Constant <value = int64[1] {1}> ()
    rest = Constant <value = int64[2] {2, -1}> ()
    shape = Shape (x)
    rows = Gather <axis = 0> (shape, two)
    real = Cast <to = 1> (rows)
    half = Div (real, scale)
    low = Floor (half)
    whole = Cast <to = 7> (low)
    one = Unsqueeze (whole, zero)
    wanted = Concat <axis = 0> (batch, one, rest)
    "/head/Reshape" = Reshape (x, wanted)
    a, b = Split <axis = 1, num_outputs = 2> ("/head/Reshape")
}"""
# A quantized LSTM cell in a Loop, whose state has no declared shape.
QUANTIZED_LSTM = """(int64 steps, float[batch,32] x) => (float[] last) {
    [loop] last = Loop <body = cell (int64 step, bool on, float[] state)
                        => (bool on, float[] next) {
        shape = Constant <value = int64[2] {32, 64}> ()
        w = ConstantOfShape <value = int8[1] {1}> (shape)
        q, scale, zero = DynamicQuantizeLinear (state)
        sums = MatMulInteger (q, w, zero)
        real = Cast <to = 1> (sums)
        [gates] gates = Mul (real, scale)
        [cut] i, f = Split <axis = -1, num_outputs = 2> (gates)
        next = Sigmoid (i)
    }> (steps, "", x)
}"""


@pytest.mark.parametrize(
    ("content", "options", "verdict"),
    [
        (VOICE_ACTIVITY, "", "ok for every size"),
        (SUPER_RESOLUTION, "--dim /head/Reshape.1=2", "ok for every size"),
        (QUANTIZED_LSTM, "--dim gates.0=1 --dim gates.1=2", "ok"),
    ],
    ids=["silero-vad", "super-resolution", "qlstm"],
)
def test_models_as_exported_are_decided_by_the_printed_options(
    content: str, options: str, verdict: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(parsed(content), "model.onnx")
    for via in ("directml", "ort"):
        (before,) = validated(capsys, "model.onnx", "--via", via)
        assert " ".join(OPTION.findall(before["fix"])) == options
        line = ["model.onnx", "--via", via, *options.split()]
        (found,) = validated(capsys, *line)
        assert found["verdict"] == verdict
        assert main(["validate", *line, "--fail-on", "unknown"]) == 0
        capsys.readouterr()


def test_a_command_has_no_name_that_a_shell_could_change(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(custom(), "a 'b'.onnx")
    (split,) = validated(capsys, "a 'b'.onnx")
    assert "onnx.load('MODEL'); v = onnx.helper.make_tensor_value_info('y'," in split["fix"]
