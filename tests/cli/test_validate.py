"""`validate`: descriptors by flags, files, folders, formats and exit statuses."""

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.cli import main
from tests.support import openvino_files
from tests.support.command import FLAGS, judged, save
from tests.support.models import (
    constant,
    every_verdict,
    in_function,
    model,
    nested,
    single,
    split_nodes,
)

# Descriptors by flags.


def test_flags_make_a_descriptor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *FLAGS, "--feature-level", "3_0"]) == 0
    assert "1 split in 1 file at feature level 3_0: 1 ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --feature-level 4_1", 0),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --feature-level 4_0", 1),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --windows 22000", 1),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --directml 1.7.0", 0),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --windows 22000 --allow legalizing", 0),
        ("--data-type FLOAT32 --sizes 6 --axis -1 --split 2,4", 1),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split 2,5 --allow legalizing", 1),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split=-1,7", 1),
        ("--data-type FLOAT32 --sizes 99999999999999999999 --axis 0 --split 1", 1),
    ],
)
def test_the_exit_status_is_the_verdict(
    arguments: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *arguments.split()]) == status
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give either PATHs, or all of"),
        ("--data-type FLOAT32", "or all of --data-type, --sizes, --axis and --split"),
        ("model.onnx --data-type FLOAT32 --sizes 6 --axis 0 --split 6", "give either PATHs"),
        ("--data-type FLOAT31 --sizes 6 --axis 0 --split 6", "data type is 'FLOAT31'"),
        ("x.onnx --feature-level 9_9", "feature level is '9_9'; it must be one of"),
        ("x.onnx --windows 7601", "the first with DirectML is 18362"),
        ("x.onnx --directml x", "it must look like 1.8.0"),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split 6 --via ort", "ONNX models only"),
        ("missing.onnx", "missing.onnx: cannot be read: No such file or directory"),
        ("model.pb", "model.pb: its name ends in '.pb'; it must end in .onnx or .xml or .json"),
        ("model.xml --via ort", "model.xml: its name ends in '.xml'; it must end in .onnx"),
        ("*.model", "*.model: no .onnx or .xml model found"),
        (".", ".: no .onnx or .xml model found"),
        ("-", "-: its name ends in ''"),
        ("/dev/null", "its name ends in ''"),
        ("pipe.onnx", "pipe.onnx: is not a regular file"),
        ("a.onnx c.onnx --write-fixed b.onnx", "exactly one PATH"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_each(
    arguments: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(here / "pipe.onnx")
    assert main(["validate", *arguments.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("dmlsplit: error: ") for line in lines)
    assert any(message in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sizes", "1,x"],
        ["--axis", "one"],
        ["m.onnx", "--feature-level", "2_0", "--windows", "22621"],
        ["m.onnx", "--format", "xml"],
        ["m.onnx", "--via", "tensorrt"],
        ["m.onnx", "--fail-on", "everything"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["validate", *arguments])
    assert exit_.value.code == 2


# Files.


def test_bodies_and_functions_are_searched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("nested.onnx", nested())
    save("function.onnx", in_function())
    status, verdicts = judged(capsys, "nested.onnx", "function.onnx", "--feature-level", "3_0")
    assert status == 0
    assert verdicts == {
        "nested.onnx:net/choose.then_branch/left": "ok",
        "nested.onnx:net/choose.else_branch/right": "ok",
        "function.onnx:net/call/inner": "ok",
    }


def test_unknown_fails_only_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", single(TensorProto.FLOAT, ("n", 2), (2, 2), 0))
    assert judged(capsys, "m.onnx")[0] == 0
    assert judged(capsys, "m.onnx", "--fail-on", "unknown")[0] == 1


def test_folders_and_patterns_are_searched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = single(TensorProto.FLOAT, (6,), (2, 4), 0)
    for name in ("models/a.onnx", "models/deep/b.ONNX", "other/c.onnx"):
        save(name, good)
    Path("models/settings.xml").write_text("<settings/>")
    Path("models/settings.json").write_text("{}")
    Path("models/link.onnx").symlink_to(Path("../other/c.onnx"))
    Path("models/loop").symlink_to(Path())
    status, verdicts = judged(capsys, "models")
    assert status == 0
    assert sorted(verdicts) == ["models/a.onnx:net/cut", "models/deep/b.ONNX:net/cut"]
    assert len(judged(capsys, "**/c.onnx", "models/*.onnx", "models/a.onnx")[1]) == 3


def test_a_file_whose_name_looks_like_a_pattern(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m[1].onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    assert judged(capsys, "m[1].onnx") == (0, {"m[1].onnx:net/cut": "ok"})


def test_descriptor_files_are_judged(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tensor(*sizes: int) -> dict[str, object]:
        return {"DataType": "INT64", "Sizes": sizes}

    outputs = [tensor(2), tensor(4)]
    desc = {"InputTensor": tensor(6), "OutputCount": 2, "OutputTensors": outputs, "Axis": 0}
    Path("desc.json").write_text(json.dumps(desc))
    assert judged(capsys, "desc.json")[0] == 0
    status, verdicts = judged(capsys, "desc.json", "--feature-level", "2_0")
    assert (status, list(verdicts.values())) == (1, ["ok after legalizing"])


def test_openvino_models_are_judged(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.xml").write_text(openvino_files.variadic())
    Path("m.bin").write_bytes(openvino_files.weights())
    status, verdicts = judged(capsys, "m.xml", "--feature-level", "3_0")
    assert (status, list(verdicts.values())) == (0, ["ok"])
    status, verdicts = judged(capsys, ".", "--feature-level", "2_0")
    assert (status, list(verdicts.values())) == (1, ["ok after legalizing"])
    Path("m.bin").unlink()
    assert judged(capsys, "m.xml") == (2, {})


def test_one_bad_file_does_not_hide_the_others(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("good.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    Path("bad.onnx").write_bytes(b"\xff" * 100)
    assert main(["validate", "bad.onnx", "good.onnx"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("dmlsplit: error: bad.onnx: ")
    assert "1 split in 1 file at feature level 6_4: 1 ok" in captured.out
    assert "1 file could not be read" in captured.out


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
def test_every_format_goes_to_a_file_as_well(
    form: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", every_verdict())
    assert main(["validate", "m.onnx", "--feature-level", "2_0", "--format", form]) == 1
    shown = capsys.readouterr().out
    line = ["validate", "m.onnx", "--feature-level", "2_0", "--format", form, "-o", "report"]
    assert main(line) == 1
    assert capsys.readouterr().out == ""
    assert Path("report").read_text("utf-8") == shown
    assert sorted(path.name for path in here.iterdir()) == ["m.onnx", "report"]
    if form == "junit":
        ET.parse("report")


def test_a_report_that_cannot_be_written_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *FLAGS, "-o", "no/such/report"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_annotations_of_a_good_model_are_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    assert main(["validate", "m.onnx", "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


# Dynamic models and targets.


def test_dim_gives_sizes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", single(TensorProto.INT64, ("batch", 6), (2, 4), 1))
    assert judged(capsys, "m.onnx")[1] == {"m.onnx:net/cut": "unknown"}
    for dim in ("batch=3", "cut=3"):
        status = main(["validate", "m.onnx", "--dim", dim])
        assert status == (0 if dim == "batch=3" else 2)
    assert "no .onnx model here has a dynamic dimension" in capsys.readouterr().err
    status, verdicts = judged(capsys, "m.onnx", "--feature-level", "1_0")
    assert (status, list(verdicts.values())) == (1, ["refused for every size"])
    status, _ = judged(capsys, "m.onnx", "--feature-level", "1_0", "--allow", "legalizing")
    assert status == 0


@pytest.mark.parametrize("text", ["batch", "=1", "batch=", "batch=-1", "batch=x", "batch=\u0661"])
def test_dim_is_read_strictly(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "m.onnx", "--dim", text])
    assert "it must be NAME=N or INPUT.AXIS=N" in " ".join(capsys.readouterr().err.split())


def test_a_dimension_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "m.onnx", "--dim", "n=1", "--dim", "n=2"]) == 2
    assert "--dim n is given as 1 and as 2" in capsys.readouterr().err


def test_shapes_are_inferred_unless_told_otherwise(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scales = constant("scales", (1, 2))
    scales.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([1, 2], np.float32)))
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"], name="up")
    nodes = [scales, resize, *split_nodes("cut", "y", (2, 4), 1)]
    save("m.onnx", model(nodes, {"x": (TensorProto.FLOAT, (1, 3))}, {"cut_0": TensorProto.FLOAT}))
    assert judged(capsys, "m.onnx")[1] == {"m.onnx:net/cut": "ok"}
    assert judged(capsys, "m.onnx", "--no-infer-shapes")[1] == {"m.onnx:net/cut": "unknown"}


def test_a_target_that_cannot_be_used_exits_with_1_without_splits(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    save("m.onnx", model([relu], {"x": (TensorProto.FLOAT, (2,))}, {"y": TensorProto.FLOAT}))
    assert main(["validate", "m.onnx", "--via", "ort", "--windows", "19041"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "ORT-FEATURE-LEVEL FeatureLevel: is 2_0, must be at least 5_0" in out
    assert "ship DirectML.dll 1.8.0 or later" in out
    assert main(["validate", "m.onnx", "--via", "ort", "--windows", "22621"]) == 0


def test_an_old_onnx_runtime_runs_num_outputs_on_the_cpu(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = helper.make_node("Split", ["x"], ["a", "b"], name="cut", num_outputs=2)
    save("m.onnx", model([cut], {"x": (TensorProto.FLOAT, (6,))}, {"a": TensorProto.FLOAT}))
    save("sizes.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    line = ["m.onnx", "sizes.onnx", "--via", "ort", "--ort-version"]
    assert list(judged(capsys, *line, "1.15.1")[1].values()) == ["refused", "ok"]
    assert list(judged(capsys, *line, "1.16")[1].values()) == ["ok", "ok"]
    assert main(["validate", "m.onnx", "--ort-version", "1.14"]) == 2
    assert main(["validate", *line, "new"]) == 2
    assert "it must look like 1.14" in capsys.readouterr().err


def test_a_known_defect_fails_only_when_asked(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        *split_nodes("cut", "x", (2, 2), 1),
        helper.make_node("Sigmoid", ["cut_1"], ["g"]),
        helper.make_node("Mul", ["cut_0", "g"], ["y"], name="gate"),
    ]
    save("glu.onnx", model(nodes, {"x": (TensorProto.FLOAT, (1, 4, 5))}, {"y": TensorProto.FLOAT}))
    for via in ("directml", "ort"):
        assert main(["validate", "glu.onnx", "--via", via]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "SPLIT-DEFECT-MEET defect: its pieces meet again in Mul 'gate' of net" in out
        assert "32146, 24311, 21007" in out
        assert "ep.dml.disable_graph_fusion=1" in out
        assert main(["validate", "glu.onnx", "--via", via, "--fail-on", "defect"]) == 1


def test_a_slice_is_judged_through_onnx_runtime_only(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [constant(name, [n]) for name, n in {"from": 2, "to": 2**62, "axis": 1}.items()]
    nodes.append(helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"], name="half"))
    save("m.onnx", model(nodes, {"x": (TensorProto.FLOAT, (1, 4))}, {"y": TensorProto.FLOAT}))
    assert judged(capsys, "m.onnx") == (0, {})
    assert judged(capsys, "m.onnx", "--via", "ort") == (0, {"m.onnx:net/half": "ok"})
    assert main(["validate", "m.onnx", "--via", "ort"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "SPLIT-IMPLIED note: ONNX Runtime makes a DirectML Split of this Slice" in out
