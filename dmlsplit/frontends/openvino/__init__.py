"""OpenVINO: VariadicSplit-1 and Split-1 on arrays and in IR files, without OpenVINO itself."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.lowering import Lowering
from dmlsplit.frontends.openvino.lowering import lower_split, lower_variadic_split
from dmlsplit.frontends.openvino.scanner import scan
from dmlsplit.frontends.public import lazy_getattr

if TYPE_CHECKING:
    from dmlsplit.frontends.openvino.runner import split, variadic_split

__all__ = ["Lowering", "lower_split", "lower_variadic_split", "scan", "split", "variadic_split"]
__getattr__ = lazy_getattr(__name__, {"runner": "split variadic_split"})
