"""What a written model keeps of the original, and what it no longer has."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlsplit as dml
from dmlsplit.models.onnx.scanner import check_output, weight_files
from tests.support.models import one_split, parsed, session
from tests.support.rewriting import LEVEL_1, LEVEL_2, rewritten


def test_the_new_split_keeps_the_documentation_of_the_old_one(tmp_path: Path) -> None:
    content = one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0)
    (old,) = (node for node in content.graph.node if node.op_type == "Split")
    old.doc_string = "keep me"
    old.metadata_props.add(key="pkg.torch.onnx.name", value="cut")
    for target_options in LEVEL_2, LEVEL_1:
        _, output = rewritten(content, tmp_path, **target_options)
        new = next(n for n in onnx.load(output).graph.node if n.name == "cut")
        assert (new.op_type, new.doc_string) == ("Split", "keep me")
        assert list(new.metadata_props) == list(old.metadata_props)
        output.unlink()


# Sizes that the replaced split shares with nothing, a node, a body or an output.
SIZES = """(bool flag, int8[6] x) => (int8[2] a OUTPUT) <int64[2] s = {2, 4}> {
    [cut] a, b = Split <axis = 0> (x, s)
    NODE
}"""
IN_A_BODY = "c = If (flag) <then_branch = t () => (int64[] t0) { t0 = Neg (s) }, else_branch = "
IN_A_BODY += "e () => (int64[] e0) { e0 = Neg (s) }>"


@pytest.mark.parametrize(
    ("node", "output", "is_removed"),
    [
        ("", "", True),
        ("c = Neg (s)", "", False),
        (IN_A_BODY, "", False),
        ("", ", int64[2] s", False),
    ],
    ids=["only the split", "a node", "a node in a body", "an output of the graph"],
)
def test_only_sizes_that_nothing_uses_any_more_are_removed(
    node: str, output: str, is_removed: bool, tmp_path: Path
) -> None:
    text = SIZES.replace("NODE", node).replace("OUTPUT", output)
    content = parsed(text)
    assert [tensor.name for tensor in content.graph.initializer] == ["s"]
    rewriting, output_path = rewritten(content, tmp_path, **LEVEL_2)
    assert rewriting.replaced
    output_model = onnx.load(output_path)
    onnx.checker.check_model(output_model, full_check=True)
    assert [tensor.name for tensor in output_model.graph.initializer] == ["s"] * (not is_removed)


def test_names_of_new_values_differ_from_all_names_of_the_model(tmp_path: Path) -> None:
    content = one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0)
    content.graph.node.append(helper.make_node("Neg", ["x"], ["dmlsplit_1_rows"]))
    content.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1), "dmlsplit__2_axes"))
    _, output = rewritten(content, tmp_path, feature_level="1_0")
    output_graph = onnx.load(output).graph
    names = {name for node in output_graph.node for name in node.output}
    new_names = {name for name in names if name.startswith("dmlsplit_")} - {"dmlsplit_1_rows"}
    # No name of the model begins with three underscores after the word.
    assert all(name.startswith("dmlsplit___") for name in new_names)
    assert "dmlsplit___1_padded" in new_names
    roles = {name.rpartition("_")[2] for name in new_names}
    assert roles == {"axes", "narrow", "padded", "part", "sizes", "wide"}


def split_by_an_input_with_a_default(computation: str, ir_version: int) -> onnx.ModelProto:
    """A split by sizes that are computed from an input, which has an initializer too."""
    content = parsed(f"""(int8[6] x, int64[2] s) => (int8[] a, int8[] b) <int64[2] s = {{2, 4}}> {{
        {computation} [cut] a, b = Split <axis = 0> (x, t)
    }}""")
    content.ir_version = ir_version
    return content


each_computation = pytest.mark.parametrize(
    "computation", ["t = Identity (s)", "t = Abs (s)", "u = Neg (s) t = Neg (u)"]
)


@each_computation
@pytest.mark.parametrize("ir_version", [4, 10])
def test_sizes_that_a_caller_may_override_are_not_written_into_the_model(
    ir_version: int, computation: str, tmp_path: Path
) -> None:
    content = split_by_an_input_with_a_default(computation, ir_version)
    rewriting, output = rewritten(content, tmp_path, **LEVEL_2)
    ((_, reason),) = rewriting.not_replaced
    assert "which a caller may override. Fix: keep the initializer only" in reason
    assert not output.exists()


@each_computation
def test_before_ir_version_4_onnx_runtime_lets_nobody_override_an_initializer(
    computation: str, tmp_path: Path
) -> None:
    content = split_by_an_input_with_a_default(computation, ir_version=3)
    rewriting, _ = rewritten(content, tmp_path, **LEVEL_2)
    assert rewriting.replaced


def test_a_dimension_that_has_the_name_of_another_input_axis_stays_dynamic(tmp_path: Path) -> None:
    content = parsed("""(int8[N,M,4] x) => (int8[] a, int8[] b) {
        sizes = Constant <value = int64[2] {3, 3}> ()
        [cut] a, b = Split <axis = 1> (x, sizes)
    }""")
    dims = content.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[1].dim_param = "x.1", ""
    rewriting, output = rewritten(content, tmp_path, {"x.1": 6}, **LEVEL_2)
    assert rewriting.replaced
    first, second, _ = onnx.load(output).graph.input[0].type.tensor_type.shape.dim
    assert (first.dim_param, second.dim_value) == ("x.1", 6)


def test_the_output_of_a_scan_keeps_its_rank(tmp_path: Path) -> None:
    """ONNX Runtime runs a Scan only if it knows the rank of each output of the body."""
    content = parsed("""(int8[2,n,2,4,2,m] x) => (int8[] y) {
        y = Scan <num_scan_inputs = 1, body = scan (int8[n,2,4,2,m] row) => (int8[] b) {
            [cut] b = Split <axis = 1> (row)
        }> (x)
    }""")
    content.graph.node[0].attribute[1].g.output[0].type.tensor_type.ClearField("shape")
    for opset in content.opset_import:
        opset.version = 13
    rewriting, output = rewritten(content, tmp_path, **LEVEL_2)
    assert rewriting.replaced
    x = np.ones((2, 3, 2, 4, 2, 5), np.int8)
    (y,) = session(onnx.load(output)).run(None, {"x": x})
    np.testing.assert_array_equal(y, x, strict=True)


@pytest.mark.parametrize("user", ["training", "quantization", "nothing"])
def test_sizes_stay_in_the_model_if_something_else_uses_them(tmp_path: Path, user: str) -> None:
    content = parsed(
        "(uint8[6,2] x) => (uint8[3,2] a, uint8[3,2] b) <int64[2] k = {3, 3}>"
        "{ a, b = Split <axis = 0> (x, k) }"
    )
    if user == "training":
        training = content.training_info.add()
        training.algorithm.node.append(helper.make_node("Identity", ["k"], ["l"]))
        training.update_binding.add(key="k", value="l")
    elif user == "quantization":
        annotation = content.graph.quantization_annotation.add(tensor_name="a")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="k")
    _, output = rewritten(content, tmp_path, windows="19041")
    names = [tensor.name for tensor in onnx.load(output).graph.initializer]
    assert ("k" in names) == (user != "nothing")


def test_a_model_is_not_written_over_the_weights_of_a_sparse_tensor(tmp_path: Path) -> None:
    halves = "{ a, b = Split <num_outputs = 2> (x) }"
    content = parsed(f"(uint8[6,2] x) => (uint8[3,2] a, uint8[3,2] b) {halves}")
    sparse = content.graph.sparse_initializer.add(dims=[4])
    sparse.values.name, sparse.values.data_type, sparse.values.data_location = "w", 1, 1
    sparse.values.dims.append(1)
    sparse.values.external_data.add(key="location", value="w.onnx")
    onnx.save(content, tmp_path / "m.onnx")
    assert weight_files(tmp_path / "m.onnx") == [tmp_path / "w.onnx"]
    with pytest.raises(dml.InvalidArgumentError):
        check_output(tmp_path / "m.onnx", tmp_path / "w.onnx", overwrite=True)
