"""`python -m benchmarks latency`: host time of calls with so few bytes that they hardly matter."""

import argparse
from pathlib import Path

from benchmarks import cases, cpu, peers_cpu
from benchmarks.environment import environment, state_after
from benchmarks.results import Results, failed
from benchmarks.streams import one_stream
from benchmarks.table import Table

PEERS = {
    "dmlsplit": peers_cpu.dmlsplit_bound,
    "dmlsplit dispatch": peers_cpu.dmlsplit_dispatch,
    "dmlsplit eager": peers_cpu.dmlsplit_eager,
    "numpy copyto": peers_cpu.numpy_copyto,
    "numpy split": peers_cpu.numpy_split,
    "torch": peers_cpu.torch_split_copy,
    "onnxruntime": peers_cpu.onnxruntime_split,
    "openvino": peers_cpu.openvino_split,
}


def main(options: argparse.Namespace, argv: list[str], path: Path) -> int:
    """Time calls on the CPU, and on the current GPU if there is one."""
    chosen = [case for case in cases.latency_cases() if (options.only or "") in case.name]
    rounds = options.rounds or (5 if options.quick else 21)
    with_gpu = has_gpu()
    results = Results(path, "latency", environment(argv, with_gpu=with_gpu))
    table = Table(len(chosen) * (1 + with_gpu), "dmlsplit")
    cpu.run(chosen, PEERS, [1], rounds, results, table)
    if with_gpu:
        _on_gpu(chosen, results, table)
    table.close()
    results.finish(state_after(with_gpu=with_gpu))
    print(f"\n{results.path}")
    return 0


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
                    row = gpu.host_row(prepared, problem)
                except Exception as error:
                    row = failed(error)
                row = {**head, "threads": 1, "peer": name, **row}
                results.add(row)
                table.add(row)
            table.advance()
