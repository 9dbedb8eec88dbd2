"""`python -m benchmarks COMMAND`: measure, compare and plot."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.results import ResultsError
from dmlsplit.cli.terminal import redirect_to_devnull

RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str]) -> int:
    """Run a command; return the exit status."""
    arguments = list(argv)
    options = parser().parse_args(arguments)
    try:
        status = int(options.run(options, arguments))
        sys.stdout.flush()
        return status
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # of `head`, say
        redirect_to_devnull(sys.stdout)
        return 0
    except KeyboardInterrupt:
        print("interrupted; finished rows are kept: -o with the same file resumes", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("cpu", _cpu, "the CPU engine against NumPy, torch, ONNX Runtime and OpenVINO"),
        ("gpu", _gpu, "the CUDA engine against torch, CuPy, JAX, Triton and CUB"),
        ("host", _host, "host time per call: of bound calls, and beside other splits"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "-o", "--output", type=Path, help="results file; resumed if unfinished"
        )
        command.add_argument("--quick", action="store_true", help="fewer cases and rounds")
        command.add_argument("--only", help="only cases whose name contains this text")
        command.add_argument("--rounds", type=_positive, help="samples per peer")
        command.set_defaults(run=run)
        if name == "cpu":
            command.add_argument(
                "--busy", action="store_true", help="beside two processes that copy memory"
            )
        if name == "gpu":
            command.add_argument("--minutes", type=float, help="stop starting cases after this")
            command.add_argument(
                "--sweep",
                action="store_true",
                help="ten families of splits, 1 MiB to 1 GiB, beside a copy",
            )
            command.add_argument(
                "--planner",
                action="store_true",
                help="instead, both sides of every threshold of the planner, and L2 policies",
            )
    ratios = commands.add_parser("ratios", help="peers' times over ours, as a Markdown table")
    ratios.add_argument("results", type=Path)
    ratios.add_argument("--kind", help="only rows of this kind, such as 'case'")
    ratios.set_defaults(run=_ratios)
    bars = commands.add_parser("bars", help="which bars a cpu or host run meets, and by how much")
    bars.add_argument("results", type=Path)
    bars.set_defaults(run=_bars)
    compare = commands.add_parser("compare", help="what became faster or slower from A to B")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    compare.set_defaults(run=_compare)
    plot = commands.add_parser("plot", help="draw a results file as SVG and PNG")
    plot.add_argument("results", type=Path)
    plot.add_argument("-o", "--output", type=Path, help="folder; by default that of the results")
    plot.set_defaults(run=_plot)
    return top


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _path(options: argparse.Namespace, kind: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    named: Path | None = options.output
    return named or RESULTS / f"{kind}-{stamp}.json"


def _cpu(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks import cases, cpu, peers_cpu
    from benchmarks.environment import environment, state_after
    from benchmarks.results import Results, with_text
    from benchmarks.table import Table
    from dmlsplit.backends.cpu import native
    from dmlsplit.backends.cpu.threads import thread_count

    if reason := native.unavailable_reason():
        print(f"note: NumPy copies in the rows of dmlsplit: {reason}", file=sys.stderr)
    every = {case.name: case for case in cases.cpu_cases(options.quick)}
    chosen = [every[name] for name in with_text(every, options.only)]
    threads = sorted({1, thread_count()})
    results = Results(_path(options, "cpu"), "cpu", environment(argv, with_gpu=False))
    table = Table(len(chosen) * len(threads), "dmlsplit")
    rounds = options.rounds or (5 if options.quick else 12)
    with cpu.neighbours(2 if options.busy else 0):
        cpu.run(chosen, peers_cpu.PEERS, threads, rounds, results, table)
    table.close()
    results.finish(state_after(with_gpu=False))
    print(f"\n{results.path}")
    return 0


def _host(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks import host

    return host.main(options, argv, _path(options, "host"))


def _gpu(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks import gpu

    return gpu.main(options, argv, _path(options, "gpu"))


def _compare(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks.compare import compare, report
    from benchmarks.results import load

    print(report(compare(load(options.a), load(options.b))))
    return 0


def _ratios(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks.ratios import markdown
    from benchmarks.results import load

    print(markdown(load(options.results), options.kind))
    return 0


def _bars(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks import bars, host_instead
    from benchmarks.results import load

    run = load(options.results)
    if run["kind"] == "host":
        host_instead.bars_are_met(run["rows"])
    elif run["kind"] == "cpu":
        print(bars.markdown(run))
    else:
        raise ResultsError(f"{options.results} is of a {run['kind']} run, which has no bars")
    return 0


def _plot(options: argparse.Namespace, argv: list[str]) -> int:
    from benchmarks.plot import plot
    from benchmarks.results import load

    for path in plot(
        load(options.results), options.output or options.results.parent, options.results.stem
    ):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
