"""Registers dmlsplit's operators with PyTorch; `dml.split` does so when it is first used."""

import dmlsplit.execution.torch  # noqa: F401
