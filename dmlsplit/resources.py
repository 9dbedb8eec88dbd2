"""The kernel sources and tables, in a checkout or in an installed package."""

from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
# In a checkout, the files are next to the package. Next to an installed package there may be
# NVIDIA's own ``cuda``, so look inside the package first.
_HOME = _PACKAGE if (_PACKAGE / "feature_levels.yaml").is_file() else _PACKAGE.parent


def kernel_source(name: str) -> str:
    """The text of a file of ``cuda/``."""
    return (_HOME / "cuda" / name).read_text(encoding="utf-8")


def feature_levels_text() -> str:
    """The text of ``feature_levels.yaml``."""
    return (_HOME / "feature_levels.yaml").read_text(encoding="utf-8")


def parsed_yaml(text: str) -> Any:
    """The value of a YAML text, which is loaded safely; a yaml.YAMLError if it is malformed."""
    import yaml  # here, so that `import dmlsplit` does not load it

    # With PyYAML's optional C loader, `dmlsplit levels` is 30 ms faster.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, loader)  # noqa: S506, both loaders are safe
