"""Tensors that are refused, because their memory does not hold what they mean."""

from typing import Any

import torch


class Image(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass that has a tensor's memory."""


def two_tensors() -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.arange(6.0), torch.arange(6.0))


REFUSED = {
    "subclass": lambda: torch.arange(6.0).as_subclass(Image),
    "wrapper": two_tensors,
    "sparse": lambda: torch.arange(6.0).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.arange(6.0), 0.1, 3, torch.quint8),
    "quint4x2": lambda: torch.zeros(6, dtype=torch.uint8).view(torch.quint4x2),
}
