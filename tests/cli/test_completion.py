"""Completion in a shell: shtab makes a script from our parser."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command import ran

# The words that a user has typed before Tab, the last one in part, and what bash offers.
TYPED = {
    "val": ["validate"],
    "validate --feat": ["--feature-level"],
    "validate --format sar": ["sarif"],
    "run --ov": ["--overwrite"],
}


def test_bash_completes_commands_options_and_choices(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    script = ran(sys.executable, "-m", "shtab", "--shell", "bash", "dmlsplit.cli.build_parser")
    assert script.returncode == 0, script.stderr
    (tmp_path / "script").write_text(script.stdout)
    for typed, completions in TYPED.items():
        line = f"""
. ./script
COMP_WORDS=(dmlsplit {typed}) COMP_CWORD={len(typed.split())}
_shtab_dmlsplit
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        process = ran("bash", "-c", line, cwd=tmp_path)
        assert process.stdout.split() == completions, (typed, process.stderr)
