"""All cases, and the open questions about DirectML that they answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from dmlsplit.conformance.binding_cases import binding_cases
from dmlsplit.conformance.byte_cases import byte_cases
from dmlsplit.conformance.case import Case
from dmlsplit.conformance.rule_cases import rule_cases
from dmlsplit.conformance.table_cases import table_cases


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case, in the same order every time."""
    return (*table_cases(), *rule_cases(), *byte_cases(), *binding_cases())


@dataclass(frozen=True, slots=True)
class Question:
    """Something about DirectML that no document settles."""

    text: str
    patterns: tuple[str, ...]  # of case ids; empty if the levels of the device answer it

    @property
    def cases(self) -> Iterator[str]:
        """The ids of the cases that answer it."""
        for case in all_cases():
            if any(fnmatchcase(case.id, pattern) for pattern in self.patterns):
                yield case.id


QUESTIONS = (
    Question(
        "Does a DirectML of level 1_0 or 2_0 take other ranks than 4? The operator's page says no; "
        "the release notes of 1.4.0 say that the limit was 5.",
        ("table-FLOAT32-[1-8]", "table-UINT16-[1-8]"),
    ),
    Question(
        "Are outputs that overlap themselves refused, taken, or named by the debug layer only?",
        ("rule-TENSOR-OUTPUT-OVERLAP-*",),
    ),
    Question(
        "Are a total that is no multiple of 4, the alignment and OWNED_BY_DML on an output checked "
        "at create, later, or never?",
        ("rule-TENSOR-SIZE-DWORD-*", "rule-TENSOR-ALIGNMENT-*", "rule-TENSOR-OWNED-OUTPUT"),
    ),
    Question(
        "Are 2^32 elements, and an index past 2^32, refused?",
        ("rule-TENSOR-ELEMENT-COUNT", "rule-TENSOR-SIZE-WRAP", "limit-elements", "limit-index"),
    ),
    Question(
        "Is every refusal E_INVALIDARG, or are some DXGI_ERROR_UNSUPPORTED?",
        ("rule-*", "table-*-0", "table-*-9", "table-UNKNOWN-4", "table-*INT4-4"),
    ),
    Question(
        "Does any descriptor crash or hang DirectML instead of being refused?",
        ("rule-*", "table-*-0", "table-*-9"),
    ),
    Question(
        "Does binding the input's memory as an output always remove the device, or with the debug "
        "layer only? Does the same buffer do, where the ranges are apart?",
        ("bind-in-place", "bind-same-buffer"),
    ),
    Question(
        "Do overlapping outputs always remove the device, or with the debug layer only?",
        ("bind-overlap", "bind-overlap-half"),
    ),
    Question(
        "Does Split take FLOAT64 on WARP?",
        ("table-FLOAT64-[1-8]", "bytes-type-FLOAT64", "bytes-bits-FLOAT64"),
    ),
    Question("Is a device with a low minimumFeatureLevel still one of the DLL's own level?", ()),
)
