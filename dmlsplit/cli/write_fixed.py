"""``--write-fixed``: rewritten models, one beside the old one or those of a folder into another."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dmlsplit.cli.reports import is_one_file
from dmlsplit.cli.terminal import progress_bar
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError, one_line
from dmlsplit.messages import MAX_SHOWN, counted, omitted_lines

if TYPE_CHECKING:
    from dmlsplit.lint.fix.replacement import Replacement
    from dmlsplit.lint.fix.rewrite import Rewriting
    from dmlsplit.lint.verdict import Assessment, Verdict


class Fixed(NamedTuple):
    """What was written."""

    # The assessment after the changes, and then, if there are changes, the one before them.
    reported: tuple["Assessment", ...]
    # What was changed, in lines.
    changes: Sequence[str] = ()
    # Why the only model could not be written.
    failure: DmlError | OSError | None = None
    # Whether one of several models could not be written.
    failed: bool = False


class _Model(NamedTuple):
    """What became of a model of a folder."""

    # A key of `_FATES`.
    fate: str
    text: str
    rewriting: "Rewriting | None" = None


# What becomes of the models of a folder, with the words that count them.
_FATES = {
    "written": "written",
    "skipped": "skipped, because nothing has to be replaced",
    "not fixable": "not fixable",
    "failed": "failed",
}


def check_write_fixed(arguments: argparse.Namespace) -> None:
    """Refuse, before the scan, options that need --write-fixed, and outputs that cannot be."""
    fixed = arguments.write_fixed
    if fixed is None:
        if arguments.overwrite:
            raise InvalidArgumentError(
                "--overwrite applies to --write-fixed only; reports always replace files. "
                "Fix: omit --overwrite"
            )
        return
    if not arguments.paths:
        raise InvalidArgumentError("--write-fixed needs PATHs: .onnx files, or folders of them")
    if not is_one_file(arguments.paths):
        _check_folder(arguments, Path(fixed))
        return
    if not _is_onnx(fixed):
        raise InvalidArgumentError(
            f"--write-fixed is {fixed!r}; it must be a file whose name ends in .onnx"
        )
    if not _is_onnx(arguments.paths[0]):
        raise InvalidArgumentError(
            f"--write-fixed is given for {arguments.paths[0]}; it rewrites .onnx files only. "
            "Fix: omit it"
        )
    from dmlsplit.models.onnx.scanner import check_output

    # An error should come before the scan, which may take a while. `write_fixed` checks again.
    check_output(Path(arguments.paths[0]), Path(fixed), overwrite=arguments.overwrite)


def _check_folder(arguments: argparse.Namespace, folder: Path) -> None:
    """Refuse a folder, or outputs in it, that cannot be written."""
    if not folder.is_dir() and (folder.exists() or _is_onnx(folder.name)):
        raise InvalidArgumentError(
            f"--write-fixed is {str(folder)!r}, a file; for several models, it must be a folder, "
            "such as fixed"
        )
    from dmlsplit.lint.fix.outputs import check_output_paths

    outputs = _output_paths(arguments)
    check_output_paths(outputs, outputs, overwrite=arguments.overwrite)


def _is_onnx(path: str) -> bool:
    """Whether a name is that of an ONNX model."""
    return path.lower().endswith(".onnx")


def _output_paths(arguments: argparse.Namespace) -> dict[str, Path]:
    """The output of each ONNX model of the paths."""
    from dmlsplit.lint.fix.outputs import output_paths
    from dmlsplit.models.discovery import model_files

    files = model_files(arguments.paths, include_hidden=arguments.hidden)
    return output_paths(Path(arguments.write_fixed), (pair for pair in files if _is_onnx(pair[0])))


def write_fixed(
    arguments: argparse.Namespace, assessment: "Assessment", inputs: Sequence[str]
) -> Fixed:
    """Write the rewritten models that the options ask for, and say what was done."""
    if arguments.write_fixed is None:
        return Fixed((assessment,))
    try:
        import dmlsplit.lint.fix.rewrite  # noqa: F401
    except ModuleNotFoundError as error:
        missing = UnsupportedError(
            f"--write-fixed needs the package {error.name}. Fix: pip install 'dmlsplit[onnx]'"
        )
        return Fixed((assessment,), failure=missing)
    if is_one_file(arguments.paths):
        return _fix_file(arguments, assessment)
    return _fix_folder(arguments, assessment, inputs)


# One model.


def _fix_file(arguments: argparse.Namespace, assessment: "Assessment") -> Fixed:
    """Write the rewritten model of the only path."""
    if assessment.unreadable:
        return Fixed((assessment,))
    try:
        with progress_bar("rewrite"):
            rewriting = _rewritten(
                arguments, arguments.paths[0], Path(arguments.write_fixed), assessment
            )
    except (DmlError, OSError) as error:
        return Fixed((assessment,), failure=error)
    changes = _changes(rewriting, arguments.write_fixed)
    return Fixed(_reported(assessment, rewriting.written), changes)


def _rewritten(
    arguments: argparse.Namespace, source: str, output: Path, assessment: "Assessment"
) -> "Rewriting":
    """Write the rewritten form of one model."""
    from dmlsplit.lint.fix import rewrite

    sizes = dict(arguments.dim)
    return rewrite.write_fixed(
        Path(source), output, assessment, sizes, overwrite=arguments.overwrite
    )


def _reported(before: "Assessment", after: "Assessment | None") -> tuple["Assessment", ...]:
    """The assessments that reports show: of the written model, if there is one, and the old."""
    from dmlsplit.lint.advice import without_rewriting

    return tuple(
        without_rewriting(assessment) for assessment in (after, before) if assessment is not None
    )


def _changes(rewriting: "Rewriting", output: str) -> list[str]:
    """Whether the model was written, then a line for each split: what replaces it, or why not."""
    from dmlsplit.lint.report.findings import address

    unreplaced = [f"{address(s)}: not replaced: {reason}" for s, reason in rewriting.not_replaced]
    if rewriting.written is None:
        why = "no split could be replaced" if unreplaced else "no split is refused"
        return [f"{why}, so {output} was not written", *unreplaced]
    replaced = [f"{address(split.site)}: now {split.operators}" for split in rewriting.replaced]
    return [
        f"{output}: {counted(len(replaced), 'split')} replaced; {_comparison(rewriting.replaced)}",
        *replaced[:MAX_SHOWN],
        *omitted_lines(len(replaced), MAX_SHOWN),
        *unreplaced,
    ]


def _comparison(splits: Sequence["Replacement"]) -> str:
    """How the replaced splits were compared: on what, at which sizes, and where."""
    counts = sorted({split.input_count for split in splits})
    smallest = [split.smallest_size for split in splits if split.smallest_size is not None]
    sizes = f" with several dynamic sizes from {max(smallest)}" if smallest else ""
    runtimes = " and ".join(sorted({split.runtime for split in splits}))
    return (
        f"outputs are equal bit for bit on {' or '.join(map(str, counts))} random inputs{sizes}, "
        f"compared in {runtimes}, not with DirectML"
    )


# The models of a folder.


def _fix_folder(
    arguments: argparse.Namespace, assessment: "Assessment", inputs: Sequence[str]
) -> Fixed:
    """Write the rewritten models of several paths into a folder."""
    from dmlsplit.lint.fix.outputs import check_output_paths

    outputs = _output_paths(arguments)
    # The scan has found the files with weights, which are inputs, too.
    check_output_paths(outputs, inputs, overwrite=arguments.overwrite)
    unreadable = {file for file, _ in assessment.unreadable}
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in assessment.verdicts:
        verdicts[verdict.site.file].append(verdict)
    files = dict.fromkeys([*outputs, *verdicts])
    fates: dict[str, _Model] = {}
    with progress_bar("rewrite", "model") as progress:
        for number, file in enumerate(file for file in files if file not in unreadable):
            model_assessment = replace(assessment, verdicts=tuple(verdicts.get(file, ())))
            fates[file] = _fix_model(arguments, file, outputs.get(file), model_assessment)
            progress(number + 1, len(files))
    written = {
        file: list(model.rewriting.written.verdicts)
        for file, model in fates.items()
        if model.rewriting and model.rewriting.written
    }
    before = assessment if written else None
    merged = chain.from_iterable((verdicts | written).values())
    after = replace(assessment, verdicts=tuple(merged))
    reported = _reported(after, None) if before is None else _reported(before, after)
    failed = any(model.fate == "failed" for model in fates.values())
    return Fixed(reported, _folder_changes(arguments.write_fixed, fates), failed=failed)


def _fix_model(
    arguments: argparse.Namespace, file: str, output: Path | None, model_assessment: "Assessment"
) -> _Model:
    """Write a model of a folder, if it needs it; an error is that of this model only."""
    from dmlsplit.lint.report.findings import address
    from dmlsplit.lint.verdict import CHANGEABLE

    if not any(verdict.outcome in CHANGEABLE for verdict in model_assessment.verdicts):
        return _Model("skipped", "skipped")
    if output is None:
        return _Model("not fixable", "not fixable: only .onnx files are rewritten")
    if why := _bound_to_weights(model_assessment, file, output):
        return _Model("not fixable", f"not fixable: {why}")
    try:
        with _folders_for(output):
            rewriting = _rewritten(arguments, file, output, model_assessment)
    except (DmlError, OSError) as error:
        return _Model("failed", f"failed: {one_line(error, with_path=isinstance(error, OSError))}")
    unreplaced = [f"{address(site)}: {reason}" for site, reason in rewriting.not_replaced]
    why = "; ".join([*unreplaced[:1], *omitted_lines(len(unreplaced), 1, "split")])
    if rewriting.written is not None:
        count = counted(len(rewriting.replaced), "split")
        text = f"{output}: {count} replaced{f'; not replaced: {why}' if why else ''}"
        return _Model("written", text, rewriting)
    if unreplaced:
        return _Model("not fixable", f"not fixable: {why}")
    return _Model("skipped", "skipped")


def _bound_to_weights(model_assessment: "Assessment", file: str, output: Path) -> str:
    """Why a model cannot be written to another folder; empty if it can."""
    from dmlsplit.models.onnx.scanner import weight_files

    beside = {verdict.rewriting for verdict in model_assessment.verdicts} - {""}
    if not beside or Path(file).parent.resolve() == output.parent.resolve():
        return ""
    if not weight_files(Path(file)):
        return ""
    where = "its weights are in other files, which must be in the folder of the written model"
    return f"{where}. Fix: {beside.pop()}"


@contextmanager
def _folders_for(output: Path) -> Iterator[None]:
    """Make the folders of an output; those that stay empty are removed again."""
    missing = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        # Removal stops at the first folder that is not empty.
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _folder_changes(folder: str, fates: dict[str, _Model]) -> list[str]:
    """How many models were written, then a line for each."""
    counts = Counter(model.fate for model in fates.values())
    totals = [f"{counts[fate]} {text}" for fate, text in _FATES.items() if counts[fate]]
    splits: list[Replacement] = []
    for model in fates.values():
        if model.rewriting:
            splits += model.rewriting.replaced
    comparison = f"; {_comparison(splits)}" if splits else ""
    head = f"{folder}: {counted(len(fates), 'model')}: {'; '.join(totals)}{comparison}"
    return [head, *(f"{file}: {model.text}" for file, model in fates.items())]
