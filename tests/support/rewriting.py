"""Models that --write-fixed rewrites, and what is checked of them."""

from pathlib import Path

import onnx

from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.lint.check import assess
from dmlsplit.lint.fix.rewrite import Rewriting, write_fixed
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment
from dmlsplit.models.discovery import scan_file


def assessed(path: Path, **target_options: str) -> Assessment:
    return assess(scan_file(str(path)), resolve_target(**target_options))


def rewritten(
    content: onnx.ModelProto,
    folder: Path,
    sizes: dict[str, int] | None = None,
    **target_options: str,
) -> tuple[Rewriting, Path]:
    source, output = folder / "in.onnx", folder / "out.onnx"
    onnx.save(content, source)
    dimensions = FixedSizes(sizes or {})
    before = assess(scan_file(str(source), dimensions=dimensions), resolve_target(**target_options))
    rewriting = write_fixed(source, output, before, sizes)
    if output.exists() and is_valid(content):
        assert is_valid(onnx.load(output))
    return rewriting, output


def is_valid(content: onnx.ModelProto) -> bool:
    """Whether ONNX accepts a model and infers the shapes that it declares."""
    try:
        onnx.checker.check_model(content, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node if n.op_type != "Constant"]


LEVEL_1, LEVEL_2 = {"feature_level": "1_0"}, {"feature_level": "2_0"}
ORT = {"ort": ""}
