"""The kernel sources and the feature-level table, in a checkout or in an installed package."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def _home() -> Traversable | Path:
    # In a checkout, the files are next to the package. Next to an installed package there may be
    # NVIDIA's own ``cuda``, so look inside the package first.
    package = files("dmlsplit")
    if package.joinpath("feature_levels.yaml").is_file():
        return package
    return Path(__file__).resolve().parent.parent


def kernel_source(name: str) -> str:
    """The text of a file of ``cuda/``."""
    return _home().joinpath("cuda", name).read_text(encoding="utf-8")


def feature_level_table() -> str:
    """The text of ``feature_levels.yaml``."""
    return _home().joinpath("feature_levels.yaml").read_text(encoding="utf-8")
