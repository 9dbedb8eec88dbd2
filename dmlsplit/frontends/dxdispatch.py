"""DxDispatch: runs the DML_OPERATOR_SPLITs of the JSON models of Windows' dxdispatch.exe."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.public import lazy_getattr
from dmlsplit.models.dxdispatch.descriptor import read_descriptor
from dmlsplit.models.dxdispatch.scanner import scan

if TYPE_CHECKING:
    from dmlsplit.execution.dxdispatch.model import Model, load
    from dmlsplit.execution.dxdispatch.runner import Result, run

__all__ = ["Model", "Result", "load", "read_descriptor", "run", "scan"]
__getattr__ = lazy_getattr(
    __name__,
    {"execution.dxdispatch.model": "Model load", "execution.dxdispatch.runner": "Result run"},
)
