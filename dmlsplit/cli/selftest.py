"""``dmlsplit selftest``: checks every byte on this machine's GPU, or on its CPU."""

import argparse
from pathlib import Path

from dmlsplit.cli.inputs import Commands, add_command, seconds
from dmlsplit.cli.terminal import (
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_UNUSABLE,
    STDOUT,
    print_message,
    print_result,
    progress_bar,
    write_result,
)

_DESCRIPTION = """\
Check on this machine's GPU that every byte of a split is right. The test
compiles every kernel and runs some 450 splits: as a launch, on a second
stream, and from a CUDA graph. Some run again in other kinds of memory, and
some extend beyond 4 GiB. Output bytes are compared with NumPy's, and the bytes
around the outputs must not change. A few splits are also timed and compared
with a plain copy and with what explain computes; a slow split fails only with
--strict. Last, the test runs kernels with deliberate faults, and fails if it
does not notice one.

Without a usable GPU, the CPU is tested in the same way. The report contains no
path, host name or user name."""
_STATUSES = {
    EXIT_OK: "every byte is right",
    EXIT_REFUSED: "a byte is wrong, or with --strict a split is too slow",
    EXIT_UNUSABLE: "the test could not run, missed an injected fault, or with --strict measured "
    "too few speeds, as always on a CPU; the report has the fix",
}
_EXAMPLES = "  dmlsplit selftest\n  dmlsplit selftest --device cuda:1 -o report.json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = (
        "check on this machine's GPU, or else on its CPU, that every split writes the right bytes"
    )
    parser = add_command(
        commands,
        selftest,
        summary=summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        statuses=_STATUSES,
    )
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: cuda:0 if it can be used, otherwise cpu)"
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=60,
        metavar="S",
        help="stop measuring speeds after this many seconds (default: 60)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if a split is slower than 0.95 (wide rows) or 0.9 (narrow rows) of a copy",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def selftest(arguments: argparse.Namespace) -> int:
    """Run the self-test, and show each line when it is known."""
    from dmlsplit.files.atomic import resolve_destination
    from dmlsplit.self_test import selftest as run

    if arguments.output not in (None, STDOUT) and not Path(arguments.output).exists():
        resolve_destination(Path(arguments.output))  # refused now, not after a minute
    is_text = arguments.format == "text"
    device = arguments.device
    limit = arguments.seconds
    strict = arguments.strict
    with progress_bar("splits", "") as progress:
        test = run(device, limit, print_result if is_text else None, progress, strict)
    print_result(test.summary if is_text else test.to_json())
    if arguments.output is not None:
        write_result(test.to_json(), arguments.output, ())
        print_message(f"note: the report is in {arguments.output}; it may be attached to an issue")
    return test.status
