"""Many short cases in one test."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import product
from typing import Any

SHOWN = 3  # failures whose tracebacks are printed


def each(**values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every combination of `values`; if it fails, name every case that does.

    Like `pytest.mark.parametrize`, for checks of microseconds: pytest needs 2 ms for each test.
    """
    cases = [dict(zip(values, case, strict=True)) for case in product(*values.values())]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run_all(**fixtures: Any) -> None:
            failures = {}
            for case in cases:
                try:
                    test(**fixtures, **case)
                except Exception as error:
                    failures[str(case)] = error
                    error.add_note(f"case: {case}")
            if failures:
                message = f"{len(failures)} of {len(cases)} cases failed: " + ", ".join(failures)
                raise ExceptionGroup(message, list(failures.values())[:SHOWN])

        signature = inspect.signature(test)
        fixture_parameters = [
            parameter for name, parameter in signature.parameters.items() if name not in values
        ]
        run_all.__signature__ = signature.replace(parameters=fixture_parameters)  # type: ignore[attr-defined]
        return run_all

    return decorated
