"""ONNX Runtime's DirectML provider: the descriptors that it makes, and the rules that it adds."""

from hypothesis import given

import dmlsplit as dml
from dmlsplit.directml import rules
from dmlsplit.frontends import SplitSite
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.target import resolve_target
from tests.support.descriptors import split_descriptors


@given(desc=split_descriptors())
def test_padding_moves_the_same_pieces(desc: dml.SplitOperatorDesc) -> None:
    lowered = onnxruntime.lowered(desc)
    assert lowered.input_tensor.dimension_count >= 4
    assert lowered.split_sizes == desc.split_sizes
    assert lowered.input_tensor.element_count == desc.input_tensor.element_count
    assert lowered.input_tensor.sizes[lowered.axis] == desc.input_tensor.sizes[desc.axis]


def test_empty_outputs_are_a_trap_only_if_others_are_not_empty() -> None:
    def broken(*pieces: int) -> list[str]:
        x = dml.TensorDesc("FLOAT32", (6,))
        desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[6])
        solid = (desc,) if any(pieces) else ()
        site = SplitSite("f", "net", "n", 0, "Split-13", solid, pieces=pieces)
        found = onnxruntime.violations(site, resolve_target(via="ort"))
        return [violation.rule.id for violation in found]

    assert broken(2, 0, 0) == ["ORT-EMPTY-PIECE"] * 2
    assert broken(0, 0) == []
    assert broken(1, 2) == []


def test_rules_are_complete() -> None:
    assert RULES.items() > rules.RULES.items()
    for name, rule in RULES.items():
        assert name == rule.id
        assert rule.hint
        assert not rule.sentence.endswith("..")
