"""DxDispatch: runs the DML_OPERATOR_SPLITs of the JSON models of Windows' dxdispatch.exe."""

from dmlsplit.frontends.dxdispatch.descriptor import read_descriptor
from dmlsplit.frontends.dxdispatch.model import Model, load
from dmlsplit.frontends.dxdispatch.runner import Result, run
from dmlsplit.frontends.dxdispatch.scanner import scan

__all__ = ["Model", "Result", "load", "read_descriptor", "run", "scan"]
