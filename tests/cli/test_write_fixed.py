"""`validate --write-fixed`: a model that the target accepts, or the reason why there is not one."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.cli import main
from dmlsplit.lint.report import FORMATS
from tests.support.command import save, status_and_verdicts
from tests.support.fixtures import Capsys
from tests.support.models import nested, one_split, parsed, split_without_sizes


def test_write_fixed_sets_num_outputs(here: Path, capsys: Capsys) -> None:
    for shape in ((2, 6), ("n", 6)):
        save("m.onnx", split_without_sizes(shape))
        assert main("validate m.onnx --ort --write-fixed fixed.onnx --overwrite".split()) == 0
        # ONNX Runtime does not load the model itself.
        message = " ".join(capsys.readouterr().out.split())
        assert message.startswith("fixed.onnx: 1 split replaced; outputs are equal bit")
        (node,) = onnx.load("fixed.onnx").graph.node
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        assert (node.name, attributes) == ("cut", {"axis": 1, "num_outputs": 2})


WRITE = "validate m.onnx --windows 19041 --write-fixed fixed.onnx --overwrite".split()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_reports_the_written_model(form: str, here: Path, capsys: Capsys) -> None:
    save("m.onnx", nested())
    assert main([*WRITE, "--format", form]) == 0
    report, messages = capsys.readouterr()
    assert main(["validate", "fixed.onnx", "--windows", "19041", "--format", form]) == 0
    assert report.endswith(capsys.readouterr().out)
    changes = report if form == "text" else messages
    assert "fixed.onnx: 2 splits replaced; outputs are equal" in changes
    assert "net/choose.then_branch/left: now Unsqueeze, Cast, Split" in changes


def test_verbose_reports_the_model_before_and_after_without_advice_to_rewrite_again(
    here: Path, capsys: Capsys
) -> None:
    save("m.onnx", nested())
    assert main([*WRITE, "--verbose"]) == 0
    text = capsys.readouterr().out
    before, after = (
        text.index("\n\nBefore:\n\nerror[DML-LEVEL-DATA-TYPE]"),
        text.index("\n\nAfter:\n\nok runs on DirectML\n  --> fixed.onnx net/"),
    )
    assert text.index("now Unsqueeze") < before < text.index("refused") < after
    assert "refused" not in text[after:]
    assert "--write-fixed" not in text


def test_write_fixed_makes_given_sizes_static(here: Path) -> None:
    save("m.onnx", one_split(TensorProto.FLOAT, ("n", 6), sizes=(2, 4), axis=1))
    line = ["validate", "m.onnx", "--windows", "19041", "--dim", "n=3"]
    assert main([*line, "--write-fixed", "fixed.onnx"]) == 0
    (declaration,) = onnx.load("fixed.onnx").graph.input
    assert [dim.dim_value for dim in declaration.type.tensor_type.shape.dim] == [3, 6]


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_the_written_model_keeps_a_known_defect(kind: str, here: Path) -> None:
    """The nodes between the Split and its pieces move nothing, so DirectML fuses the same graph."""
    content = parsed(f"""({kind}[n,6] x) => ({kind}[n,3] y) {{
        sizes = Constant <value = int64[2] {{3, 3}}> ()
        [cut] a, b = Split <axis = 1> (x, sizes)
        s = Relu (b)
        y = Mul (a, s)
    }}""")
    save("m.onnx", content)
    assert main(WRITE) == 0
    assert main(["validate", "fixed.onnx", "--ort", "--fail-on", "defect"]) == 1


@pytest.mark.parametrize(("name", "advised_name"), [("fixed", "fixed"), ("a", "a.fixed")])
def test_another_folder_than_that_of_the_weights_is_refused_before_the_report(
    name: str, advised_name: str, here: Path, capsys: Capsys
) -> None:
    content = one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0)
    content.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    Path("m").mkdir()
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, "m/a.onnx", **options)
    line = ["validate", "m/a.onnx", "--windows", "19041", "--write-fixed"]
    assert main([*line, f"{name}.onnx"]) == 2
    report, error = capsys.readouterr()
    assert report == ""
    advised = re.search(r"Fix: give --write-fixed (\S+)", error)
    assert advised
    assert main([*line, advised[1]]) == 0
    assert Path(f"m/{advised_name}.onnx").exists()


def test_a_size_that_the_model_declares_for_a_value_in_the_middle_holds_for_the_written_one(
    here: Path, capsys: Capsys
) -> None:
    save(
        "m.onnx",
        parsed("""(float[2,6] x) => (int8[] a) <int64[2,4] y> {
        y = NonZero (x)
        z = Cast <to = 3> (y)
        a, b = Split <axis = 1, num_outputs = 2> (z)
    }"""),
    )
    old = ["--windows", "19041"]
    assert main(["validate", "m.onnx", *old, "--write-fixed", "fixed.onnx"]) == 0
    assert set(status_and_verdicts(capsys, "fixed.onnx", *old)[1].values()) == {"runs on DirectML"}


def test_of_two_nodes_with_the_same_name_only_the_refused_one_is_replaced(
    here: Path, capsys: Capsys
) -> None:
    content = nested()
    again = type(content.graph.node[0])()
    again.CopyFrom(content.graph.node[0])
    again.output[0] = "z"
    # The second If has splits that are accepted unchanged.
    for attribute in again.attribute:
        attribute.g.output[0].ClearField("type")
        for node in attribute.g.node:
            if node.op_type == "Split":
                node.input[0] = "w"
    content.graph.node.append(again)
    shape = (4, 4, 2, 2)
    content.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, shape))
    content.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    save("m.onnx", content)
    line = ["m.onnx", "--feature-level", "1_0"]
    _, verdicts = status_and_verdicts(capsys, *line)
    assert {name.removeprefix("m.onnx:net/"): verdict for name, verdict in verdicts.items()} == {
        "choose.then_branch/left": "refused, an equivalent exists",
        "choose.else_branch/right": "refused, an equivalent exists",
        "choose[1].then_branch/left": "runs on DirectML",
        "choose[1].else_branch/right": "runs on DirectML",
    }
    assert main(["validate", *line, "--write-fixed", "fixed.onnx"]) == 0
    assert "2 splits replaced" in capsys.readouterr().out
    first, second = (node for node in onnx.load("fixed.onnx").graph.node if node.op_type == "If")
    assert all("Unsqueeze" in str(attribute.g.node) for attribute in first.attribute)
    assert not any("Unsqueeze" in str(attribute.g.node) for attribute in second.attribute)
