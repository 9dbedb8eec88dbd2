"""OpenVINO: VariadicSplit-1 and Split-1 on arrays and in IR files, without OpenVINO itself."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.public import lazy_getattr
from dmlsplit.models.lowering import Lowering
from dmlsplit.models.openvino.lowering import lower_split, lower_variadic_split
from dmlsplit.models.openvino.scanner import scan

if TYPE_CHECKING:
    from dmlsplit.execution.openvino import split, variadic_split

__all__ = ["Lowering", "lower_split", "lower_variadic_split", "scan", "split", "variadic_split"]
__getattr__ = lazy_getattr(__name__, {"execution.openvino": "split variadic_split"})
