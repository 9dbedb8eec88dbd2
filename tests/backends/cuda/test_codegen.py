"""The source of a launch: complete, stable, small."""

import re
from dataclasses import replace
from pathlib import Path

from dmlsplit.backends.cuda.codegen import source
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import Constant, plan
from dmlsplit.geometry import split_geometry
from tests.support.descriptors import packed

KERNELS = Path(__file__).parents[3] / "cuda"


def test_a_source_is_constants_then_common_then_the_kernel() -> None:
    (launch,) = plan(packed((64, 48), 1, (16, 32), 1), 16, 16, H200.limits)
    text = source(launch)
    assert "constexpr int kOutputs = 4;\n" in text
    assert "    unsigned widths[4];\n" in text
    assert text.index("kOutputs = 4") < text.index('#line 1 "common.cuh"')
    assert text.index('#line 1 "common.cuh"') < text.index('#line 1 "rows.cu"')
    assert text.endswith((KERNELS / "rows.cu").read_text())
    assert text == source(launch)


def test_large_and_negative_numbers_are_typed() -> None:
    geometry = split_geometry((512, 512), 1, (512,), 4, (4, 2048), [None])
    (launch,) = plan(geometry, 16, 16, H200.limits)
    far = Constant("long long", "kBefore", -(2**33)), Constant("long long", "kBehind", 2**36)
    text = source(replace(launch, own_constants=(*launch.own_constants, *far)))
    assert "constexpr long long kBefore = -8589934592ll;\n" in text
    assert "constexpr long long kBehind = 68719476736ull;\n" in text
    (launch,) = plan(packed((1 << 34, 3), 1, (1, 2), 1), 1, 1, H200.limits)
    assert "    unsigned long long places[4];\n" in source(launch)


def test_thousands_of_outputs_stay_small() -> None:
    for launch in plan(packed((8, 8000), 1, (1, 3) * 2000, 1), 16, 16, H200.limits):
        assert len(source(launch)) < 100_000


def test_every_kernel_file_has_one_entry_of_its_name_and_a_header() -> None:
    for path in KERNELS.glob("*.cu"):
        text = path.read_text()
        assert re.findall(r'extern "C" __global__ void __launch.*?\) (\w+)\(', text) == [path.stem]
        assert text.startswith("// ")
        assert "#include" not in text
