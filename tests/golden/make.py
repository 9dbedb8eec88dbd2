"""Regenerates the golden files: run python -m tests.golden.make in the root, and read the diff."""

import os
import tempfile
from pathlib import Path

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.explain.picture import svg_picture
from tests.golden import commands, pages
from tests.golden.broken_rules import messages
from tests.support.command import ROOT

# README and the start page of the site show it.
PICTURE = ROOT / "docs" / "pictures" / "split.svg"
_RGB = dml.TensorDesc("UINT8", (1, 4, 8, 3))
PIXELS = dml.SplitOperatorDesc.from_sizes(_RGB, axis=3, sizes=(1, 1, 1))


def write() -> None:
    """Write every golden file."""
    PICTURE.write_text(svg_picture(PIXELS), encoding="utf-8")
    Path(__file__).with_name("rules.txt").write_text(messages(), encoding="utf-8")

    os.environ |= commands.ENVIRONMENT
    with tempfile.TemporaryDirectory() as folder:
        commands.write(Path(folder), main)
        pages.write(Path(folder), main)
    pages.write_level_table()


if __name__ == "__main__":  # The models that are compared run in spawned processes.
    write()
