"""Dask clusters of processes that import this tree."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.command import ROOT


@contextmanager
def two_workers() -> Iterator[Any]:
    """A cluster of two worker processes with a thread and a gigabyte each."""
    from distributed import LocalCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1GB"
        ) as cluster:
            yield cluster
