"""What surrounds the kernels, and what a report tells of it."""

import getpass
import json
import platform
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlsplit as dml
from dmlsplit.self_test import environment, stages
from dmlsplit.self_test.case import Case, Mode
from dmlsplit.self_test.cases import LAYOUTS
from dmlsplit.self_test.environment import Check, CheckState
from dmlsplit.self_test.memory import HostMemory
from dmlsplit.self_test.report import check_text
from tests.support.command import ROOT


def lines(name: str) -> str:
    matching_checks = [check for check in environment.checks(HostMemory()) if check.name == name]
    return " ".join(check_text(check) for check in matching_checks)


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps", "MPS"),
        ("CUDA_VISIBLE_DEVICES", "1", "CUDA_VISIBLE_DEVICES=1"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ],
)
def test_the_report_names_variables_that_hide_devices(
    variable: str, value: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert word not in lines("system")
    monkeypatch.setenv(variable, value)
    assert word in lines("system")


def test_the_report_names_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "WSL" not in lines("system")
    monkeypatch.setattr(platform, "release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    assert "WSL" in lines("system")


def test_the_report_says_that_the_kernel_cache_is_off_or_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert lines("cache").startswith("ok")
    monkeypatch.setattr(environment.os, "access", lambda *_: False)
    assert lines("cache").startswith("warn")
    assert str(tmp_path) not in lines("cache")
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    assert "off: kernels are compiled in every process" in lines("cache")


PATHS = [
    "[Errno 13] Permission denied: '/home/ali ce/.cupy/kernels'",
    "cannot import name 'x' from 'cupy' (/home/ali ce/venv/cupy/__init__.py)",
    "libcuda.so.1: /home/alice/lib, no such file; /home/alice.",
    r"cannot read C:\Users\alice\x.bin or 'D:\my alice\y'",
    r'"\\wsl$\Ubuntu\home\alice"',
]


@pytest.mark.parametrize("text", PATHS)
def test_the_report_has_no_path(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise dml.DmlError(text)

    monkeypatch.setattr(stages, "missing_gpu_check", lambda _: Check("GPU", CheckState.WARN, text))
    monkeypatch.setattr(stages, "default_backend", lambda: (stages.find_backend("cpu"), "why"))
    monkeypatch.setattr(stages, "_stages", refuse)
    test = dml.selftest()
    assert test.status == 2
    record = json.loads(test.to_json())
    for report_text in (record["error"], record["checks"][0]["text"]):
        assert "PATH" in report_text
        assert not any(word in report_text for word in ("ali", "cupy/", "Ubuntu", "Users"))


def test_the_json_report_has_the_text_of_every_check_and_names_no_user_or_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    test = dml.selftest("cpu", seconds=0)
    record = json.loads(test.to_json())
    assert "PATH" not in test.to_json()
    assert [check["text"] for check in record["checks"]] == [check.text for check in test.checks]
    for secret in (str(Path.home()), str(ROOT), socket.gethostname(), f'"{getpass.getuser()}'):
        assert secret not in test.to_json()


def test_the_summary_has_the_wrong_bytes_and_the_later_device_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    difference = SimpleNamespace(_asdict=dict, __str__=lambda: "output 0")

    def compare(case: Case, *_: object) -> stages.CaseResult:
        if case.mode is Mode.LAUNCH:  # the second one
            raise dml.DmlError("the device has failed")
        return stages.CaseResult(case, difference, "digest")  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "compare", compare)
    test = dml.selftest("cpu", seconds=0)
    assert test.status == 1
    assert test.summary == "wrong bytes on the CPU: 0 of 1 split; then: the device has failed"
    assert "fail  bytes              0 of 1 split exact; first: 'experts'" in str(test)


def test_splits_are_counted_once_if_the_device_fails_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise dml.DmlError("the device has failed")

    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    monkeypatch.setattr(stages, "faulty_bind", fail)
    test = dml.selftest("cpu", seconds=0)
    assert [check.name for check in test.checks].count("bytes") == 1
    assert test.error == "the device has failed"


def test_a_strict_self_test_of_the_cpu_fails_without_speeds_to_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    test = dml.selftest("cpu", seconds=0, strict=True)
    assert test.status == 2
    assert "only 0 of 5 speeds have a minimum. Fix: " in " ".join(str(test).split())
    assert all(speed.predicted_seconds is None for speed in test.speeds)
