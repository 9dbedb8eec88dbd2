"""Proof on the user's own device: environment, compilation, bytes, speed, and a report.

The package is not called `selftest`, which is the public function: no module has the name of
something beside it.
"""

from dmlsplit.self_test.report import SelfTest
from dmlsplit.self_test.stages import selftest

__all__ = ["SelfTest", "selftest"]
