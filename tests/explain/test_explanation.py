"""Explanations: geometry, kernels, bytes and time of a split."""

import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import GPUS, find_gpu, gpu_of_device
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.explain.explanation import _percent, explanation_text, explanations_text
from tests.support.descriptors import split_descriptors
from tests.support.fake_nvml import cuda_device


def explained(data_type: str, shape: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """The explanation of a split of the last axis, on one line."""
    x = dml.TensorDesc(data_type, shape)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=len(shape) - 1, sizes=sizes)
    return " ".join(explanation_text("here", desc, find_gpu("H200")).split())


@pytest.mark.parametrize(
    ("shape", "time_text"),
    [
        ((4, 6), "time: less than 1 us at 4800 GB/s (H200), plus the launch"),
        ((4800, 1000), "time: at least 8 us at 4800 GB/s (H200), plus the launch"),
        ((48, 1_000_000), "time: at least 80 us at"),
        ((4800, 100_000), "time: at least 800 us at"),
        ((48_000, 80_000), "time: at least 6.4 ms at"),
    ],
)
def test_a_time_has_a_sensible_unit_and_is_marked_as_computed(
    shape: tuple[int, int], time_text: str
) -> None:
    x = dml.TensorDesc("FLOAT32", shape)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(shape[1] - 1, 1))
    text = " ".join(explanations_text([("here", desc)] * 2, find_gpu("H200")).split())
    assert text.count(time_text) == 2
    assert text.endswith("Times are computed, not measured: no GPU has run dmlsplit yet.")
    assert text.count("no GPU has run dmlsplit yet") == 1


def test_assumptions_about_an_unknown_gpu_are_listed() -> None:
    device = cuda_device(name="Voodoo 2", compute_capability="9.0", cuda_cores=128)
    unknown = gpu_of_device(device)
    x = dml.TensorDesc("UINT8", (4, 6))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4))
    text = explanation_text("here", desc, unknown)
    assert "time: unknown, because the bandwidth of Voodoo 2 is unknown" in text
    assert "assumed: 50 MiB of L2 cache, the least of the known GPUs" in text


@given(desc=split_descriptors())
def test_every_descriptor_can_be_explained(desc: dml.SplitOperatorDesc) -> None:
    text = explanation_text("here", desc, GPUS[0])
    assert max(map(len, text.splitlines())) <= 80
    total = descriptor_geometry(desc).total_bytes
    assert f"bytes: {total} read, {total} written" in text


@pytest.mark.parametrize(
    ("share", "text"), [(0.00371, "0.37 %"), (0.0379, "3.8 %"), (0.378, "38 %"), (1.96, "196 %")]
)
def test_a_share_in_percent_has_no_exponent(share: float, text: str) -> None:
    assert _percent(share) == text
