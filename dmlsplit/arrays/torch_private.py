"""All private and experimental names of PyTorch that dmlsplit uses.

This module is imported with the first tensor. Its error names what a version of PyTorch lacks.
"""

import sys
from functools import partial
from typing import Any

import torch

from dmlsplit.errors import UnsupportedError

try:
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor

    below_autograd = torch._C._AutoDispatchBelowAutograd
    check_with = torch._check_with
    neg_view = torch._neg_view
    not_compiled = torch._disable_dynamo
    dispatch_modes = torch._C._len_torch_dispatch_stack
    # Modes before autograd, such as that of make_fx(pre_dispatch=True), are on another stack.
    is_pre_dispatch = partial(
        torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
    )
    # The public function also asks whether it was given one tensor, which takes longer than this.
    increment_version = torch._C._increment_version
    has_transforms = torch._C._are_functorch_transforms_active
    is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
    is_jit_tracing = torch._C._is_tracing
    # The public call makes a Stream, which takes several times as long; Triton calls this one, too.
    # A PyTorch without CUDA lacks it.
    current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    forward_ad = torch.autograd.forward_ad
    _ = forward_ad._current_level, torch.UntypedStorage._cdata
except (AttributeError, ImportError) as error:
    raise UnsupportedError(
        f"PyTorch {torch.__version__} lacks a private name that dmlsplit uses ({error}). "
        "Fix: pip install 'dmlsplit[torch]'"
    ) from None


PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))


def is_forward_mode() -> bool:
    """Whether forward-mode differentiation is active."""
    return bool(forward_ad._current_level >= 0)


def storage_of(tensor: Any) -> int:
    """A number that identifies a storage, even one without memory."""
    return int(tensor.untyped_storage()._cdata)


def example_value(number: Any) -> int:
    """An example value of a number in a traced shape. The graph is not limited to it."""
    # Imported here because it takes long and plain tensors do not need it.
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    return int(optimization_hint(number, 1))


def inductor_decompositions() -> list[dict[Any, Any]]:
    """Inductor's tables of decompositions; none if it is not imported yet."""
    inductor: Any = sys.modules.get("torch._inductor.decomposition")
    if not hasattr(inductor, "select_decomp_table"):
        return []
    return [inductor.decompositions, inductor.select_decomp_table()]


def keep_in_inductor(operator: Any) -> None:
    """Make Inductor call an operator, although the operator has a decomposition."""
    from torch._inductor import lowering

    if operator not in lowering.lowerings:
        lowering.make_fallback(operator, warn=False, override_decomp=True)
