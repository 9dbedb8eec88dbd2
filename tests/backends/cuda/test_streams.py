"""Streams of any library as handles."""

from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.streams import stream_handle


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0xAB


class CupyDefault(Protocol):
    device_id = -1


class TorchStream(Protocol):
    device_index = 0


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(0, 0), (7, 7), (Protocol(), 0xAB), (CupyDefault(), 0xAB), (TorchStream(), 0xAB)],
    ids=["default", "handle", "protocol", "CuPy", "torch"],
)
def test_a_stream_is_a_handle_or_has_the_stream_protocol(stream: Any, handle: int) -> None:
    assert stream_handle(stream, 0) == handle


class NotAPair:
    def __init__(self, result: Any) -> None:
        self.result = result

    def __cuda_stream__(self) -> Any:
        return self.result


@pytest.mark.parametrize(
    "stream",
    ["fast", -1, 2**63, True, 1.5, object(), *map(NotAPair, [None, 5, (0,), (0, "a"), (0, -1)])],
)
def test_an_object_that_is_not_a_stream_is_refused(stream: Any) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be None, a CUDA stream's handle"):
        stream_handle(stream, 0)


def test_a_stream_of_another_device_is_refused() -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"belongs to cuda:0.*cuda:1"):
        stream_handle(TorchStream(), 1)
