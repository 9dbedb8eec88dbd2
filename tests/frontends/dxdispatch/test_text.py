"""Resources as DxDispatch prints them."""

from tests.support.dxdispatch_models import F32, Run, printed_values, values


def test_verbose_print_shows_bits(ran: Run) -> None:
    resource = {"initialValuesDataType": F32, "initialValues": [1, -2.5, 0] + [0] * 7}
    line = printed_values(ran, resource, verbose=True)
    assert line.startswith(
        "Resource 'X':\n[ 0] 1 (0x3F800000)\n[ 1] -2.5 (0xC0200000)\n[ 2] 0 (0x       0)\n"
    )
    line = printed_values(ran, values("INT16", [-1]), True)
    assert line == "Resource 'X':\n[0] -1 (0xFFFF)\n"
