"""`completion`: scripts for three shells."""

import shutil
import subprocess
from pathlib import Path

from tests.support.command import started


def test_bash_completes_commands_and_options(here: Path) -> None:
    script, _ = started("completion", "bash", folder=here).communicate()
    Path("completion").write_bytes(script)
    ask = 'COMP_WORDS=(dmlsplit {0}); COMP_CWORD={1}; _shtab_dmlsplit; echo "${{COMPREPLY[@]}}"'

    def completed(words: str, at: int) -> str:
        line = f". ./completion; {ask.format(words, at)}"
        return subprocess.run(
            [shutil.which("bash") or "bash", "-c", line], capture_output=True, text=True, check=True
        ).stdout

    assert completed("val", 1).split() == ["validate"]
    assert "--feature-level" in completed("validate --feat", 2)
    assert completed("validate --format s", 3).split() == ["sarif"]
