"""OpenVINO: VariadicSplit-1 and Split-1 on arrays and in IR files, without OpenVINO itself."""

from dmlsplit.frontends.lowering import Lowering
from dmlsplit.frontends.openvino.lowering import lower_split, lower_variadic_split
from dmlsplit.frontends.openvino.runner import split, variadic_split
from dmlsplit.frontends.openvino.scanner import scan

__all__ = ["Lowering", "lower_split", "lower_variadic_split", "scan", "split", "variadic_split"]
