"""``dmlsplit conformance``: cases for a real DirectML, observations of it, and differences."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from dmlsplit.cli.inputs import Commands, add_command, add_commands, epilog
from dmlsplit.cli.terminal import ACCEPTED, REFUSED, STDOUT, show, tell
from dmlsplit.errors import UnsupportedError

_NOT_RUN = """\
NONE OF THIS HAS RUN ON WINDOWS YET. The probe is tested on Linux, with a
stand-in for DirectML that has its binary interface. See docs/conformance.md."""

_DESCRIPTION = f"""\
Compare dmlsplit's rules with a real DirectML.dll: write makes a folder of
cases, probe asks a DirectML.dll on Windows about each of them, and check shows
where its answers differ from the rules. DirectML's licence allows its use on
Windows only.

{_NOT_RUN}
"""

_WRITE = "  dmlsplit conformance write kit"
_PROBE = "  dmlsplit conformance probe --directml DirectML.dll -o observed.json"
_CHECK = """\
  dmlsplit conformance check observed.json
  dmlsplit conformance check observed.json --format markdown
"""

_STATUSES = {ACCEPTED: "done; for check, no difference", REFUSED: "a difference was found"}


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "conformance",
        help="compare the rules with a real DirectML.dll",
        description=_DESCRIPTION,
        epilog=epilog(_STATUSES, f"{_WRITE}\n{_PROBE}\n{_CHECK}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps = add_commands(parser, "STEP")

    about = (
        "Write the cases, DxDispatch models of them, and the probe. The files are the\n"
        "same every time."
    )
    step = add_command(steps, _write, "write the kit", about, _WRITE, {ACCEPTED: "written"})
    step.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")

    about = "Ask a DirectML.dll about every case, in child processes.\n\n" + _NOT_RUN
    summary = "ask a DirectML.dll about every case (Windows)"
    statuses = {ACCEPTED: "every case has an answer"}
    step = add_command(steps, _probe, summary, about, _PROBE, statuses)
    # The probe has these options too; to import it here would delay the start of every command.
    step.add_argument("--directml", type=Path, required=True, metavar="PATH", help="the library")
    step.add_argument(
        "--adapter", default="warp", metavar="warp|N", help="WARP (default), or a DXGI adapter"
    )
    step.add_argument(
        "--debug", action="store_true", help="use the debug layers, and record their messages"
    )
    step.add_argument(
        "--dxdispatch",
        type=Path,
        metavar="EXE",
        help="also run the DxDispatch models with this program, which shows bytes and bindings; "
        "the same library must be next to it",
    )
    step.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for one case; default 60"
    )
    step.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="a new file; - is stdout"
    )

    about = "Compare an observation with the rules, at the feature level of the library."
    summary = "show where an observation differs from the rules"
    statuses = {ACCEPTED: "no difference", REFUSED: _STATUSES[REFUSED]}
    step = add_command(steps, _check, summary, about, _CHECK, statuses)
    step.add_argument("observed", type=Path, metavar="OBSERVED.json")
    step.add_argument("--format", choices=("text", "json", "markdown"), default="text")


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
        if str(output) != STDOUT:
            probe.check_new(output)
        with TemporaryDirectory() as folder:
            kit = Path(folder, "kit")
            write_kit(kit)
            found = probe.observe(
                kit / "cases.json", arguments.directml, arguments.adapter, arguments.debug,
                arguments.timeout, arguments.dxdispatch,
            )  # fmt: skip
        if str(output) == STDOUT:
            show(probe.json_lines(found).removesuffix("\n"))
        else:
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
