"""Imports the public names of a front end when they are first used.

Their modules import NumPy, which scanning a file does not need.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_getattr(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module that hands on these names of modules of dmlsplit."""

    def find(name: str) -> Any:
        for module, names in modules.items():
            if name in names.split():
                value = getattr(import_module(f"dmlsplit.{module}"), name)
                setattr(sys.modules[package], name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
