"""`torch.onnx.export` of models that call `dml.split`."""

from collections.abc import Callable
from typing import Any

import pytest

import dmlsplit as dml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
for library in ("onnxscript", "onnxruntime"):
    pytest.importorskip(library, reason=f"{library} is not installed")

# Of torch's own exporter.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
Splits = Callable[[Any], list[Any]]


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, split: Splits) -> None:
        super().__init__()
        self.split = split

    def forward(self, x: Any) -> list[Any]:
        return [piece + number for number, piece in enumerate(self.split(x))]


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize(
    ("split", "is_dynamic"),
    [
        (lambda x: dml.split(x, (2, 0, 4), 1), False),
        (lambda x: dml.split(x, 3, dim=-1), True),
        (lambda x: dml.split(x, (2, x.shape[0] - 2)), True),
    ],
    ids=["uneven", "count", "computed"],
)
def test_dml_split_is_exported_as_one_onnx_split(
    split: Splits, is_dynamic: bool, opset: int
) -> None:
    import onnxruntime

    shapes = ({0: torch.export.Dim("rows", min=3)},) if is_dynamic else None
    program = torch.onnx.export(
        Model(split).eval(), (torch.rand(4, 6),), dynamo=True, opset_version=opset,
        dynamic_shapes=shapes, verbose=False,
    )  # fmt: skip
    assert [node.op_type for node in program.model.graph].count("Split") == 1
    assert program.model.opset_imports[""] == opset
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = torch.rand(9 if is_dynamic else 4, 6)
    pieces = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for piece, expected in zip(pieces, Model(split)(x), strict=True):
        assert torch.equal(torch.from_numpy(piece), expected)


def into(x: Any) -> list[Any]:
    """Into a whole tensor and into columns of another."""
    store = torch.zeros(x.shape[0], 9)
    return [*dml.split(x, (2, 4), 1, out=[torch.empty(x.shape[0], 2), store[:, 3:7]]), store]


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_split_into_existing_tensors_is_exported_as_its_values(is_dynamic: bool) -> None:
    import onnxruntime

    shapes = ({0: torch.export.Dim("rows", min=3)},) if is_dynamic else None
    program = torch.onnx.export(
        Model(into).eval(), (torch.rand(4, 6),), dynamo=True, dynamic_shapes=shapes, verbose=False
    )
    assert [node.op_type for node in program.model.graph].count("Split") == 1
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = torch.rand(9 if is_dynamic else 4, 6)
    pieces = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for piece, expected in zip(pieces, Model(into)(x), strict=True):
        assert torch.equal(torch.from_numpy(piece), expected)


def test_an_export_refuses_tensors_that_do_not_fit() -> None:
    wrong = Model(lambda x: dml.split(x, 2, 1, out=[torch.empty(4, 3), torch.empty(4, 2)]))
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as error:
        torch.onnx.export(wrong.eval(), (torch.rand(4, 6),), dynamo=True, verbose=False)
    assert "out[1]: shape is (4, 2); it must be (4, 3)" in str(error.value)


def test_a_split_in_a_decomposed_exported_program_becomes_one_onnx_split() -> None:
    program = torch.export.export(Model(lambda x: dml.split(x, 3, dim=1)), (torch.rand(4, 6),))
    table = torch.export.default_decompositions()
    table[torch.ops.dmlsplit.split.default] = torch.ops.aten.split_with_sizes_copy.default
    exported = torch.onnx.export(program.run_decompositions(table), dynamo=True, verbose=False)
    assert [node.op_type for node in exported.model.graph].count("Split") == 1
