"""Computes dask collections on threads of this process or on a Dask cluster."""

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from dmlsplit import interrupts
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.storage.zarr_arrays import describe, needed, settle
from dmlsplit.system import processors

ON_A_CLUSTER = 'Fix: pip install "dmlsplit[dask]" where the scheduler and every worker run'
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.1  # between two looks at a cluster
# A function of collections, and of a function that it calls with the tasks done and in total.
Compute = Callable[[Sequence[Any], Callable[[int, int], None]], None]


@contextmanager
def computing(scheduler: str | None) -> Iterator[Compute]:
    """A `Compute` that uses one thread per processor, or the cluster with this address.

    Interrupts must be held, because one inside a pool or a client would leave its locks taken.
    """
    needed("dask.array", "a zarr store")
    if scheduler is None:
        yield _compute_on_threads
        return
    distributed = needed("distributed", "scheduler")
    # It would print tracebacks when a cluster is lost.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    nobody = f"no Dask scheduler answers at {scheduler or repr(scheduler)}"
    why = _connection_problem(scheduler)
    if why:
        raise InvalidArgumentError(f"{nobody}: {why}")
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UnsupportedError(f"{nobody}: {describe(error)}") from None
    with client:
        _check_cluster(client)
        yield partial(_compute_on_cluster, client)


def _connection_problem(scheduler: str) -> str:
    """Why no scheduler answers at an address, or ""; dask itself would hang or wait longer."""
    match = re.fullmatch(r"(?:(tcp|tls|ucx|wss?)://)?([^/\s]+):(\d{1,5})|inproc://\S+", scheduler)
    if not match:
        return "it must be an address such as tcp://host:8786"
    scheme, host, port = match.groups()
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
            run(exec, "import dmlsplit.storage.zarr_arrays, dask.array, zarr")
        except ImportError as error:
            raise UnsupportedError(
                f"{machine} cannot import dmlsplit and zarr: {error}. {ON_A_CLUSTER}"
            ) from None


def _compute_on_threads(collections: Sequence[Any], progress: Callable[[int, int], None]) -> None:
    dask: Any = needed("dask", "a zarr store")
    callbacks: Any = needed("dask.callbacks", "a zarr store")

    def count(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        interrupts.check()  # dask calls this in the main thread, where no lock is taken
        done = len(state["finished"])
        progress(done, done + sum(len(state[name]) for name in ("waiting", "ready", "running")))

    pool = ThreadPoolExecutor(len(processors()))
    try:
        with callbacks.Callback(posttask=count):
            dask.compute(*collections, scheduler="threads", pool=pool)
    except (DmlError, OSError):
        raise
    except Exception as error:
        raise _block_error(error) from error
    finally:
        # Nothing may write once the drafts are removed.
        pool.shutdown(cancel_futures=True)
        settle()


def _compute_on_cluster(
    client: Any, collections: Sequence[Any], progress: Callable[[int, int], None]
) -> None:
    distributed = needed("distributed", "scheduler")
    futures: list[Any] = distributed.futures_of(client.persist(list(collections)))
    pending, failed = futures, futures[:0]
    try:
        while pending and not failed:
            time.sleep(POLL_SECONDS)
            interrupts.check()
            pending = [future for future in futures if not future.done()]
            failed = [f for f in futures if f.done() and f.status != "finished"]
            progress(len(futures) - len(pending), len(futures))
        for future in failed:
            future.result()
    except (DmlError, OSError):
        raise
    except Exception as error:
        raise _block_error(error) from error
    finally:
        client.cancel(futures)


def _block_error(error: Exception) -> UnsupportedError:
    """What a codec, the cluster or a worker raised, in one line."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    fix = f". {ON_A_CLUSTER}" if isinstance(cause, ImportError) else ""
    return UnsupportedError(f"a block failed: {describe(cause)}{fix}")
