"""Computes dask collections on threads of this process or on a Dask cluster."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from dmlsplit import interrupts
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.storage.zarr_arrays import describe, import_extra, wait_for_chunks
from dmlsplit.system import processors

ON_A_CLUSTER = 'Fix: pip install "dmlsplit[dask]" where the scheduler and every worker run'
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.1  # between two looks at a cluster
# Computes a collection, and calls a function with the numbers of finished and of all tasks.
Compute = Callable[[Any, Callable[[int, int], None]], None]


@contextmanager
def compute_context(scheduler: str | None) -> Iterator[Compute]:
    """A `Compute` that uses one thread per processor, or the cluster with this address.

    The caller must delay interrupts: one inside a pool or a client would leave their locks taken.
    """
    import_extra("dask.array", "a zarr store")
    if scheduler is None:
        with _named_errors():
            yield _compute_on_threads
        return
    distributed = import_extra("distributed", "scheduler")
    # Otherwise the client prints tracebacks when the cluster is lost.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        _wait_for_answer(distributed, scheduler)
        client = distributed.Client(scheduler, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, ValueError):
            text = f"--scheduler is {scheduler!r}; it must be an address such as tcp://host:8786"
            raise InvalidArgumentError(text) from None
        raise UnsupportedError(
            f"no Dask scheduler answers at {scheduler}: {describe(error)}. Fix: start one with "
            "`dask scheduler`, or correct the address"
        ) from None
    with client, _named_errors():
        _check_cluster(client)
        yield partial(_compute_on_cluster, client)


def _wait_for_answer(distributed: Any, scheduler: str) -> None:
    """Raise an OSError if no scheduler answers at a TCP address. Dask would hang, or wait longer.

    A scheduler sends the first bytes.
    """
    address = distributed.comm.get_address_host_port(scheduler)
    # For other protocols, only dask can tell.
    if scheduler.partition("://")[0] in ("tcp", scheduler):
        with socket.create_connection(address, ANSWER_SECONDS) as connection:
            connection.recv(1)


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


def _compute_on_threads(collection: Any, progress: Callable[[int, int], None]) -> None:
    dask: Any = import_extra("dask", "a zarr store")
    callbacks: Any = import_extra("dask.callbacks", "a zarr store")

    def count(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        interrupts.raise_postponed()  # dask calls this in the main thread, where no lock is taken
        done = len(state["finished"])
        progress(done, done + sum(len(state[name]) for name in ("waiting", "ready", "running")))

    pool = ThreadPoolExecutor(len(processors()))
    try:
        with callbacks.Callback(posttask=count):
            dask.compute(collection, scheduler="threads", pool=pool)
    finally:
        # Nothing may write once the drafts are removed.
        pool.shutdown(cancel_futures=True)
        wait_for_chunks()


def _compute_on_cluster(client: Any, collection: Any, progress: Callable[[int, int], None]) -> None:
    distributed = import_extra("distributed", "scheduler")
    futures: list[Any] = distributed.futures_of(client.persist(collection))
    pending, failed = futures, futures[:0]
    try:
        while pending and not failed:
            time.sleep(POLL_SECONDS)
            interrupts.raise_postponed()
            pending = [future for future in futures if not future.done()]
            failed = [f for f in futures if f.done() and f.status != "finished"]
            progress(len(futures) - len(pending), len(futures))
        for future in failed:
            future.result()
    finally:
        client.cancel(futures)


@contextmanager
def _named_errors() -> Iterator[None]:
    """Turn what a codec, the cluster or a worker raises into an UnsupportedError of one line."""
    try:
        yield
    except (DmlError, OSError):
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        fix = f". {ON_A_CLUSTER}" if isinstance(cause, ImportError) else ""
        raise UnsupportedError(f"a block failed: {describe(cause)}{fix}") from error
