"""``python -m tests.conformance``: writes the kit for Windows, and checks what came back.

NONE OF THIS HAS RUN ON WINDOWS YET. The probe is tested on Linux, with a stand-in for DirectML that
has its binary interface. See docs/conformance.md.
"""

import argparse
import sys
from pathlib import Path

from dmlsplit.errors import DmlError, one_line
from tests.conformance.cases import write_kit
from tests.conformance.check import compare

DONE, DIFFERS, UNUSABLE = range(3)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description=__doc__,
        epilog=f"exit status: {DONE} done, or no difference; {DIFFERS} a difference that counts; "
        f"{UNUSABLE} wrong usage, or a file that cannot be read or written",
    )
    steps = parser.add_subparsers(metavar="STEP", required=True)
    step = steps.add_parser("write", help="write the kit; its files are the same every time")
    step.add_argument("kit", type=Path, metavar="KIT", help="a new folder")
    step.set_defaults(run=write)
    step = steps.add_parser("check", help="show where an observation differs from the rules")
    step.add_argument("observed", type=Path, metavar="OBSERVED.json")
    step.set_defaults(run=check)
    return parser


def write(arguments: argparse.Namespace) -> int:
    write_kit(arguments.kit)
    sys.stdout.write(f"{arguments.kit}: copy it to Windows and run: python probe.py --help\n")
    return DONE


def check(arguments: argparse.Namespace) -> int:
    comparison = compare(arguments.observed)
    sys.stdout.write(f"{comparison}\n")
    return DONE if comparison.agrees else DIFFERS


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (DmlError, OSError) as error:
        sys.stderr.write(f"error: {one_line(error)}\n")
        return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
