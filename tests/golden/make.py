"""Writes the golden files anew, from the root: python -m tests.golden.make. Read the diff."""

import os
import tempfile
from pathlib import Path

from dmlsplit.cli import main
from dmlsplit.explain.picture import svg_picture
from tests.explain.test_picture import described
from tests.golden import commands
from tests.golden.broken_rules import said


def write() -> None:
    """Write every golden file."""
    desc = described("UINT8", (3, 6), 1, (1, 2, 3))
    picture = svg_picture(desc)
    Path(__file__).with_name("picture.svg").write_text(picture, encoding="utf-8")

    Path(__file__).with_name("rules.txt").write_text(said(), encoding="utf-8")

    os.environ |= commands.ENVIRONMENT
    with tempfile.TemporaryDirectory() as folder:
        commands.write(Path(folder), main)


if __name__ == "__main__":  # The models that are compared run in spawned processes.
    write()
