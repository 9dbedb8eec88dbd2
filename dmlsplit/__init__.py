"""DirectML's Split operator on the CPU and CUDA, and a validator that says why a split is refused.

>>> import dmlsplit as dml
>>> x = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))
>>> desc = dml.SplitOperatorDesc.from_sizes(x, axis=2, sizes=(2, 1, 3))
>>> dml.validate(desc, feature_level="1_0").ok
True
"""

from dmlsplit.forks import late_import as _late_import

TYPE_CHECKING = False  # not from `typing`, whose import takes longer than this whole module
if TYPE_CHECKING:
    from typing import Any

    from dmlsplit.directml.legalization import legalize
    from dmlsplit.directml.levels import FeatureLevel
    from dmlsplit.directml.operator import SplitOperatorDesc
    from dmlsplit.directml.rules.violation import ValidationReport, Violation
    from dmlsplit.directml.tensor import TensorDataType, TensorDesc, TensorFlags
    from dmlsplit.directml.validation import minimum_feature_level, validate
    from dmlsplit.errors import (
        DeviceRemovedError,
        DmlError,
        InvalidArgumentError,
        OutOfMemoryError,
        UnsupportedError,
    )
    from dmlsplit.execution.binding import BufferBinding
    from dmlsplit.execution.device import BoundOperator, CompiledOperator, Device
    from dmlsplit.execution.eager import split
    from dmlsplit.self_test import SelfTest, selftest

__version__ = "0.1.0"

__all__ = [
    "BoundOperator",
    "BufferBinding",
    "CompiledOperator",
    "Device",
    "DeviceRemovedError",
    "DmlError",
    "FeatureLevel",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "SelfTest",
    "SplitOperatorDesc",
    "TensorDataType",
    "TensorDesc",
    "TensorFlags",
    "UnsupportedError",
    "ValidationReport",
    "Violation",
    "legalize",
    "minimum_feature_level",
    "selftest",
    "split",
    "validate",
]

_MODULES = {
    "execution.binding": "BufferBinding",
    "execution.device": "BoundOperator CompiledOperator Device",
    "directml.legalization": "legalize",
    "directml.levels": "FeatureLevel",
    "directml.operator": "SplitOperatorDesc",
    "directml.rules.violation": "ValidationReport Violation",
    "directml.tensor": "TensorDataType TensorDesc TensorFlags",
    "directml.validation": "minimum_feature_level validate",
    "execution.eager": "split",
    "self_test": "SelfTest selftest",
    "errors": "DeviceRemovedError DmlError InvalidArgumentError OutOfMemoryError UnsupportedError",
}


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used.

    NumPy is then not loaded yet when the command installs its signal handlers, so an interrupt
    during the slow imports ends the command with one line.
    """
    for module, names in _MODULES.items():
        if name in names.split():
            with _late_import():
                from importlib import import_module

                globals()[name] = getattr(import_module(f"dmlsplit.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module 'dmlsplit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
