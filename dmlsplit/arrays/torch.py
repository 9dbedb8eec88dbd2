"""PyTorch's tensors, on the CPU and on CUDA devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import (
    Adapter,
    Context,
    Shape,
    Shapes,
    allocate,
    not_shared,
    type_name,
)
from dmlsplit.arrays.array_view import ArrayView, device_number, type_string
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.errors import InvalidArgumentError


class _Torch(Adapter):
    def view(self, tensor: Any, name: str) -> ArrayView:
        _check_memory(tensor, name)
        if tensor.is_conj() or tensor.is_neg():
            raise InvalidArgumentError(
                f"{name} is a view that torch conjugates or negates when it is read; its bytes are "
                "those of another tensor. Fix: resolve_conj().resolve_neg()"
            )
        width = tensor.element_size()
        try:
            address, shape, steps = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
            if not address and tensor.numel():
                raise RuntimeError("it has no memory")
        except RuntimeError as error:  # nested, or inside a transform of torch.func
            raise not_shared(tensor, name, error) from None
        return ArrayView(
            tensor,
            address,
            shape,
            tuple(step * width for step in steps),
            _type_string(tensor.dtype),
            width,
            # torch itself refuses to write where it would have to track gradients.
            bool(tensor.requires_grad),
            f"cuda:{tensor.device.index}" if tensor.is_cuda else "cpu",
        )

    def empty(self, like: ArrayView, shapes: Shapes, dtype: str | None = None) -> list[Any]:
        empty, device = _torch().empty, like.owner.device
        kind = like.owner.dtype if dtype is None else _dtype(dtype)
        return allocate(
            like, lambda shape, kind: empty(shape, dtype=kind, device=device), shapes, kind
        )

    def strided(self, like: ArrayView, shape: Shape, strides: Shape, dtype: str, size: int) -> Any:
        width = np.dtype(dtype).itemsize
        (store,) = self.empty(like, [(size // width,)], dtype)
        return store.as_strided(shape, [step // width for step in strides])

    def addresses(self, made: list[Any]) -> list[int]:
        return [tensor.data_ptr() for tensor in made]

    def current_stream(self, tensor: Any) -> Callable[[], int] | None:
        if not tensor.is_cuda:
            return None
        current, device = _torch().cuda.current_stream, tensor.device
        return lambda: int(current(device).cuda_stream)

    def allocating_on(self, like: ArrayView, stream: Stream | None) -> Context:
        if stream is None or like.device == "cpu":
            return nullcontext()
        cuda, handle = _torch().cuda, stream_handle(stream, device_number(like.device))
        context: Context = cuda.stream(cuda.ExternalStream(handle, device=like.device))
        return context

    def packed(self, tensor: Any, name: str) -> Any:
        _check_memory(tensor, name)
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def reinterpreted(self, tensor: Any, dtype: Any, shape: Shape) -> Any:
        kind = _dtype(dtype) if isinstance(dtype, str) else dtype
        return super().reinterpreted(tensor, kind, shape)


def _check_memory(tensor: Any, name: str) -> None:
    """Refuse tensors whose memory, if any, does not hold their elements one by one."""
    if type(tensor).__torch_dispatch__ is not _torch().Tensor.__torch_dispatch__:
        raise InvalidArgumentError(
            f"{name} is a {type_name(tensor)}, which has no memory of its own; it must be a plain "
            "tensor"
        )
    if tensor.device.type not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        raise InvalidArgumentError(
            f"{name} is a {tensor.layout} tensor on {tensor.device}; it must be a torch.strided "
            "one on the CPU or a CUDA device"
        )
    if tensor.is_quantized:
        raise InvalidArgumentError(
            f"{name} is quantized; its pieces would lose scale and zero point. Fix: int_repr()"
        )


def _torch() -> Any:
    """Return the module, which is imported where there is a tensor."""
    return sys.modules["torch"]


@cache
def _type_string(dtype: Any) -> str:
    """Return NumPy's type string of a type of torch; torch's name where NumPy has none."""
    name = str(dtype).removeprefix("torch.")
    try:
        return type_string(np.dtype(name))
    except TypeError:
        return name


def _dtype(name: str) -> Any:
    return getattr(_torch(), np.dtype(name).name)


TORCH = _Torch()
