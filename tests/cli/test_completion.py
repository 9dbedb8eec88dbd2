"""`completion`: each script runs in its shell, into which the test types like a user."""

import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.command import started

READY = "ready> "
PRINT = "dmlsplit() { printf 'got:'; printf '<%s>' \"$@\"; echo .; }\n"
ZSH = f"{PRINT}PS1='{READY}'\nfpath+=$PWD/.zfunc\nautoload -U compinit\ncompinit -u\n"
FISH = "function dmlsplit; printf 'got:'; printf '<%s>' $argv; echo .; end\n"
FISH += f"function fish_prompt; echo -n '{READY}'; end\nset fish_greeting\n"
# The command of a shell, its settings, their text, and the path for the script, as in our help.
SHELLS = {
    "bash": (
        *("bash --rcfile rc -i", "rc", f"{PRINT}PS1='{READY}'\n. completions/dmlsplit\n"),
        "completions/dmlsplit",
    ),
    "zsh": ("zsh -i", ".zshrc", ZSH, ".zfunc/_dmlsplit"),
    "fish": ("fish -i", "fish/config.fish", FISH, "fish/completions/dmlsplit.fish"),
}
# The text that is typed before Tab, and the words that the command then gets.
TYPED = {
    "val": ["validate"],
    "validate --feat": ["validate", "--feature-level"],
    "validate --format sar": ["validate", "--format", "sarif"],
    "validate mod": ["validate", "model.onnx"],
    "validate model.onnx ot": ["validate", "model.onnx", "other model.onnx"],
    "validate it": ["validate", "it's ü.onnx"],
    "validate --windows 19041 dee": ["validate", "--windows", "19041", "deep"],
    "validate model.onnx -o re": ["validate", "model.onnx", "-o", "report.txt"],
    "validate model.onnx --write-fixed mod": [
        "validate", "model.onnx", "--write-fixed", "model.onnx",
    ],
    "validate --windows 226": ["validate", "--windows", "22621"],
    "validate --directml 1.7": ["validate", "--directml", "1.7.0"],
    "explain --feature-level 4_1": ["explain", "--feature-level", "4_1"],
    "explain DML-SPLIT-AXIS-R": ["explain", "DML-SPLIT-AXIS-RANGE"],
    "explain mod": ["explain", "model.onnx"],
    "explain model.onnx --svg re": ["explain", "model.onnx", "--svg", "report.txt"],
    "run num": ["run", "numbers.npy"],
    "run numbers.npy -o de": ["run", "numbers.npy", "-o", "deep"],
}  # fmt: skip


class Terminal:
    """A shell on its own terminal."""

    def __init__(self, line: list[str], folder: Path) -> None:
        pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 200))
        homes = dict.fromkeys(("HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
        self._shown = ""
        self._child = subprocess.Popen(
            line,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={"PATH": os.environ["PATH"], "TERM": "xterm", **homes},
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_until(self, pattern: str) -> re.Match[str]:
        """The match in the output since the last match."""
        until = time.monotonic() + 30
        while not (found := re.search(pattern, self._shown)):
            left = until - time.monotonic()
            assert left > 0, self._shown
            assert select.select([self._ours], [], [], left)[0], self._shown
            self._shown += os.read(self._ours, 65536).decode(errors="replace")
        self._shown = self._shown[found.end() :]
        return found

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._ours)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_and_files(shell: str, here: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    line, settings, text, place = SHELLS[shell]
    script, _ = started("completion", shell, folder=here).communicate()
    models = ("model.onnx", "other model.onnx", "it's ü.onnx")
    for name in (*models, "report.txt", "numbers.npy", "deep/x", place):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(script)
    Path(settings).write_text(text)
    terminal = Terminal(line.split(), here)
    try:
        found = {}
        for typed in TYPED:
            terminal.read_until(READY)
            terminal.type(f"dmlsplit {typed}\t")
            terminal.type("\n")
            # zsh removes the slash after a folder when the line is entered.
            words = terminal.read_until(r"got:(<.*>)\.")[1].replace("/>", ">")
            found[typed] = re.findall("<(.*?)>", words)
    finally:
        terminal.close()
    assert found == TYPED
