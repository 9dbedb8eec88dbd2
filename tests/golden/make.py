"""Regenerates the golden files: run python -m tests.golden.make in the root, and read the diff."""

import os
import tempfile
from pathlib import Path

from dmlsplit.cli import main
from dmlsplit.explain.picture import svg_picture
from tests.golden import commands
from tests.golden.broken_rules import said
from tests.golden.picture import PICTURE, PIXELS


def write() -> None:
    """Write every golden file."""
    PICTURE.write_text(svg_picture(PIXELS), encoding="utf-8")
    Path(__file__).with_name("rules.txt").write_text(said(), encoding="utf-8")

    os.environ |= commands.ENVIRONMENT
    with tempfile.TemporaryDirectory() as folder:
        commands.write(Path(folder), main)


if __name__ == "__main__":  # The models that are compared run in spawned processes.
    write()
