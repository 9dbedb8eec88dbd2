"""The file of one run. It is replaced atomically after every finished row, so no row is lost."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.timing import Summary

FORMAT = 1
Row = dict[str, Any]


class ResultsError(Exception):
    """A results file that cannot be used; the message says why, and the fix."""


class Results:
    """Rows of a run, in a file.

    Parameters
    ----------
    path
        Where to write. An unfinished run of the same kind, commit and machine is resumed.
    kind
        ``cpu``, ``gpu`` or ``host``.
    environment
        The description from `benchmarks.environment`.
    """

    def __init__(self, path: Path, kind: str, environment: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind,
            "environment": environment,
            "resumed": [],
            "after": None,
            "rows": [],  # last: `_text` appends them
        }
        if path.exists():
            self._resume(load(path))
        self._write()

    @property
    def rows(self) -> list[Row]:
        """All finished rows."""
        return list(self.data["rows"])

    def has(self, **key: Any) -> bool:
        """Whether there is a finished row with these values."""
        return any(all(row.get(k) == v for k, v in key.items()) for row in self.data["rows"])

    def add(self, row: Row) -> None:
        """Add a finished row."""
        self.data["rows"].append(row)
        self._write()

    def finish(self, after: dict[str, Any]) -> None:
        """Add the state of the machine after the run, which is then complete."""
        self.data["after"] = after
        self._write()

    def _resume(self, old: dict[str, Any]) -> None:
        new = self.data["environment"]
        for what, stored, own in (
            ("kind", old["kind"], self.data["kind"]),
            ("commit", old["environment"].get("commit"), new.get("commit")),
            ("machine", old["environment"].get("machine"), new.get("machine")),
        ):
            if stored != own:
                raise ResultsError(
                    f"{self.path}: {what} is {stored}; this run's is {own}. "
                    "Fix: name another file with -o"
                )
        if old["after"] is not None:
            raise ResultsError(
                f"{self.path}: the run in it is complete. Fix: name another file with -o"
            )
        resumed = [*old["resumed"], new["time"]]
        self.data = {**old, "resumed": resumed}

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + ".part")
        with part.open("w") as file:
            file.write(_text(self.data))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)


def _text(data: dict[str, Any]) -> str:
    """A run as JSON with one line per row."""
    head = json.dumps({**data, "rows": []}, indent=1).removesuffix("[]\n}")
    rows = ",\n".join("  " + json.dumps(row) for row in data["rows"])
    return f"{head}[\n{rows}\n ]\n}}\n"


def with_text(names: Iterable[str], text: str | None) -> list[str]:
    """The names of cases that contain a text; all without one."""
    every = list(names)
    if chosen := [name for name in every if (text or "") in name]:
        return chosen
    raise ResultsError(
        f"no case has {text!r} in its name, which is one of:\n  " + "\n  ".join(every)
    )


def load(path: Path) -> dict[str, Any]:
    """Read a results file.

    Raises
    ------
    ResultsError
        If it cannot be read or is not a results file.
    """
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    keys = {"format", "kind", "environment", "resumed", "after", "rows"}
    if not isinstance(data, dict) or not keys <= data.keys() or data["format"] != FORMAT:
        raise ResultsError(f"{path}: not a results file of format {FORMAT}")
    return data


def measured(timing: Summary, samples: list[float], total_bytes: int) -> Row:
    """The columns of a peer that ran."""
    return {
        "status": "ok",
        "seconds": asdict(timing),
        "samples": [float(f"{sample:.6g}") for sample in samples],
        "gb_per_s": 2e-9 * total_bytes / timing.median,
    }


def failed(error: BaseException) -> Row:
    """The columns of a peer that did not run: "absent" or "failed", and the reason."""
    absent = isinstance(error, ModuleNotFoundError)
    text = " ".join(str(error).split()) or type(error).__name__
    return {"status": "absent" if absent else "failed", "message": text[:300]}
