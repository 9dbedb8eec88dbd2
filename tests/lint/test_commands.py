"""Commands that advice prints, and notes that say why a command is missing."""

from pathlib import Path

import numpy
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from dmlsplit.cli import main
from dmlsplit.lint.verdict import Outcome
from tests.support.advice import (
    COMMAND,
    FUNCTION,
    OLD,
    Reported,
    advised,
    custom,
    external,
    followed,
    saved,
    validated,
)
from tests.support.fixtures import Capsys
from tests.support.models import one_split, parsed, session, split_with_sizes_as_an_attribute

FLOAT = TensorProto.FLOAT

# What no advice can change.


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            one_split(TensorProto.DOUBLE, (6,), sizes=(2, 4), axis=0),
            "Cast would lose bits of FLOAT64",
        ),
        (
            split_with_sizes_as_an_attribute(opset=6, axis=0, shape=(6,)),
            "the opset is 6; rewriting needs 7 or later",
        ),
        (
            one_split(FLOAT, (2**20, 129), sizes=(2**19, 2**19), axis=0),
            "its input must have at most 268,435,456",
        ),
    ],
)
def test_a_note_says_why_no_nodes_can_replace_a_refused_split(
    content: onnx.ModelProto, reason: str, here: Path, reported: Reported, capsys: Capsys
) -> None:
    name = saved(content)
    (verdict,) = reported(name, *OLD)
    assert f"--write-fixed cannot replace it: {reason}" in verdict.notes[0]
    assert "REWRITE_MODEL" not in advised(verdict)
    main(["validate", name, *OLD, "--write-fixed", "fixed.onnx"])
    assert f"not replaced: {reason}" in " ".join(capsys.readouterr().out.split())
    assert not Path("fixed.onnx").exists()


@pytest.mark.parametrize("batch", [2, "batch"])
def test_a_note_says_how_to_rewrite_a_split_in_a_function(
    batch: int | str, here: Path, reported: Reported, capsys: Capsys
) -> None:
    body = "(a) => (b, c) { [cut] b, c = Split <axis = 1, num_outputs = 2> (a) }"
    call = f"(float[{batch},6] x) => (float[] p) {{ [call] p, q = local.Cut (x) }}"
    name = saved(parsed(call, FUNCTION + body))
    (verdict,) = reported(name, *OLD)
    text = advised(verdict)["CANNOT_REWRITE_IN_FUNCTION"]
    assert main(["validate", name, *OLD]) == 1
    assert f" {COMMAND.findall(text)[0]}\n" in capsys.readouterr().out  # in one line
    (inlined,), target = followed(text, name, OLD)
    (verdict,) = reported(inlined, *target)
    assert "REWRITE_MODEL" in advised(verdict)


def test_bfloat16_is_advised_to_be_converted_in_the_whole_model(
    here: Path, reported: Reported
) -> None:
    (verdict,) = reported(
        saved(one_split(TensorProto.BFLOAT16, (6,), sizes=(2, 4), axis=0)), "--ort"
    )
    assert verdict.fixes == ("convert the model to float16 or float32",)


@pytest.mark.parametrize("kind", [TensorProto.COMPLEX64, TensorProto.COMPLEX128])
def test_complex_numbers_are_not_said_to_run_on_the_cpu(
    kind: int, here: Path, reported: Reported
) -> None:
    content = one_split(kind, (6,), sizes=(2, 4), axis=0)
    with pytest.raises(Exception, match="is not currently registered or supported"):
        session(content)
    (verdict,) = reported(saved(content), "--ort")
    assert verdict.fix.startswith("store the real and the imaginary parts as real tensors; ")
    assert verdict.notes == ()


@pytest.mark.parametrize("paths", [["m/a.onnx", "m/b.onnx"], ["m"], ["[m]/a.*"]])
def test_the_advice_about_one_of_several_models_names_that_model(
    paths: list[str], here: Path, capsys: Capsys
) -> None:
    Path("m").mkdir()
    for name in "m/a.onnx", "m/b.onnx":
        onnx.save(one_split(TensorProto.INT8, (6,), sizes=(2, 4), axis=0), name)
    split = validated(capsys, *paths, *OLD)[0]
    assert main(["validate", *paths, *OLD, "--write-fixed", "fixed.onnx"]) == 2
    assert "for several models, it must be a folder" in capsys.readouterr().err
    command = "validate m/a.onnx --windows 19041 --write-fixed m/a.fixed.onnx"
    assert f"rewrite the model: dmlsplit {command}; or" in split["fix"]
    assert main(command.split()) == 0


def test_allow_equivalent_accepts_no_split_without_an_equivalent(
    here: Path, reported: Reported
) -> None:
    name = saved(one_split(TensorProto.UINT8, (1, 1, 5, 3), sizes=(1, 2), axis=3))
    (verdict,) = reported(name, *OLD)
    assert verdict.notes[-1].startswith("no equivalent descriptor at feature level 2_0: ")
    assert main(["validate", name, *OLD, "--allow", "equivalent"]) == 1


def test_an_advised_command_has_no_file_name_that_a_shell_could_change(
    here: Path, capsys: Capsys
) -> None:
    for name, shell_name in ("a 'b'.onnx", "MODEL"), ("a bü.onnx", "a bü.onnx"):
        onnx.save(custom(), name)
        (split,) = validated(capsys, name)
        (command,) = COMMAND.findall(split["fix"])
        assert f"onnx.load('{shell_name}', load_external_data=False); " in command
        assert f"onnx.save(m, '{shell_name.removesuffix('.onnx')}.declared.onnx')" in command
        assert main(["validate", name]) == 0
        assert f" {command}\n" in capsys.readouterr().out  # in one line, to be pasted


def test_the_advised_file_lies_beside_the_model_whose_weights_it_shares(
    here: Path, reported: Reported
) -> None:
    Path("m").mkdir()
    content = one_split(TensorProto.INT8, (6,), sizes=(2, 4), axis=0)
    content.graph.initializer.append(numpy_helper.from_array(numpy.ones(600, "f"), "w"))
    saved(content)
    for name in "model.onnx", "w.bin":
        Path(name).rename(Path("m", name))
    (verdict,) = reported("m/model.onnx", *OLD)
    names, target = followed(advised(verdict)["REWRITE_MODEL"], "m/model.onnx", OLD)
    assert names == ["m/model.fixed.onnx"]
    assert {part.outcome for part in reported(*names, *target)} == {Outcome.RUNS}


def test_a_model_that_protobuf_cannot_read_is_not_advised_to_be_rewritten(
    here: Path, reported: Reported, capsys: Capsys
) -> None:
    onnx.save(one_split(TensorProto.INT8, (6,), sizes=(2, 4), axis=0), "big.onnx")
    length = 2**31 - 1
    with Path("big.onnx").open("r+b") as file:  # a documentation string of zeros, a sparse file
        file.seek(0, 2)
        file.write(b"\x32\xff\xff\xff\xff\x07")
        file.truncate(file.tell() + length)
    (verdict,) = reported("big.onnx", *OLD)
    assert "REWRITE_MODEL" not in advised(verdict)
    assert (
        "over 2 GiB, which protobuf cannot read. Fix: export it"
        in advised(verdict)["CANNOT_REWRITE"]
    )
    assert main(["validate", "big.onnx", *OLD, "--write-fixed", "fixed.onnx"]) == 2
    assert "big.onnx: the model has over 2 GiB" in capsys.readouterr().err


def test_every_format_gives_the_same_fix_of_an_unknown_split(here: Path, capsys: Capsys) -> None:
    (split,) = validated(capsys, saved(external()))
    assert [diagnostic["hint"] for diagnostic in split["diagnostics"]] == [split["fix"]]
