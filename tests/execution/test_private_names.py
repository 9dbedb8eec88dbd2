"""Private names of PyTorch and JAX are used in one file each, and exist."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dmlsplit
from dmlsplit.errors import UnsupportedError

PACKAGE = Path(dmlsplit.__file__).parent
HOMES = {"torch": PACKAGE / "arrays/torch_private.py", "jax": PACKAGE / "execution/jax.py"}


def uses(node: ast.AST) -> Iterator[str]:
    """Every dotted name under a node that begins with a name or a call of one, and every import."""
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module:
            yield from (f"{part.module}.{alias.name}" for alias in part.names)
        elif isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.Attribute):
            yield ast.unparse(part).replace("_torch()", "torch")


@cache
def used_in(path: Path) -> frozenset[str]:
    return frozenset(uses(ast.parse(path.read_text("utf-8"))))


def is_kept(name: str) -> bool:
    """Whether a library promises to keep a name: no part of it is private or experimental."""
    parts = name.split(".")[1:]
    return not any(part == "experimental" or part.startswith("_") for part in parts)


@pytest.mark.parametrize("library", HOMES)
def test_private_names_are_used_in_one_file(library: str) -> None:
    users = {
        path
        for path in PACKAGE.rglob("*.py")
        for name in used_in(path)
        if name.partition(".")[0] == library and "__" not in name and not is_kept(name)
    }
    assert users == {HOMES[library]}


def test_the_private_names_of_torch_exist() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from dmlsplit.arrays import torch_adapter as adapter
    from dmlsplit.arrays import torch_private as private

    homes = {kind.__module__ for kind in (private.FakeTensor, private.FunctionalTensor)}
    assert homes | {torch.Tensor.__module__, torch.nn.Parameter.__module__} == adapter.TORCH_MODULES
    assert private.example_value(3) == 3
    assert private.example_value(ShapeEnv().create_unbacked_symint()) == 1
    assert private.dispatch_modes() == 0
    assert not any([private.is_forward_mode(), private.has_transforms(), private.is_jit_tracing()])
    x = torch.zeros(2)
    assert private.storage_of(x) == private.storage_of(x[1:]) != private.storage_of(x.clone())


def test_an_error_names_a_missing_private_name_and_the_version_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from dmlsplit.arrays import torch_private

    with monkeypatch.context() as patch:
        patch.delattr(torch, "_check_with")
        message = (
            rf"PyTorch {torch.__version__} lacks .*_check_with.*pip install 'dmlsplit\[torch\]'"
        )
        with pytest.raises(UnsupportedError, match=message.replace("+", r"\+")):
            importlib.reload(torch_private)
    importlib.reload(torch_private)
