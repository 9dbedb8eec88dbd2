"""Fixtures of the ONNX front end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[[Any], list[SplitSite]]:
    def scan_model(content: Any) -> list[SplitSite]:
        path = tmp_path / "model.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return scan(path)

    return scan_model
