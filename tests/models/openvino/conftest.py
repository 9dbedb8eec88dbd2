"""Fixtures of the OpenVINO front end."""

from pathlib import Path

import pytest

from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.openvino import scan
from tests.support.openvino_files import Scan


@pytest.fixture
def scanned(tmp_path: Path) -> Scan:
    """The splits of an IR, given as the text of its XML and the bytes of its weights."""

    def run(xml: str | bytes, bin_bytes: bytes | None = None) -> list[SplitSite]:
        path = tmp_path / "model.xml"
        path.write_bytes(xml.encode() if isinstance(xml, str) else xml)
        weights_path = tmp_path / "model.bin"
        weights_path.unlink(missing_ok=True)
        if bin_bytes is not None:
            weights_path.write_bytes(bin_bytes)
        return scan(path)

    return run
