"""Short names for the types of pytest's fixtures."""

import pytest

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
