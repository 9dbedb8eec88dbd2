"""`validate`, `explain` and `completion` on the command line."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import TensorProto

from dmlsplit.cli import build_parser, main
from tests import dxdispatch_models, openvino_files
from tests.models import every_verdict, in_function, nested, sequence, single
from tests.onnx_graphs import REFUSED as HOSTILE_ONNX

ROOT = Path(__file__).parent.parent
FLAGS = "--data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3".split()

HOSTILE_XML = [content for content, _ in openvino_files.HOSTILE]
HOSTILE_JSON = [
    text
    for text, message in dxdispatch_models.NOT_MODELS
    if message != "lacks 'commands'"  # A scan needs none.
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(
    *arguments: str, folder: Path | None = None, **more: object
) -> "subprocess.Popen[bytes]":
    more.setdefault("env", {**os.environ, "PYTHONPATH": str(ROOT)})
    line = [sys.executable, "-m", "dmlsplit", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=folder, **{"stdout": pipe, "stderr": pipe, **more})


# Descriptors by flags.


def test_flags_make_a_descriptor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *FLAGS, "--feature-level", "3_0"]) == 0
    assert "1 split in 1 file at feature level 3_0: 1 ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --feature-level 4_1", 0),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --feature-level 4_0", 1),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --windows 22000", 1),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --directml 1.7.0", 0),
        ("--data-type INT64 --sizes 6 --axis 0 --split 2,4 --windows 22000 --allow legalizing", 0),
        ("--data-type FLOAT32 --sizes 6 --axis -1 --split 2,4", 1),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split 2,5 --allow legalizing", 1),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split=-1,7", 1),
        ("--data-type FLOAT32 --sizes 99999999999999999999 --axis 0 --split 1", 1),
    ],
)
def test_the_exit_status_is_the_verdict(
    arguments: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *arguments.split()]) == status
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give either PATHs, or all of"),
        ("--data-type FLOAT32", "or all of --data-type, --sizes, --axis and --split"),
        ("model.onnx --data-type FLOAT32 --sizes 6 --axis 0 --split 6", "give either PATHs"),
        ("--data-type FLOAT31 --sizes 6 --axis 0 --split 6", "data type is 'FLOAT31'"),
        ("x.onnx --feature-level 9_9", "feature level is '9_9'; it must be one of"),
        ("x.onnx --windows 7601", "the first with DirectML is 18362"),
        ("x.onnx --directml x", "it must look like 1.8.0"),
        ("--data-type FLOAT32 --sizes 6 --axis 0 --split 6 --via ort", "ONNX models only"),
        ("missing.onnx", "missing.onnx: cannot be read: No such file or directory"),
        ("model.pb", "model.pb: its name ends in '.pb'; it must end in .onnx or .xml or .json"),
        ("model.xml --via ort", "model.xml: its name ends in '.xml'; it must end in .onnx"),
        ("*.model", "*.model: no .onnx or .xml model found"),
        (".", ".: no .onnx or .xml model found"),
        ("-", "-: its name ends in ''"),
        ("/dev/null", "its name ends in ''"),
        ("pipe.onnx", "pipe.onnx: is not a regular file"),
        ("a.onnx c.onnx --write-fixed b.onnx", "exactly one PATH"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_each(
    arguments: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(here / "pipe.onnx")
    assert main(["validate", *arguments.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("dmlsplit: error: ") for line in lines)
    assert any(message in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sizes", "1,x"],
        ["--axis", "one"],
        ["m.onnx", "--feature-level", "2_0", "--windows", "22621"],
        ["m.onnx", "--format", "xml"],
        ["m.onnx", "--via", "tensorrt"],
        ["m.onnx", "--fail-on", "everything"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["validate", *arguments])
    assert exit_.value.code == 2


# Files.


def save(name: str, content: onnx.ModelProto) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(content, name)


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and verdicts by file, place and node."""
    capsys.readouterr()
    status = main(["validate", *arguments, "--format", "json"])
    splits = json.loads(capsys.readouterr().out)["splits"]
    return status, {f"{s['file']}:{s['place']}/{s['node']}": s["verdict"] for s in splits}


def test_bodies_and_functions_are_searched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("nested.onnx", nested())
    save("function.onnx", in_function())
    status, verdicts = judged(capsys, "nested.onnx", "function.onnx", "--feature-level", "3_0")
    assert status == 0
    assert verdicts == {
        "nested.onnx:net/choose.then_branch/left": "ok",
        "nested.onnx:net/choose.else_branch/right": "ok",
        "function.onnx:net/call/inner": "ok",
    }


def test_unknown_fails_only_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", single(TensorProto.FLOAT, ("n", 2), (2, 2), 0))
    assert judged(capsys, "m.onnx")[0] == 0
    assert judged(capsys, "m.onnx", "--fail-on", "unknown")[0] == 1


def test_folders_and_patterns_are_searched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = single(TensorProto.FLOAT, (6,), (2, 4), 0)
    for name in ("models/a.onnx", "models/deep/b.ONNX", "other/c.onnx"):
        save(name, good)
    Path("models/settings.xml").write_text("<settings/>")
    Path("models/settings.json").write_text("{}")
    Path("models/link.onnx").symlink_to(Path("../other/c.onnx"))
    Path("models/loop").symlink_to(Path())
    status, verdicts = judged(capsys, "models")
    assert status == 0
    assert sorted(verdicts) == ["models/a.onnx:net/cut", "models/deep/b.ONNX:net/cut"]
    assert len(judged(capsys, "**/c.onnx", "models/*.onnx", "models/a.onnx")[1]) == 3


def test_a_file_whose_name_looks_like_a_pattern(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m[1].onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    assert judged(capsys, "m[1].onnx") == (0, {"m[1].onnx:net/cut": "ok"})


def test_descriptor_files_are_judged(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tensor(*sizes: int) -> dict[str, object]:
        return {"DataType": "INT64", "Sizes": sizes}

    outputs = [tensor(2), tensor(4)]
    desc = {"InputTensor": tensor(6), "OutputCount": 2, "OutputTensors": outputs, "Axis": 0}
    Path("desc.json").write_text(json.dumps(desc))
    assert judged(capsys, "desc.json")[0] == 0
    status, verdicts = judged(capsys, "desc.json", "--feature-level", "2_0")
    assert (status, list(verdicts.values())) == (1, ["ok after legalizing"])


def test_openvino_models_are_judged(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.xml").write_text(openvino_files.variadic())
    Path("m.bin").write_bytes(openvino_files.weights())
    status, verdicts = judged(capsys, "m.xml", "--feature-level", "3_0")
    assert (status, list(verdicts.values())) == (0, ["ok"])
    status, verdicts = judged(capsys, ".", "--feature-level", "2_0")
    assert (status, list(verdicts.values())) == (1, ["ok after legalizing"])
    Path("m.bin").unlink()
    status, verdicts = judged(capsys, "m.xml", "--fail-on", "unknown")
    assert (status, list(verdicts.values())) == (1, ["unknown"])


def test_one_bad_file_does_not_hide_the_others(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("good.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    Path("bad.onnx").write_bytes(b"\xff" * 100)
    assert main(["validate", "bad.onnx", "good.onnx"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("dmlsplit: error: bad.onnx: ")
    assert "1 split in 1 file at feature level 6_4: 1 ok" in captured.out
    assert "1 file could not be read" in captured.out


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
def test_every_format_goes_to_a_file_as_well(
    form: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", every_verdict())
    assert main(["validate", "m.onnx", "--feature-level", "2_0", "--format", form]) == 1
    shown = capsys.readouterr().out
    line = ["validate", "m.onnx", "--feature-level", "2_0", "--format", form, "-o", "report"]
    assert main(line) == 1
    assert capsys.readouterr().out == ""
    assert Path("report").read_text("utf-8") == shown
    assert sorted(path.name for path in here.iterdir()) == ["m.onnx", "report"]
    if form == "junit":
        ET.parse("report")


def test_a_report_that_cannot_be_written_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *FLAGS, "-o", "no/such/report"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_annotations_of_a_good_model_are_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    assert main(["validate", "m.onnx", "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


# Hostile files.


def assert_one_line_and_2(capsys: pytest.CaptureFixture[str], name: str) -> None:
    start = time.process_time()
    assert main(["validate", name, "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dmlsplit: error: {name}: ")
    assert captured.err.count("\n") == 1
    assert json.loads(captured.out)["unreadable"][0]["file"] == name
    assert time.process_time() - start < 10


@pytest.mark.parametrize("case", HOSTILE_ONNX)
def test_hostile_onnx(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.onnx").write_bytes(HOSTILE_ONNX[case][0])
    assert_one_line_and_2(capsys, "m.onnx")


@pytest.mark.parametrize("content", HOSTILE_XML, ids=range(len(HOSTILE_XML)))
def test_hostile_xml(content: bytes, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.xml").write_bytes(content)
    assert_one_line_and_2(capsys, "m.xml")


@pytest.mark.parametrize("content", HOSTILE_JSON, ids=range(len(HOSTILE_JSON)))
def test_hostile_json(content: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.json").write_text(content)
    assert_one_line_and_2(capsys, "m.json")


def test_names_from_a_model_cannot_drive_the_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = single(TensorProto.FLOAT, (6,), (2, 5), 0)
    content.graph.node[1].name = "\x1b]0;owned\x07"
    content.graph.name = "\x1b[2J"
    save("m.onnx", content)
    main(["validate", "m.onnx", "bad\x1b[2J.onnx"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b" in captured.out


# Terminals and pipes.


def on_a_terminal(*arguments: str, folder: Path, **environment: str) -> str:
    """Run a command whose output is a terminal; return what it shows."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    child = started(
        *arguments,
        folder=folder,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm", "PYTHONPATH": str(ROOT), **environment},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    child.wait()
    os.close(ours)
    return shown.decode()


def test_colour_is_for_terminals(here: Path) -> None:
    line = ["validate", *FLAGS]
    assert "\x1b[32mok\x1b[0m" in on_a_terminal(*line, folder=here)
    assert "\x1b" not in on_a_terminal(*line, folder=here, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*line, folder=here, TERM="dumb")
    out, _ = started(*line, folder=here).communicate()
    assert b"\x1b" not in out


@pytest.mark.slow
def test_long_scans_show_their_progress_on_a_terminal_only(here: Path) -> None:
    for index in range(6):
        sparse_model(here / f"{index}.onnx", 1 << 20, copies=3000)
    line = ["validate", ".", "-o", "report"]
    shown = on_a_terminal(*line, folder=here)
    assert re.search(r"scan: +\d+%", shown)
    with started(*line, folder=here) as child:
        assert child.stderr
        assert child.stderr.read() == b""


def test_a_pipe_that_closes_early_is_no_error(here: Path) -> None:
    for name in "abcdefgh":
        save(f"{name}.onnx", every_verdict())
    line = ["validate", ".", "--format", "json", "--feature-level", "2_0"]
    with started(*line, folder=here) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1


def test_a_full_disk_is_one_line(here: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        child = started("validate", *FLAGS, folder=here, stdout=full)
        _, err = child.communicate()
    assert child.returncode == 2
    assert err == b"dmlsplit: error: No space left on device\n"


def test_an_interrupt_is_quiet(here: Path) -> None:
    sparse_model(here / "big.onnx", 1 << 20, copies=200_000)
    child = started("validate", "big.onnx", folder=here)
    mapped = Path(f"/proc/{child.pid}/maps")
    while "big.onnx" not in mapped.read_text():
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130
    assert b"Traceback" not in err


# Large models.


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def length_delimited(number: int, size: int) -> bytes:
    return varint(number << 3 | 2) + varint(size)


def sparse_model(path: Path, weights: int, copies: int = 1) -> None:
    """Write a model with a split and `weights` bytes of initializers, as a hole in the file."""
    graph = single(TensorProto.FLOAT, (6, 4), (2, 4), 0).graph
    nodes = graph.SerializeToString() + b"".join(
        length_delimited(1, len(node)) + node
        for node in [graph.node[1].SerializeToString()] * (copies - 1)
    )
    head = b"".join(
        [
            b"\x08\x01\x08" + varint(weights // 4),  # dims: 1, elements
            b"\x10\x01" + length_delimited(8, 1) + b"w",  # data_type FLOAT, name
            length_delimited(9, weights),  # raw_data
        ]
    )
    tensor = length_delimited(5, len(head) + weights) + head
    opset = length_delimited(8, 2) + b"\x10\x12"
    front = b"\x08\x0a" + opset
    front += length_delimited(7, len(nodes) + len(tensor) + weights) + nodes + tensor
    with path.open("wb") as file:
        file.write(front)
        file.truncate(len(front) + weights)


# A child's ru_maxrss counts its parent's memory before exec; VmHWM does not.
MEASURE = """
import sys, time
from dmlsplit.cli import main
start = time.perf_counter()
status = main(sys.argv[1:])
seconds = time.perf_counter() - start
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(status, seconds, int(peak) * 1024, file=sys.stderr)
"""


def measured(*arguments: str, folder: Path) -> tuple[float, int, str]:
    """Seconds of a command that accepts, its peak resident bytes, and its output."""
    line = [sys.executable, "-c", MEASURE, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    status, seconds, peak = done.stderr.split()
    assert status == "0"
    return float(seconds), int(peak), done.stdout


@pytest.mark.slow
def test_a_gigabyte_of_weights_is_passed_over(
    here: Path, record_property: Callable[[str, object], None]
) -> None:
    sparse_model(here / "small.onnx", 4)
    sparse_model(here / "large.onnx", 1 << 30)
    assert onnx.load(here / "small.onnx").graph.initializer[0].name == "w"
    quick, base, _ = measured("validate", "small.onnx", folder=here)
    seconds, peak, out = measured("validate", "large.onnx", folder=here)
    record_property("seconds", seconds)
    record_property("peak_bytes", peak)
    record_property("base_bytes", base)
    assert "1 split in 1 file" in out
    assert seconds < quick + 2
    assert peak < base + (8 << 20)


# explain


def test_explain_shows_geometry_bytes_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--data-type INT8 --sizes 640,480,3 --axis 2 --split 1,1,1 --card H200".split()
    assert main(["explain", *line]) == 0
    out = capsys.readouterr().out
    assert "geometry: 307200 x 3 bytes" in out
    assert "output 2: bytes 2 to 2 of every row" in out
    assert "bytes: 921600 read, 921600 written" in out
    assert "time: at least 384 ns on H200 (4800 GB/s)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_explain_draws_a_picture(here: Path) -> None:
    assert main(["explain", *FLAGS, "--svg", "picture.svg"]) == 0
    assert ET.parse("picture.svg").getroot().tag.endswith("svg")


def test_explain_takes_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", every_verdict())
    assert main(["explain", "m.onnx", "--format", "json"]) == 1
    captured = capsys.readouterr()
    places = [split["place"] for split in json.loads(captured.out)["splits"]]
    assert places[:3] == ["m.onnx:net/fits", "m.onnx:net/wide", "m.onnx:net/odd"]
    assert "net/wrong: refused" in captured.err
    assert "net/late: unknown" in captured.err
    assert main(["explain", "m.onnx", "--svg", "x.svg"]) == 2


def test_devices_are_listed_or_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    captured = capsys.readouterr()
    assert "no CUDA device" in captured.err or "bandwidth" in captured.out
    assert main(["devices", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1


def test_an_unknown_card_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *FLAGS, "--card", "Voodoo 2"]) == 2
    assert "GPU is 'Voodoo 2'; it must be one of H200" in capsys.readouterr().err


# --write-fixed


def test_write_fixed_writes_what_the_target_accepts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", nested())
    line = ["m.onnx", "--windows", "19041"]
    assert main(["validate", *line, "--write-fixed", "fixed.onnx"]) == 1
    assert "fixed.onnx: written with 2 splits replaced" in capsys.readouterr().err
    assert judged(capsys, "fixed.onnx", "--windows", "19041")[0] == 0


def test_write_fixed_says_what_it_leaves(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", single(TensorProto.INT64, (6,), (2, 4), 0))
    line = ["validate", "m.onnx", "--feature-level", "2_0", "--write-fixed", "fixed.onnx"]
    assert main(line) == 1
    assert "net/cut: left as it is: standard ONNX cannot show INT64" in capsys.readouterr().err
    assert not Path("fixed.onnx").exists()


def test_write_fixed_helps_through_onnx_runtime(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", sequence(TensorProto.FLOAT, (2, 3)))
    line = ["validate", "m.onnx", "--via", "ort", "--write-fixed", "fixed.onnx"]
    assert main(line) == 1
    assert judged(capsys, "fixed.onnx", "--via", "ort")[0] == 0


# Help and completion.


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_help_reads_like_a_manual(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert "exit status:" in shown


def test_the_examples_of_the_help_are_understood() -> None:
    parser = build_parser()
    for command in ("validate", "explain", "completion"):
        action = next(a for a in parser._actions if a.choices and command in a.choices)
        text = action.choices[command].epilog.replace("\\\n", " ")  # type: ignore[index]
        lines = [line.strip() for line in text.splitlines() if line.strip().startswith("dmlsplit ")]
        assert lines
        for line in lines:
            parser.parse_args(line.partition(" > ")[0].replace("'", "").split()[1:])


README = (ROOT / "README.md").read_text("utf-8")
IN_CI = README.partition("\n## In CI\n")[2].partition("\n## ")[0]


def test_the_output_in_the_readme_is_real(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, shown = re.findall(r"```console\n\$ dmlsplit (.*?)\n(.*?)```", IN_CI, re.DOTALL)[0]
    save("model.onnx", single(TensorProto.INT64, (6,), (2, 4), 0))
    assert main(line.split()) == 1
    assert capsys.readouterr().out == shown


def test_the_steps_and_hooks_in_the_readme_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("models/m.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", IN_CI, re.DOTALL)]
    annotations, scanning, hooks = blocks
    lines = [step["run"] for step in annotations + scanning if "validate" in step.get("run", "")]
    lines += [f"{hook['entry']} models/m.onnx" for hook in hooks["repos"][0]["hooks"]]
    published = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    lines += [f"{hook['entry']} models/m.onnx" for hook in published]
    assert len(lines) == 4
    for line in lines:
        assert main(line.split()[1:]) == 0, line
    assert Path(scanning[-1]["with"]["sarif_file"]).exists()


def test_bash_completes_commands_and_options(here: Path) -> None:
    script, _ = started("completion", "bash", folder=here).communicate()
    Path("completion").write_bytes(script)
    ask = 'COMP_WORDS=(dmlsplit {0}); COMP_CWORD={1}; _shtab_dmlsplit; echo "${{COMPREPLY[@]}}"'

    def completed(words: str, at: int) -> str:
        line = f". ./completion; {ask.format(words, at)}"
        return subprocess.run(
            [shutil.which("bash") or "bash", "-c", line], capture_output=True, text=True, check=True
        ).stdout

    assert completed("val", 1).split() == ["validate"]
    assert "--feature-level" in completed("validate --feat", 2)
    assert completed("validate --format s", 3).split() == ["sarif"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "write-fixed" in out
