"""The pages of HRESULTS, which people search for."""

import pytest

from dmlsplit.cli import main
from dmlsplit.lint.hresult_page import hresult_of, hresult_page
from dmlsplit.lint.rules import HRESULTS, RULES
from tests.support.fixtures import Capsys


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("80070057", 0x80070057),
        ("0x80070057", 0x80070057),
        ("0X887a0004L", 0x887A0004),
        ("-2147024809", 0x80070057),
        ("E_INVALIDARG", 0x80070057),
        ("dxgi_error_device_removed", 0x887A0005),
        ("8007000E", 0x8007000E),
        ("80070058", None),
        ("model.onnx", None),
        ("DML-SPLIT-AXIS-RANGE", None),
    ],
)
def test_an_hresult_has_many_spellings(text: str, number: int | None) -> None:
    assert hresult_of(text) == number


@pytest.mark.parametrize("number", HRESULTS)
def test_a_page_names_the_rules_that_end_in_the_hresult_and_what_to_run(number: int) -> None:
    page = hresult_page(number)
    for name, rule in RULES.items():
        is_listed = rule.hresult == number and not rule.impossible_in_c
        assert (f"- {name}: " in page) == is_listed
    assert ("Rules whose violation" in page) == any(f"- {name}: " in page for name in RULES)
    assert "`dmlsplit " in page.partition("## Next")[2]


def test_the_command_prints_the_page_of_each_hresult(capsys: Capsys) -> None:
    assert main(["explain", "0x80070057", "887A0005"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("80070057 (E_INVALIDARG)\n\n")
    assert "\n887A0005 (DXGI_ERROR_DEVICE_REMOVED)\n\n" in output
