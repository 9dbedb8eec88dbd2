"""Runs blocks on threads of this process or on a Dask cluster."""

import re
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from dmlsplit import interrupts
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.storage.zarr_arrays import describe, needed, settle
from dmlsplit.system import processors

ON_A_CLUSTER = 'Fix: pip install "dmlsplit[dask]" where the scheduler and every worker run'
ANSWER_SECONDS = 10.0
PATIENCE_SECONDS = 0.5  # the longest time that an interrupt waits for a block
# A function that calls another with each of many values, in any order, and yields the results.
Submit = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def submitting(scheduler: str | None) -> Iterator[Submit]:
    """A `Submit` that uses one thread per processor, or a cluster."""
    if scheduler is None:
        threads = len(processors())
        with ThreadPoolExecutor(threads) as pool:
            yield partial(_in_flight, pool, 2 * threads)
        return
    distributed = needed("distributed", "scheduler")
    nobody = f"no Dask scheduler answers at {scheduler or repr(scheduler)}"
    why = _silence(scheduler)
    if why:
        raise InvalidArgumentError(f"{nobody}: {why}")
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UnsupportedError(f"{nobody}: {describe(error)}") from None
    with client, client.get_executor(pure=False) as pool:
        _check_cluster(client)
        yield partial(_in_flight, pool, max(4, 4 * sum(client.nthreads().values())))


def _silence(scheduler: str) -> str:
    """Why no scheduler answers at an address, or ""; dask itself would hang or wait longer."""
    found = re.fullmatch(r"(?:(tcp|tls|ucx|wss?)://)?([^/\s]+):(\d{1,5})|inproc://\S+", scheduler)
    if not found:
        return "it must be an address such as tcp://host:8786"
    scheme, host, port = found.groups()
    if not host or scheme not in (None, "tcp"):
        return ""
    why = ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as connection:
            why = "something else is listening there"  # because a scheduler speaks first
            return "" if connection.recv(1) else why
    except (OSError, OverflowError) as error:
        return why or describe(error)


def _check_cluster(client: Any) -> None:
    """Refuse a cluster without dmlsplit, because its workers would die when they load a task."""
    for machine, run in (("the scheduler", client.run_on_scheduler), ("a worker", client.run)):
        try:
            # exec, because a machine without dmlsplit cannot receive a function of dmlsplit.
            run(exec, "import dmlsplit.storage.worker, zarr")
        except ImportError as error:
            raise UnsupportedError(
                f"{machine} cannot import dmlsplit and zarr: {error}. {ON_A_CLUSTER}"
            ) from None


def _in_flight(
    executor: Executor, window: int, work: Callable[[Any], Any], values: Iterable[Any]
) -> Iterator[Any]:
    """The results, each as soon as it is ready; at most `window` values are in work at a time.

    Interrupts must be held, because one inside a pool or a future would leave its locks taken.
    """
    waiting = iter(values)
    pending = {executor.submit(work, value) for value in islice(waiting, window)}
    try:
        while pending:
            interrupts.check()
            done, pending = wait(pending, PATIENCE_SECONDS, FIRST_COMPLETED)
            yield from map(_result, done)
            pending |= {executor.submit(work, value) for value in islice(waiting, len(done))}
    finally:
        # Wait for running tasks, because nothing may write once the workspace is released.
        wait([future for future in pending if not future.cancel()])
        settle()


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except (DmlError, OSError):
        raise
    except Exception as error:  # from the cluster, a codec or a worker
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        fix = f". {ON_A_CLUSTER}" if isinstance(cause, ImportError) else ""
        raise UnsupportedError(f"a block failed: {describe(cause)}{fix}") from error
