"""Runs two ONNX models on the same inputs and compares every output bit by bit.

The models run in a child process, because a runtime may abort its process on a malformed model.
"""

import multiprocessing
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, one_line
from dmlsplit.interrupts import kept_from_children
from dmlsplit.lint.fix.engines import ENGINES, Run
from dmlsplit.lint.fix.feeds import Feeds, feeds_of

SECONDS = 600
# The caller may have threads, so a child is not forked from it.
PROCESSES = multiprocessing.get_context("spawn")
# Random inputs to compare on, and how long to go on looking for more than one that runs.
_MOST_RUNS = 4
_LOOKING_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models that agreed."""

    engine: str  # that ran them
    runs: int  # on how many inputs
    ran: int  # how many of the named nodes of the second model were run


def compare_models(
    first: Path,
    second: Path,
    nodes: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    feed: Path | None = None,
) -> Comparison:
    """Compare all outputs of both models, bit for bit.

    Parameters
    ----------
    first, second
        The models.
    nodes
        Names of nodes of `second` that the comparison is about.
    sizes
        Sizes of the dynamic dimensions of `first`, by name or as ``input.axis``.
    feed
        An .npz file of inputs by name; what it lacks is random.

    Raises
    ------
    InvalidArgumentError
        If an output differs, or `feed` cannot be used.
    UnsupportedError
        If no runtime could run both models.
    """
    failures = []
    for engine in ENGINES:
        job = (engine, str(first), str(second), tuple(nodes), dict(sizes or {}), feed)
        kind, found = _in_a_child(job)
        if kind == "equal":
            return Comparison(engine, *found)
        if kind == "unusable":
            raise InvalidArgumentError(found)
        if kind == "different":
            raise InvalidArgumentError(f"the rewritten model computes something else: {found}")
        failures.append(f"{engine}: {found}")
    raise UnsupportedError(f"the models could not be compared: {'; '.join(failures)}")


def _in_a_child(job: tuple[Any, ...]) -> tuple[str, Any]:
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=_child, args=(job, sender), daemon=True)
    with kept_from_children():
        child.start()
    sender.close()
    try:
        if receiver.poll(SECONDS):
            kind, found = receiver.recv()
            return kind, found
        return "failed", f"it took over {SECONDS} s"
    except EOFError:
        child.join()
        return "failed", f"the runtime ended its process ({child.exitcode})"
    finally:
        child.kill()
        child.join()


def _child(job: tuple[Any, ...], sender: Connection) -> None:
    try:
        sender.send(_compared(*job))
    except InvalidArgumentError as error:
        sender.send(("unusable", one_line(error)))
    except Exception as error:
        # Runtimes raise errors of many types; after any of them nothing is proven.
        sender.send(("failed", one_line(error)[:300]))


def _compared(
    engine: str,
    first: str,
    second: str,
    nodes: Sequence[str],
    sizes: Mapping[str, int],
    feed: Path | None,
) -> tuple[str, Any]:
    """``equal``, on how many inputs and with how many nodes run; or what differs."""
    ran: set[str] = set()
    tries = feeds_of(first, sizes, feed)
    load = ENGINES[engine]
    with load(first, None) as before, load(second, ran) as after:
        different, done = _runs(before, after, tries)
    return ("different", different) if different else ("equal", (done, len(ran & set(nodes))))


def _runs(before: Run, after: Run, tries: Iterable[tuple[Feeds, bool]]) -> tuple[str, int]:
    """In what two models differ, or an empty string; and on how many inputs they agree."""
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
        different = _difference("outputs", expected, _run(after, feeds))
        if different:
            return different, done
        done += 1
    if not done:
        raise failure
    return "", done


def _run(model: Run, feeds: Feeds) -> list[Any]:
    try:
        return model(feeds)
    except Exception as error:
        raise RuntimeError(f"the rewritten model fails: {one_line(error)}") from error


def _difference(where: str, expected: Any, found: Any) -> str:
    """In what two outputs differ; an empty string if they are equal bit for bit."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{where}: {len(expected)} values became {len(found)}"
        pairs = enumerate(zip(expected, found, strict=True))
        differences = (_difference(f"{where}[{index}]", *pair) for index, pair in pairs)
        return next(filter(None, differences), "")
    one, other = np.asarray(expected), np.asarray(found)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{where}: {one.dtype}{one.shape} became {other.dtype}{other.shape}"
    same = np.array_equal(one, other) if one.dtype.hasobject else one.tobytes() == other.tobytes()
    return "" if same else f"{where}: the values differ"
