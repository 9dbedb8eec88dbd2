"""Where the kernel sources and the feature-level table live."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def _home() -> Traversable | Path:
    """Return the package in a wheel, the folder beside it in a checkout.

    The package is asked first: beside it, in site-packages, lies NVIDIA's own ``cuda``.
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
