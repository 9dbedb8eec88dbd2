"""`dml.split` of DTensors of PyTorch, if each device has the whole axis."""

import sys

import pytest

from tests.support.command import ROOT, ran


def test_each_device_splits_its_own_part() -> None:
    """The test runs in a process of its own, because a process has only one process group."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this PyTorch has no torch.distributed")
    cases = ROOT / "tests" / "support" / "torch_distributed.py"
    done = ran(sys.executable, str(cases), env={"GLOO_SOCKET_IFNAME": "lo"})
    assert done.stdout == "done\n", done.stderr
