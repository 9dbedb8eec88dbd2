"""Compares the outputs of two ONNX models, in a child process that a bad model may crash."""

import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, one_line
from dmlsplit.interrupts import kept_from_children
from dmlsplit.lint.fix.feeds import Feeds, feeds_of

# Runs a model on inputs by name; the result is all outputs.
Run = Callable[[Feeds], list[Any]]
# Loads a model. At the end of the block, the set (if given) has the names of the nodes that ran.
Load = Callable[[str, set[str] | None], AbstractContextManager[Run]]

SECONDS = 600
# Not forked, because the caller may have threads.
PROCESSES = multiprocessing.get_context("spawn")
# Stop after so many successful runs, or, once one has succeeded, after so many seconds.
_MOST_RUNS = 4
_LOOKING_SECONDS = 20


class Agreement(NamedTuple):
    """Two models that agreed."""

    engine: str
    runs: int  # inputs on which they agreed
    ran: int  # how many of the named nodes of the second model ran


def compare_models(
    first: Path,
    second: Path,
    nodes: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    feed: Path | None = None,
) -> Agreement:
    """Compare all outputs of both models, bit for bit.

    The result counts which of `nodes`, of the second, ran. `sizes` fixes dynamic dimensions of the
    first, by name or as ``input.axis``. Inputs that `feed`, an .npz file by name, lacks are random.
    InvalidArgumentError: an output differs or `feed` is unusable; UnsupportedError: no runtime ran
    both.
    """
    failures = []
    for engine in ENGINES:
        outcome = _in_a_child(engine, str(first), str(second), (sizes or {}, feed))
        if isinstance(outcome, InvalidArgumentError):
            raise outcome
        if not isinstance(outcome, str):
            runs, ran = outcome
            return Agreement(engine, runs, len(ran.intersection(nodes)))
        failures.append(f"{engine}: {outcome}")
    raise UnsupportedError(f"the models could not be compared: {'; '.join(failures)}")


# The runs and the names of the nodes that ran; the difference; or why there is neither.
_Outcome = tuple[int, set[str]] | InvalidArgumentError | str


def _in_a_child(*job: Any) -> _Outcome:
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=_child, args=(sender, *job), daemon=True)
    with kept_from_children():
        child.start()
    sender.close()
    try:
        if receiver.poll(SECONDS):
            outcome: _Outcome = receiver.recv()
            return outcome
        return f"it took over {SECONDS} s"
    except EOFError:
        child.join()
        return f"the runtime ended its process with exit code {child.exitcode}"
    finally:
        child.kill()
        child.join()


def _child(sender: Connection, engine: str, first: str, second: str, options: Any) -> None:
    load, ran = ENGINES[engine], set[str]()
    try:
        tries = feeds_of(first, *options)
        with load(first, None) as before, load(second, ran) as after:
            runs = _runs(before, after, tries)
        sender.send((runs, ran))
    except InvalidArgumentError as error:
        sender.send(error)
    except Exception as error:
        # Runtimes raise errors of many types, and none of them proves a difference.
        sender.send(one_line(error)[:300])


def _runs(before: Run, after: Run, tries: Iterable[tuple[Feeds, bool]]) -> int:
    """The number of inputs on which two models agree; InvalidArgumentError if they differ."""
    done, failure = 0, RuntimeError("no inputs were tried")
    start = time.monotonic()
    for feeds, must_run in tries:
        if done == _MOST_RUNS or (done and time.monotonic() - start > _LOOKING_SECONDS):
            break
        try:
            expected = before(feeds)
        except Exception as error:
            if must_run:
                raise
            failure = RuntimeError(one_line(error))
            continue
        try:
            outputs = after(feeds)
        except Exception as error:
            raise RuntimeError(f"the rewritten model fails: {one_line(error)}") from error
        if different := _difference("outputs", expected, outputs):
            raise InvalidArgumentError(f"the rewritten model computes something else: {different}")
        done += 1
    if not done:
        raise failure
    return done


def _difference(where: str, expected: Any, actual: Any) -> str:
    """The first difference between two outputs; empty if they are equal bit for bit."""
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return f"{where}: length {len(expected)} became {len(actual)}"
        pairs = enumerate(zip(expected, actual, strict=True))
        return next(filter(None, (_difference(f"{where}[{i}]", *pair) for i, pair in pairs)), "")
    one, other = np.asarray(expected), np.asarray(actual)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{where}: {one.dtype}{one.shape} became {other.dtype}{other.shape}"
    same = np.array_equal(one, other) if one.dtype.hasobject else one.tobytes() == other.tobytes()
    return "" if same else f"{where}: the values differ"


@contextmanager
def _onnxruntime(path: str, ran: set[str] | None) -> Iterator[Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # in use after an error
        options.enable_profiling = ran is not None
        options.profile_file_prefix = str(Path(folder, "nodes"))
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        yield lambda feeds: list(session.run(None, feeds))
        if ran is not None:
            events = json.loads(Path(session.end_profiling()).read_bytes())
            names = (event["name"] for event in events if event.get("cat") == "Node")
            ran |= {name.removesuffix("_kernel_time") for name in names}


@contextmanager
def _reference(path: str, ran: set[str] | None) -> Iterator[Run]:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    evaluator = ReferenceEvaluator(path)
    if ran is not None:
        honest: Any = OpRun.run

        # The evaluator has no hook for this; a patch is safe in a process of its own.
        def run(self: Any, *arguments: Any, **options: Any) -> Any:
            ran.add(self.onnx_node.name)
            return honest(self, *arguments, **options)

        OpRun.run = run  # type: ignore[method-assign]
    yield lambda feeds: list(evaluator.run(None, feeds))


ENGINES: dict[str, Load] = {"onnxruntime": _onnxruntime, "onnx.reference": _reference}
