"""``dmlsplit selftest``: proof on this machine's own card, or CPU."""

import argparse

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import ACCEPTED, REFUSED, UNUSABLE, deliver, progress_bar, show, tell

_DESCRIPTION = """\
Prove on this machine that splits are right. Every kernel is compiled, and some
70 splits run: launched, on a second stream, and replayed from a CUDA graph. Some
run again in other kinds of memory, and one on rows that span more than 4 GiB.
Every byte is compared with NumPy's, and so are the bytes around the outputs. Then
kernels that are wrong on purpose must be noticed. Last, a few splits are timed
beside a plain copy and what explain predicts; a speed fails only with --strict.

Without a usable card, the CPU is tested in the same way. The report has no path,
and no name of a host or user."""
_STATUSES = {
    ACCEPTED: "every byte is right",
    REFUSED: "a byte is wrong, or with --strict a split is too slow",
    UNUSABLE: "the test could not run, or proved nothing; the report has the fix",
}
_EXAMPLES = "  dmlsplit selftest\n  dmlsplit selftest --device cuda:1 -o report.json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "prove on this machine's GPU that every kernel gives the right bytes"
    parser = add_command(commands, selftest, summary, _DESCRIPTION, _EXAMPLES, _STATUSES)
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: cuda:0 if it is usable, else cpu)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        metavar="S",
        help="after these, measure no further speed (default: 60)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if a split reaches less of a copy's speed than is promised for a GPU",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def selftest(arguments: argparse.Namespace) -> int:
    """Run the self-test, and show each line when it is known."""
    from dmlsplit.self_test import selftest as run

    is_text = arguments.format == "text"
    device, seconds, strict = arguments.device, arguments.seconds, arguments.strict
    with progress_bar("splits", "") as progress:
        test = run(device, seconds, show if is_text else None, progress, strict)
    show(test.summary if is_text else test.to_json())
    if arguments.output is not None:
        deliver(test.to_json(), arguments.output, ())
        tell(f"note: the report is in {arguments.output}; it may be attached to an issue")
    return test.status
