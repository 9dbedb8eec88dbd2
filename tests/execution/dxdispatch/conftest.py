"""Fixtures of the DxDispatch front end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch import Run, model, writes


@pytest.fixture
def ran(tmp_path: Path) -> Run:
    """Write a model and run it on the CPU; gives the printed lines."""

    def write_and_run(content: Any, level: str = "6_4") -> list[str]:
        path = tmp_path / "model.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return list(run(path, dml.Device("cpu", level)).lines)

    return write_and_run


@pytest.fixture
def contents(ran: Run, tmp_path: Path) -> Callable[[dict[str, Any]], np.ndarray]:
    """Run a model that writes a resource; gives its elements, with padding to 4 bytes."""

    def final(resource: dict[str, Any]) -> np.ndarray:
        ran(model(resources={"X": resource}, commands=[writes("X", "x.npy")]))
        return np.load(tmp_path / "x.npy")

    return final


@pytest.fixture
def refused(ran: Run) -> Callable[[Any], str]:
    """Run a model that must be refused; gives the message."""

    def refusal(content: Any) -> str:
        with pytest.raises(InvalidArgumentError) as error:
            ran(content)
        assert "model.json: " in str(error.value)
        return str(error.value)

    return refusal
