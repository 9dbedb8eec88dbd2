"""The kernel sources and the feature-level table, in a checkout or in an installed package."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def _home() -> Traversable | Path:
    """Return the folder of ``cuda`` and the table: the package, or its parent in a checkout.

    The package comes first: its parent may be site-packages, with NVIDIA's own ``cuda``.
    """
    package = files("dmlsplit")
    if package.joinpath("feature_levels.yaml").is_file():
        return package
    return Path(__file__).resolve().parent.parent


def kernel_source(name: str) -> str:
    """Return the text of a file of ``cuda/``."""
    return _home().joinpath("cuda", name).read_text(encoding="utf-8")


def feature_level_table() -> str:
    """Return the text of ``feature_levels.yaml``."""
    return _home().joinpath("feature_levels.yaml").read_text(encoding="utf-8")
