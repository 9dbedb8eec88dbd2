"""DxDispatch: runs the DML_OPERATOR_SPLITs of the JSON models of Windows' dxdispatch.exe."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.dxdispatch.descriptor import read_descriptor
from dmlsplit.frontends.dxdispatch.scanner import scan
from dmlsplit.frontends.public import lazy_getattr

if TYPE_CHECKING:
    from dmlsplit.frontends.dxdispatch.model import Model, load
    from dmlsplit.frontends.dxdispatch.runner import Result, run

__all__ = ["Model", "Result", "load", "read_descriptor", "run", "scan"]
__getattr__ = lazy_getattr(__name__, {"model": "Model load", "runner": "Result run"})
