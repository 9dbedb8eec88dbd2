"""`python -m benchmarks host`: the host time of calls.

The cases "N equal" and "N unequal" compare bound and checked calls with other libraries on the CPU,
and on the GPU if there is one. "LIBRARY, SIZE" compares `dml.split` with the library's own splits;
"beside LIBRARY", "op()" and "compiled" compare a call with what a person would write instead, and
have bars. The host time of CUDA calls without a GPU: `python -m tests.simulated_card.host_time`.
"""

import argparse
from pathlib import Path

from benchmarks import cases, cpu, host_instead, host_libraries, peers_cpu
from benchmarks.environment import environment, state_after
from benchmarks.gpu_samples import host_row
from benchmarks.results import Results, failed, with_text
from benchmarks.streams import one_stream
from benchmarks.table import Table

OURS = "dmlsplit"
PEERS = {
    OURS: peers_cpu.dmlsplit_bound,
    "dmlsplit dispatch": peers_cpu.dmlsplit_dispatch,
    "dmlsplit eager": peers_cpu.dmlsplit_eager,
    "numpy copyto": peers_cpu.numpy_copyto,
    "numpy split": peers_cpu.numpy_split,
    "torch": peers_cpu.torch_split_copy,
    "onnxruntime": peers_cpu.onnxruntime_split,
    "openvino": peers_cpu.openvino_split,
}


def main(options: argparse.Namespace, argv: list[str], path: Path) -> int:
    """Time the chosen cases; return 1 if a bar is missed."""
    rounds = options.rounds or (5 if options.quick else 21)
    with_gpu = has_gpu()
    latency = {case.name: case for case in cases.latency_cases()}
    chosen = with_text([*latency, *host_libraries.CASES, *host_instead.CASES], options.only)
    small = [case for name, case in latency.items() if name in chosen]
    libraries = [name for name in host_libraries.CASES if name in chosen]
    pairs = [name for name in host_instead.CASES if name in chosen]
    results = Results(path, "host", environment(argv, with_gpu=with_gpu))
    table = Table(len(small) * (1 + with_gpu) + len(libraries) + len(pairs), OURS)
    cpu.run(small, PEERS, [1], rounds, results, table)
    if with_gpu:
        _on_gpu(small, results, table)
    host_libraries.run(libraries, rounds, results, table)
    host_instead.run(pairs, rounds, results, table)
    table.close()
    results.finish(state_after(with_gpu=with_gpu))
    print(f"\n{results.path}")
    return int(not host_instead.bars_are_met(results.rows))


def has_gpu() -> bool:
    """Whether CuPy finds a CUDA device."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # CuPy is absent, or there is no driver
        return False


def _on_gpu(chosen: list[cases.Case], results: Results, table: Table) -> None:
    """Add the host time per call of the GPU's peers; `gpu` measures the GPU's own time."""
    from benchmarks import gpu, peers_gpu

    peers = {
        "dmlsplit (cuda)": peers_gpu.dmlsplit_bound,
        "torch out= (cuda)": peers_gpu.torch_out,
        "torch per output (cuda)": peers_gpu.torch_per_output,
        "CuPy per output (cuda)": peers_gpu.cupy_per_output,
    }
    with one_stream():
        for case in chosen:
            head = {"case": case.name, "kind": case.kind, "at": case.at, "bytes": case.total_bytes}
            for name, peer in peers.items():
                if results.has(case=case.name, peer=name):
                    continue
                try:
                    problem = gpu.random_problem(gpu.integers(case))
                    prepared = peer(problem)
                    gpu.check(problem, prepared)
                    row = host_row(prepared, problem)
                except Exception as error:
                    row = failed(error)
                row = {**head, "threads": 1, "peer": name, **row}
                results.add(row)
                table.add(row)
            table.advance()
