"""The self-test's own kernel: NVIDIA's compiler keeps what its checks rest on."""

import re
from pathlib import Path

import pytest

from dmlsplit.self_test import probe
from tests.proofs.test_sass import ARCHES
from tests.sass import listing
from tests.support import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


@pytest.mark.parametrize("arch", ARCHES)
def test_the_probe_reads_the_number_of_its_sm_and_its_table_is_kept(
    arch: str, builds: Path
) -> None:
    cubin = nvrtc.compile_cubin(probe.CODE.source, arch, builds)
    (code,) = nvrtc.disassemble([listing.code(cubin)], arch, builds)
    assert "SR_VIRTUALSMID" in code
    assert "NANOSLEEP" in code
    assert len(re.findall(r"\bST[.G]", code)) >= 2  # the mark, and an entry of the table
    assert nvrtc.resources(cubin, builds).local_bytes == 0
    # The table's section and its size.
    assert b".nv.global" in cubin
    assert probe.TABLE_BYTES.to_bytes(8, "little") in cubin


def test_the_constants_of_the_probe_are_those_of_its_source() -> None:
    text = probe.CODE.source
    assert f"kMaxMultiprocessors = {probe.MAX_MULTIPROCESSORS};" in text
    assert f"kTableBytes = {probe.TABLE_BYTES >> 20}u << 20;" in text
