"""action.yml, with its steps run like on a runner, and the pre-commit hooks."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from onnx import TensorProto

from dmlsplit.cli import build_parser, main
from tests.support import networks
from tests.support.command import ROOT, every_parser, program, ran
from tests.support.dxdispatch import split_desc, tensor
from tests.support.fixtures import Capsys, Patch
from tests.support.models import one_split, parsed
from tests.support.openvino_files import variadic, weights

ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))

# INT64 needs level 4_1; Windows build 19041 has 2_0.
REFUSED = one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0)
ACCEPTED = one_split(TensorProto.FLOAT, (1, 1, 6, 2), sizes=(2, 4), axis=2)
# A checkout without `lfs: true` has this text instead of a model.
LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

bash = pytest.mark.skipif(sys.platform == "win32", reason="on Windows `bash` may be that of WSL")


@dataclass(frozen=True)
class Step:
    """The results of a step."""

    status: int
    log: str  # standard output
    errors: str
    outputs: dict[str, str]
    summary: str


def carry_out(
    step: str, workspace: Path, input_values: dict[str, str], **step_outputs: str
) -> Step:
    """Run a step of the action as GitHub's runner does.

    `step_outputs` are those of earlier steps, such as ``install_command``.
    """
    inputs = {
        name: input_definition["default"] for name, input_definition in ACTION["inputs"].items()
    } | input_values
    temporary = workspace.parent / "runner's temp"
    temporary.mkdir(exist_ok=True)

    def value(match: re.Match[str]) -> str:
        kind, *names = match[1].split(".")
        return inputs[names[0]] if kind == "inputs" else step_outputs[f"{names[0]}_{names[2]}"]

    environment = {
        name: re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)
        for name, text in STEPS[step]["env"].items()
    }
    output, summary = temporary / "output", temporary / "summary"
    output.write_text("")
    summary.write_text("")
    runner = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    runner |= {"GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(temporary)}
    script = temporary / "step.sh"
    script.write_text(STEPS[step]["run"])
    # The command line is that of `shell: bash`, from GitHub's "Workflow syntax".
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    action_run = ran(*line, cwd=workspace, env=runner | environment)
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return Step(
        action_run.returncode, action_run.stdout, action_run.stderr, outputs, summary.read_text()
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checkout with models, and the command that the action would have installed."""
    folder = tmp_path / "work space"
    folder.mkdir()
    program(tmp_path / "dmlsplit", "-m", "dmlsplit")
    return folder


def check(workspace: Path, **inputs: str) -> Step:
    input_values = {name.replace("_", "-"): value for name, value in inputs.items()}
    command = str(workspace.parent / "dmlsplit")
    return carry_out("validate", workspace, input_values, install_command=command)


@bash
def test_a_refused_model_fails_with_annotations_sarif_and_a_summary(workspace: Path) -> None:
    onnx.save(REFUSED, workspace / "a model.onnx")
    action_run = check(workspace, windows="19041")
    assert action_run.status == 1, action_run.errors
    (note,) = [line for line in action_run.log.splitlines() if line.startswith("::error ")]
    assert ",file=a model.onnx,line=1::" in note
    report = json.loads(Path(action_run.outputs["sarif"]).read_text())
    assert report["runs"][0]["results"][0]["ruleId"] == "DML-LEVEL-DATA-TYPE"
    assert action_run.outputs["status"] == "1"
    assert all(line.startswith("    ") for line in action_run.summary.splitlines()[2:])
    assert "\n      fix: dispatch the equivalent" in action_run.summary
    # The text for people is in the log between marks that turn workflow commands off.
    before, token, after = re.split(r"::stop-commands::(dmlsplit-\d+)\n", action_run.log)
    text, end, rest = after.partition(f"::{token}::\n")
    assert (before, end, rest) == (f"{note}\n", f"::{token}::\n", "")
    place = "--> a model.onnx net/cut\n  Split-18(x: INT64[6], axis=0) -> [2,4]\n"
    assert f"{place}  refused, an equivalent exists: 80070057" in text


@bash
def test_the_summary_says_whether_numbers_may_be_wrong(workspace: Path) -> None:
    onnx.save(networks.glu(), workspace / "m.onnx")
    action_run = check(workspace)
    assert action_run.status == 0
    last = " ".join(action_run.summary.split("\n    \n")[-1].split())
    assert last.startswith("2 splits in 1 file in ONNX Runtime ")
    assert ": 2 run on DirectML. Found 1 warning; " in last
    assert last.endswith("the numbers of 2 splits may be wrong (SPLIT-DEFECT-RECOMBINED)")


@bash
def test_the_models_are_scanned_once(workspace: Path) -> None:
    """A wrapper counts the calls of the command."""
    onnx.save(REFUSED, workspace / "m.onnx")
    command = workspace.parent / "dmlsplit"
    command.rename(workspace.parent / "honest")
    command.write_text(f'#!/bin/sh\necho call >> "{workspace.parent}/calls"\n')
    with command.open("a") as script:
        script.write(f'exec "{workspace.parent}/honest" "$@"\n')
    command.chmod(0o755)
    assert check(workspace, windows="19041").status == 1
    assert (workspace.parent / "calls").read_text() == "call\n"


@bash
def test_a_baseline_lets_only_new_findings_fail(workspace: Path) -> None:
    onnx.save(REFUSED, workspace / "m.onnx")
    first, second = (check(workspace, windows="19041", baseline="known.json") for _ in range(2))
    assert (first.status, second.status) == (1, 0)
    onnx.save(REFUSED, workspace / "a.onnx")
    assert check(workspace, windows="19041", baseline="known.json").status == 1


@bash
def test_paths_are_read_line_by_line_and_never_executed(workspace: Path) -> None:
    names = ["$(touch pwned).onnx", "`touch pwned`.onnx", "-v.onnx", "a;touch pwned.onnx", "'.onnx"]
    (workspace / "deep er" / "still").mkdir(parents=True)
    for name in [*names, "deep er/still/b.onnx", "left out.onnx"]:
        onnx.save(ACCEPTED, workspace / name)
    paths = "\n".join([*names[:4], "", "  deep er/**/*.onnx", names[4]])
    action_run = check(workspace, paths=paths, sarif="out put.sarif", annotations="false")
    assert action_run.status == 0, action_run.errors
    assert "6 splits in 6 files" in action_run.log
    assert action_run.outputs == {"sarif": "out put.sarif", "status": "0"}
    assert not (workspace / "pwned").exists()


DYNAMIC = parsed("(float[batch,6] x) => (float[] a) { a, b = Split <num_outputs = 2> (x) }")


@bash
def test_the_inputs_dim_and_fail_on_reach_the_command(workspace: Path) -> None:
    onnx.save(DYNAMIC, workspace / "m.onnx")
    assert check(workspace, fail_on="unknown defect", annotations="false").status == 1
    sized = check(workspace, fail_on="unknown", dim="\nbatch=6\n", annotations="false")
    assert sized.status == 0


@bash
def test_contradicting_options_have_no_report(workspace: Path) -> None:
    (workspace / "m.onnx").write_text(LFS_POINTER)
    action_run = check(workspace, windows="19041", directml="1.8.0")
    assert action_run.outputs == {"status": "2"}
    assert "name different targets. Fix: give one of them" in action_run.errors
    assert action_run.summary == ""


@bash
@pytest.mark.parametrize("sarif", ["m.onnx", "report.sarif"])
def test_wrong_usage_replaces_neither_a_model_nor_an_older_report(
    sarif: str, workspace: Path
) -> None:
    (workspace / "m.onnx").write_text(LFS_POINTER)
    (workspace / "report.sarif").write_text("mine")
    before = (workspace / sarif).read_bytes()
    wrong = check(workspace, windows="none", sarif=sarif)
    assert wrong.outputs == {"status": "2"}
    assert (workspace / sarif).read_bytes() == before


@bash
def test_a_report_replaces_an_older_one(workspace: Path) -> None:
    (workspace / "m.onnx").write_text(LFS_POINTER)
    (workspace / "report.sarif").write_text("mine")
    assert check(workspace, sarif="report.sarif").outputs["sarif"] == "report.sarif"
    assert "runs" in json.loads((workspace / "report.sarif").read_text())


@bash
def test_an_unreadable_file_has_a_report(workspace: Path) -> None:
    (workspace / "m.onnx").write_text(LFS_POINTER)
    unread = check(workspace, annotations="false")
    assert unread.status == 2
    assert Path(unread.outputs["sarif"]).exists()
    assert "lfs: true" in unread.errors


@bash
def test_the_action_installs_itself_in_its_own_environment(workspace: Path) -> None:
    """A fake Python records its arguments, so nothing is downloaded."""
    python = workspace.parent / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> "{workspace.parent}/calls"\n'
        f'if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "{python}" "$3/bin/python"; fi\n'
    )
    python.chmod(0o755)
    action_run = carry_out("install", workspace, {}, **{"python_python-path": str(python)})
    place = f"{workspace.parent}/runner's temp/dmlsplit-python"
    assert (action_run.status, action_run.outputs) == (0, {"command": f"{place}/bin/dmlsplit"}), (
        action_run.errors
    )
    calls = (workspace.parent / "calls").read_text().splitlines()
    assert calls == [f"-m venv {place}", f"-m pip install --quiet {ROOT}"]


def test_every_input_is_used_and_every_option_exists() -> None:
    input_names = re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", json.dumps(ACTION["runs"]))
    assert set(input_names) == set(ACTION["inputs"])
    (validate,) = (
        parser for parser in every_parser(build_parser()) if parser.prog == "dmlsplit validate"
    )
    options = set(re.findall(r"--[a-z-]+", STEPS["validate"]["run"]))
    assert "--fail-on" in options
    assert options <= validate._option_string_actions.keys()


# ---- the hooks ---------------------------------------------------------------------------------

FILES = {
    "dmlsplit": ("a b/model.onnx", "MODEL.ONNX"),
    "dmlsplit-openvino": ("openvino_model.xml", "ir/openvino_decoder_model.xml"),
    "dmlsplit-dxdispatch": ("dml_split.json", "models/dml_gemm.json"),
}
OTHERS = ("pom.xml", "package.json", "my_openvino.xml/x.json", "html.json", "model.onnx.data")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_matches_only_the_files_of_its_tool(hook: dict[str, Any]) -> None:
    assert "args" not in hook  # one model has one verdict: that of the command line
    # pre-commit searches a path relative to the repository for `files`.
    assert all(re.search(hook["files"], path) for path in FILES[hook["id"]])
    assert not [path for path in OTHERS if re.search(hook["files"], path)]
    other_paths = {path for name, paths in FILES.items() if name != hook["id"] for path in paths}
    assert not [path for path in other_paths if re.search(hook["files"], path)]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_passes_for_an_accepted_file_and_fails_for_a_refused_one(
    hook: dict[str, Any], tmp_path: Path, capsys: Capsys
) -> None:
    """The command is the entry, the arguments and the files, joined as pre-commit does."""
    good, bad = samples(hook["id"], tmp_path)
    command, *line = [*shlex.split(hook["entry"]), *hook.get("args", ())]
    assert command == "dmlsplit"
    assert main([*line, str(good)]) == 0
    assert main([*line, str(good), str(bad)]) == 1
    # A node that breaks its own rules never reaches DirectML, which therefore returns no number.
    assert re.search(r"refused: 80070057|SPLIT-NODE-INVALID", capsys.readouterr().out)


def samples(hook: str, folder: Path) -> tuple[Path, Path]:
    """An accepted file of the kind that a hook checks, and one whose lengths do not add up."""
    good, bad = (folder / f"{name}{Path(FILES[hook][0]).suffix}" for name in ("good", "bad"))
    for path, last in ((good, 4), (bad, 5)):
        if path.suffix == ".onnx":
            onnx.save(one_split(TensorProto.FLOAT, (1, 1, 6, 2), sizes=(2, last), axis=2), path)
        elif path.suffix == ".xml":
            path.write_text(variadic())
            path.with_suffix(".bin").write_bytes(weights(lengths=(2, last)))
        else:
            tensors = [tensor([1, 1, size, 2]) for size in (2, last)]
            ends = {"InputTensor": tensor([1, 1, 6, 2]), "OutputTensors": tensors}
            path.write_text(json.dumps(split_desc(Axis=2, OutputCount=2, **ends)))
    return good, bad


# ---- docs/ci.md --------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_page_lists_exactly_the_inputs_and_hooks_that_exist() -> None:
    assert len(STEPS_OF_THE_PAGE) == 2
    assert all(set(step["with"]) <= set(ACTION["inputs"]) for step in STEPS_OF_THE_PAGE)
    (hooks,) = [repo["hooks"] for example in EXAMPLES for repo in example.get("repos", ())]
    for hook in hooks:
        build_parser().parse_args(["validate", *hook.get("args", ()), "m.onnx"])
    ids = {hook["id"] for hook in HOOKS}
    assert {hook["id"] for hook in hooks} <= ids
    for title, names in ("input", ACTION["inputs"]), ("output", ACTION["outputs"]), ("hook", ids):
        section = PAGE.partition(f"| {title} |")[2].partition("\n\n")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        assert set(re.findall(r"`([\w-]+)`", " ".join(rows))) == set(names)


def fill(folder: Path) -> None:
    """The files that the examples of the page name, all of them accepted, in a repository."""
    for place in ("models", "exported/deep"):
        (folder / place).mkdir(parents=True)
        for number in range(6):
            onnx.save(ACCEPTED, folder / place / f"{number}.onnx")
    onnx.save(
        one_split(TensorProto.FLOAT, ("batch", 1, 6, 2), sizes=(2, 4), axis=2),
        folder / "models/dyn.onnx",
    )


STEPS_OF_THE_PAGE = [
    step
    for example in EXAMPLES
    for job in example.get("jobs", {}).values()
    for step in job["steps"]
    if step["uses"].startswith("dmlsplit/dmlsplit@")
]


@bash
@pytest.mark.parametrize("step", STEPS_OF_THE_PAGE, ids=["pull request", "code scanning"])
def test_a_workflow_of_the_page_passes_until_a_model_is_refused(
    step: dict[str, Any], workspace: Path
) -> None:
    fill(workspace)
    action_run = check(workspace, **step["with"])
    assert action_run.status == 0, action_run.log + action_run.errors
    assert Path(action_run.outputs["sarif"]).exists()
    onnx.save(
        one_split(TensorProto.FLOAT, (1, 1, 6, 2), sizes=(2, 5), axis=2),
        workspace / "models/bad.onnx",
    )
    assert check(workspace, **step["with"]).status == 1


SHELL_LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


@pytest.mark.parametrize("line", SHELL_LINES)
def test_a_command_of_the_page_exits_with_0(line: str, tmp_path: Path, monkeypatch: Patch) -> None:
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    line_ = words[words.index("dmlsplit") + 1 :]
    assert main(line_) == 0
    beside = re.findall(r"`(--(?:junit|sarif) [\w.]+)`", PAGE)
    assert len(beside) == 2
    assert main([*line_, *" ".join(beside).split()]) == 0
