"""zarr arrays through Dask: memory per worker, scaling from 1 to 2 workers, and rates.

The split is the recipe of docs/scale.md.

    python -m benchmarks.scale --gigabytes 2 --output benchmarks/results/scale.json

Every result is compared with its source byte by byte before its time counts. Runs with one and
with two workers alternate and medians are compared, so that other load on the machine affects both
equally. If there is too much other load, the processor seconds of the busiest worker still show how
well the work divides. Peak memory is VmHWM of each process.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import dmlsplit as dml

ROOT = Path(__file__).parent.parent
CHUNK = (1024, 1024)
COLUMNS = 4096
SIZES = (1000, 96, 3000)


def peak_bytes() -> int:
    """Peak resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def loaded_bytes() -> int:
    """Peak memory of a worker that has imported zarr and done nothing."""
    import_module("zarr")
    return peak_bytes()


def split_store(source: Path, folder: Path) -> None:
    """Split an array along its second axis; each block has whole rows, so no chunk is cut."""
    dask: Any = import_module("dask")
    da: Any = import_module("dask.array")
    array = da.from_zarr(str(source), chunks=(CHUNK[0], -1))
    pieces = enumerate(dml.split(array, SIZES, axis=1))
    paths = [(str(folder / f"{source.stem}_{index}.zarr"), piece) for index, piece in pieces]
    dask.compute([da.to_zarr(piece, path, compute=False) for path, piece in paths])


def make_source(path: Path, total_bytes: int, compressors: Any) -> None:
    """Write a float32 zarr array of random numbers, chunk by chunk."""
    import zarr

    rows = total_bytes // (4 * COLUMNS)
    store = zarr.create_array(
        str(path), shape=(rows, COLUMNS), dtype="f4", chunks=CHUNK, compressors=compressors
    )
    generator = np.random.default_rng(0)
    for row in range(0, rows, CHUNK[0]):
        store[row : row + CHUNK[0]] = generator.random(
            (min(CHUNK[0], rows - row), COLUMNS), np.float32
        )


def check(source: Path, folder: Path) -> None:
    """Compare the pieces with the source, band by band."""
    import zarr

    whole: Any = zarr.open_array(str(source), mode="r")
    starts = np.cumsum((0, *SIZES))
    for index, size in enumerate(SIZES):
        piece: Any = zarr.open_array(str(folder / f"{source.stem}_{index}.zarr"), mode="r")
        assert piece.shape == (whole.shape[0], size)
        for row in range(0, whole.shape[0], CHUNK[0]):
            band = slice(row, row + CHUNK[0])
            right = whole[band, int(starts[index]) : int(starts[index + 1])]
            assert np.array_equal(piece[band].view("u4"), right.view("u4"))


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of `workers` processes, each with one thread for blocks and one core.

    Zarr runs its codecs on its own threads: a worker that is not bound to a core uses all cores.
    """
    dask: Any = import_module("distributed")
    os.environ["PYTHONPATH"] = str(ROOT)
    with (
        dask.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as local,
        dask.Client(local) as client,
    ):
        cores = sorted(os.sched_getaffinity(0))
        for index, address in enumerate(client.scheduler_info()["workers"]):
            client.run(bind_to_core, cores[index % len(cores)], workers=[address])
        yield client


def bind_to_core(core: int) -> None:
    """Bind every thread of this process to one core."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def run_on_cluster(source: Path, folder: Path, workers: int) -> dict[str, Any]:
    """Split once on a fresh cluster; return seconds and peak bytes of each worker."""
    shutil.rmtree(folder, ignore_errors=True)
    with cluster(workers) as client:
        loaded = list(client.run(loaded_bytes).values())
        before = client.run(time.process_time)
        start = time.perf_counter()
        split_store(source, folder)
        seconds = time.perf_counter() - start
        after = client.run(time.process_time)
        peaks = list(client.run(peak_bytes).values())
    return {
        "workers": workers,
        "seconds": seconds,
        "cpu_seconds": [after[address] - before[address] for address in after],
        "peak_bytes": peaks,
        "loaded_bytes": loaded,
    }


def run_on_threads(source: Path, folder: Path) -> dict[str, Any]:
    """Split once on the threads of one process."""
    shutil.rmtree(folder, ignore_errors=True)
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from benchmarks.scale import peak_bytes, split_store\n"
        "split_store(*map(Path, sys.argv[1:]))\nprint(peak_bytes())"
    )
    line = [sys.executable, "-c", program, str(source), str(folder)]
    start = time.perf_counter()
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    peak = int(done.stdout.split()[-1])
    return {"threads": len(os.sched_getaffinity(0)), "seconds": seconds, "peak_bytes": peak}


def nothing(block: np.ndarray) -> np.ndarray:
    """A block that does nothing, to measure the scheduler alone."""
    return block


def tasks_per_second(count: int = 2000) -> float:
    """The blocks per second that the scheduler hands out, as persisted blocks."""
    import dask.array as da

    with cluster(2) as client:
        blocks = da.zeros(count, chunks=1).map_blocks(nothing, dtype=float)
        start = time.perf_counter()
        import_module("distributed").wait(client.persist(blocks))
        return count / (time.perf_counter() - start)


def split_rate(repeats: int = 9) -> float:
    """Input bytes per second when one thread splits one block in memory."""
    block = np.random.default_rng(0).random((1024, COLUMNS), np.float32)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        dml.split(block, SIZES, 1)
        seconds.append(time.perf_counter() - start)
    return block.nbytes / statistics.median(seconds)


def compare_workers(source: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """Alternate between one and two workers; return every run, and the ratio of medians."""
    runs: list[dict[str, Any]] = []
    for repeat in range(repeats):
        for workers in (1, 2):
            runs.append(run_on_cluster(source, folder, workers))
            check(source, folder)
            report(f"  {workers} worker(s), run {repeat + 1} of {repeats}", runs[-1])
    medians = {workers: median_of(runs, workers, "seconds") for workers in (1, 2)}
    busiest = {workers: median_of(runs, workers, "cpu_seconds") for workers in (1, 2)}
    return {
        "runs": runs,
        "median_seconds": medians,
        "speedup_of_two_workers": medians[1] / medians[2],
        "median_cpu_seconds_of_busiest_worker": busiest,
        "cpu_speedup_of_two_workers": busiest[1] / busiest[2],
        "peak_bytes_per_worker": max(peak for run in runs for peak in run["peak_bytes"]),
    }


def median_of(runs: list[dict[str, Any]], workers: int, what: str) -> float:
    """The median, over runs with `workers` workers, of the figure of the largest worker."""
    return statistics.median(float(np.max(run[what])) for run in runs if run["workers"] == workers)


def report(what: str, run: dict[str, Any]) -> None:
    """Print one run."""
    peaks = run["peak_bytes"] if isinstance(run["peak_bytes"], list) else [run["peak_bytes"]]
    shown = ", ".join(f"{peak / 1e6:.0f} MB" for peak in peaks)
    print(f"{what}: {run['seconds']:.2f} s, peak {shown}", flush=True)


def measure(total_bytes: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Measure everything on a source of `total_bytes`; return the results for the JSON file."""
    results: dict[str, Any] = {"source_bytes": total_bytes, "sizes": SIZES, "chunk": CHUNK}
    for name, compressors in (("raw", None), ("zstd", "auto")):
        source, target = folder / f"{name}.zarr", folder / "out"
        make_source(source, total_bytes, compressors)
        print(f"{name}, {total_bytes / 1e9:.2f} GB", flush=True)
        threads = run_on_threads(source, target)
        check(source, target)
        report("  threads", threads)
        results[name] = {"threads": threads, **compare_workers(source, target, repeats)}
        print(
            f"  1 -> 2 workers: {results[name]['speedup_of_two_workers']:.2f} times as fast, "
            f"by processor time {results[name]['cpu_speedup_of_two_workers']:.2f}"
        )
        shutil.rmtree(source)
    return results


def environment() -> dict[str, Any]:
    """The machine and the versions that the figures depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average_before": os.getloadavg(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "zarr", "dask", "distributed")},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary one")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/scale.json")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"schema": 1, "environment": environment()}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results |= measure(int(options.gigabytes * 1e9), options.repeats, Path(folder))
    results["split_bytes_per_second"] = split_rate()
    results["scheduler_tasks_per_second"] = tasks_per_second()
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
