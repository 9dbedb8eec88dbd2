"""Children that compare models without starting Python and importing the runtimes each time.

They are forked from a process that has imported the runtimes. The library itself starts every child
from the beginning, also for the golden transcripts.
"""

import multiprocessing
from functools import cache

import pytest

from dmlsplit.lint.fix import comparison

_IMPORTED = ["numpy", "onnx.reference", "onnxruntime", "pytest"]


@cache
def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the children of `compare_models` for this test."""
    monkeypatch.setattr(comparison, "PROCESSES", _context())
