"""``dmlsplit conformance``: cases for the real DirectML, observations of it, and differences."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import ACCEPTED, REFUSED, show, tell
from dmlsplit.errors import UnsupportedError

_NOT_RUN = """\
NOTHING OF THIS HAS RUN ON WINDOWS YET. The probe is tested on Linux, with a
stand-in for DirectML that has its binary interface. See docs/conformance.md."""

_DESCRIPTION = f"""\
Compare dmlsplit's rules with a real DirectML.dll: write makes a folder of cases,
probe asks a DirectML.dll about each of them, on Windows, and check says where
its answers differ. DirectML's licence allows its use on Windows only.

{_NOT_RUN}
"""

_EPILOG = """\
exit status:
  0  written, probed, or no difference    1  check found a difference
  2  wrong usage, or a file could not be read or written

examples:
  dmlsplit conformance write kit
  dmlsplit conformance probe --directml DirectML.dll -o observed.json
  dmlsplit conformance check observed.json
  dmlsplit conformance check observed.json --format markdown
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "compare the rules with a real DirectML.dll"
    parser = add_command(commands, conformance, summary, _DESCRIPTION, _EPILOG)
    steps = parser.add_subparsers(required=True, metavar="STEP")
    _add_write(steps)
    _add_probe(steps)
    _add_check(steps)


def conformance(arguments: argparse.Namespace) -> int:
    """Carry out a step: write, probe or check."""
    step: int = arguments.step(arguments)
    return step


def _add_write(steps: Commands) -> None:
    about = "Write the cases, DxDispatch models of them, and the probe: the same bytes every time."
    step = steps.add_parser("write", help="write the kit", description=about)
    step.add_argument("folder", type=Path, metavar="DIR", help="does not exist yet, or is empty")
    step.set_defaults(step=_write)


def _add_probe(steps: Commands) -> None:
    step = steps.add_parser(
        "probe",
        help="ask a DirectML.dll every case (Windows)",
        description="Ask a DirectML.dll every case, each in a child process.\n\n" + _NOT_RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    step.add_argument("--directml", type=Path, required=True, metavar="PATH", help="the library")
    step.add_argument(
        "--adapter", default="warp", metavar="warp|N", help="WARP (default), or a DXGI adapter"
    )
    step.add_argument("--debug", action="store_true", help="with the debug layers and their texts")
    step.add_argument(
        "--dxdispatch",
        type=Path,
        metavar="EXE",
        help="also run the DxDispatch models, for bytes and bindings; the same library lies beside",
    )
    step.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="of one case; default 60"
    )
    step.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a new file")
    step.set_defaults(step=_probe)


def _add_check(steps: Commands) -> None:
    about = "Hold an observation to the rules, at the level that the library was seen to have."
    step = steps.add_parser("check", help="say where an observation differs", description=about)
    step.add_argument("observed", type=Path, metavar="OBSERVED.json")
    step.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    step.set_defaults(step=_check)


def _write(arguments: argparse.Namespace) -> int:
    from dmlsplit.conformance.kit import write_kit

    count = write_kit(arguments.folder)
    show(f"{arguments.folder}: {count} files; copy it to Windows and run: python probe.py --help")
    return ACCEPTED


def _probe(arguments: argparse.Namespace) -> int:
    from dmlsplit.conformance import probe
    from dmlsplit.conformance.kit import write_kit

    output = arguments.output
    try:
        probe.check_new(output)
        with TemporaryDirectory() as folder:
            kit = Path(folder, "kit")
            write_kit(kit)
            found = probe.observe(
                kit / "cases.json", arguments.directml, arguments.adapter, arguments.debug,
                arguments.timeout, arguments.dxdispatch,
            )  # fmt: skip
        probe.write_new(output, found)
    except probe.UnusableError as error:
        raise UnsupportedError(str(error)) from None
    tell(f"{output}: {probe.counts(found)}")
    return ACCEPTED


def _check(arguments: argparse.Namespace) -> int:
    from dmlsplit.conformance.check import compare
    from dmlsplit.conformance.observation import read_observation
    from dmlsplit.conformance.report import REPORTS

    comparison = compare(read_observation(arguments.observed))
    show(REPORTS[arguments.format](comparison))
    return ACCEPTED if comparison.agrees else REFUSED
