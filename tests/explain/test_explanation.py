"""Explanations: geometry, kernels, bytes and time of a split."""

import json

import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import GPUS, find_gpu, gpu_of_device
from dmlsplit.backends.cuda.nvml import CudaDevice
from dmlsplit.explain.explanation import (
    Explanation,
    explain,
    explanation_json,
    explanation_text,
    explanations_text,
)
from tests.support.descriptors import split_descriptors


def explained(
    data_type: str, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...], gpu: str = "H200"
) -> Explanation:
    x = dml.TensorDesc(data_type, shape)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=axis, sizes=sizes)
    return explain("here", desc, find_gpu(gpu))


def test_time_is_bytes_divided_by_bandwidth() -> None:
    shown = explained("FLOAT32", (1024, 1024, 256), 0, (512, 512))
    assert shown.geometry.total_bytes == 1 << 30
    assert shown.seconds == pytest.approx((2 << 30) / 4.8e12)
    slow = explained("FLOAT32", (1024, 1024, 256), 0, (512, 512), "T4")
    assert slow.seconds == pytest.approx(15 * shown.seconds)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((4, 6), "time: less than 1 us at 4800 GB/s (H200), plus the launch"),
        ((4800, 1000), "time: at least 8 us at 4800 GB/s (H200), plus the launch"),
        ((48, 1_000_000), "time: at least 80 us at"),
        ((4800, 100_000), "time: at least 800 us at"),
        ((48_000, 80_000), "time: at least 6.4 ms at"),
    ],
)
def test_a_time_has_a_sensible_unit_and_is_marked_as_computed(
    shape: tuple[int, int], said: str
) -> None:
    shown = explained("FLOAT32", shape, 1, (shape[1] - 1, 1))
    text = " ".join(explanations_text([shown, shown]).split())
    assert text.count(said) == 2
    assert text.endswith("Times are computed, not measured: no GPU has run dmlsplit yet.")
    assert text.count("no GPU has run dmlsplit yet") == 1
    (record,) = json.loads(explanation_json([shown]))["splits"]
    assert "no GPU has run dmlsplit yet" in record["seconds_note"]


def test_a_strided_split_shows_its_loops() -> None:
    x = dml.TensorDesc("UINT8", (4, 6), strides=(1, 4))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4))
    text = explanation_text(explain("here", desc, GPUS[0]))
    assert "geometry: strided" in text
    assert "output 1: 16 elements, 1 byte from byte 8, 4 times (read +1, write +4)" in text


def test_assumptions_about_an_unknown_gpu_are_listed() -> None:
    unknown = gpu_of_device(CudaDevice(0, "Voodoo 2", None, "9.0", None, None, None, None, 128))
    x = dml.TensorDesc("UINT8", (4, 6))
    shown = explain("here", dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4)), unknown)
    text = explanation_text(shown)
    assert "time: unknown, because the bandwidth of Voodoo 2 is unknown" in text
    assert "assumed: 50 MiB of L2 cache, the least of the known GPUs" in text
    (record,) = json.loads(explanation_json([shown]))["splits"]
    assert (record["seconds"], record["assumed"]) == (None, list(unknown.assumed))


@given(desc=split_descriptors())
def test_every_descriptor_can_be_explained(desc: dml.SplitOperatorDesc) -> None:
    shown = explain("here", desc, GPUS[0])
    (record,) = json.loads(explanation_json([shown]))["splits"]
    written = {output for launch in record["launches"] for output in launch["outputs"]}
    assert written == set(range(desc.output_count))
    assert sum(launch["total_bytes"] for launch in record["launches"]) == record["bytes_written"]
    assert max(map(len, explanation_text(shown).splitlines())) <= 80
