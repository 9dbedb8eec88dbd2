"""Fixtures of the ONNX front end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[..., list[SplitSite]]:
    """Write a model and scan it, with any options of `scan`."""

    def scan_model(content: Any, **options: Any) -> list[SplitSite]:
        path = tmp_path / "model.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return scan(path, **options)

    return scan_model
