"""All that is used of PyTorch without its promise to keep it: private and experimental names.

It is imported where there is a tensor. An error says at once which name a version has moved.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from dmlsplit.errors import UnsupportedError

try:
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor

    below_autograd = torch._C._AutoDispatchBelowAutograd
    check_with = torch._check_with
    not_compiled = torch._disable_dynamo
    dispatch_modes = torch._C._len_torch_dispatch_stack
    has_transforms = torch._C._are_functorch_transforms_active
    is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
    is_zero = torch.Tensor._is_zerotensor  # it has no memory
    jit_trace = torch._C._get_tracing_state
    forward_ad = torch.autograd.forward_ad
    _ = forward_ad._current_level, torch.UntypedStorage._cdata
except (AttributeError, ImportError) as error:
    raise UnsupportedError(
        f"PyTorch {torch.__version__} lacks a private name that dmlsplit uses ({error}). "
        "Fix: pip install 'dmlsplit[torch]'"
    ) from None


PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


@cache
def current_stream() -> Callable[[int], int]:
    """What tells the handle of torch's current stream on a device."""
    try:
        # What Triton uses: the public call makes a Stream, which takes several times as long.
        found: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    except AttributeError:
        return lambda device: int(torch.cuda.current_stream(device).cuda_stream)
    return found


def is_forward() -> bool:
    """Whether forward-mode differentiation is under way."""
    return bool(forward_ad._current_level >= 0)


def storage_of(tensor: Any) -> int:
    """A number that tells storages apart, also those without memory."""
    return int(tensor.untyped_storage()._cdata)


def known(number: Any) -> int:
    """The number in a shape that is traced, without limiting the graph to it."""
    # Imported here: it takes long, and plain tensors do not need it.
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    return int(optimization_hint(number, 1))
