"""Where the rewritten models of a folder go."""

import re
from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.lint.fix.outputs import check_output_paths, output_paths
from dmlsplit.models.discovery import model_files

FIXED = Path("fixed")


def files(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("model")


@pytest.mark.parametrize(
    ("path", "outputs"),
    [
        ("models", ["fixed/a.onnx", "fixed/deep/b.onnx"]),
        ("models/", ["fixed/a.onnx", "fixed/deep/b.onnx"]),
        (".", ["fixed/models/a.onnx", "fixed/models/deep/b.onnx"]),
        ("models/deep/b.onnx", ["fixed/b.onnx"]),
        ("models/**/*.onnx", ["fixed/a.onnx", "fixed/deep/b.onnx"]),
        ("mod*/*.onnx", ["fixed/models/a.onnx"]),
    ],
)
def test_a_model_keeps_its_path_in_the_folder_that_was_given(
    path: str, outputs: list[str], here: Path
) -> None:
    files("models/a.onnx", "models/deep/b.onnx")
    assert list(map(str, output_paths(FIXED, model_files([path])).values())) == outputs


def test_two_models_with_one_output_are_refused(here: Path) -> None:
    files("one/a.onnx", "two/a.onnx")
    with pytest.raises(dml.InvalidArgumentError, match=re.escape("both be written as fixed/a.onn")):
        output_paths(FIXED, model_files(["one", "two"]))
    # A model that is given twice is one.
    assert len(set(output_paths(FIXED, model_files(["one", "one/a.onnx"])).values())) == 1


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_an_output_is_never_an_input_whatever_its_name_is(link: object, here: Path) -> None:
    files("models/a.onnx")
    FIXED.mkdir()
    link(FIXED / "a.onnx", Path("models/a.onnx").absolute())  # type: ignore[operator]
    with pytest.raises(dml.InvalidArgumentError, match=r"fixed/a\.onnx is an input"):
        check_output_paths({"models/a.onnx": FIXED / "a.onnx"}, ["models/a.onnx"], overwrite=True)


def test_outputs_that_exist_need_overwrite_and_are_named(here: Path) -> None:
    outputs = {f"models/{number}.onnx": FIXED / f"{number}.onnx" for number in range(9)}
    check_output_paths(outputs, outputs, overwrite=False)
    files(*map(str, outputs.values()))
    check_output_paths(outputs, outputs, overwrite=True)
    with pytest.raises(dml.InvalidArgumentError, match=r"fixed/3.onnx, \.\.\. and 5 more: exists"):
        check_output_paths(outputs, outputs, overwrite=False)
