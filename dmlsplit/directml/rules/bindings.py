"""The rules of bindings, whose records are in bindings.yaml.

Their examples bind a split of FLOAT32[6] into pieces of 2 and 4.
"""

from pathlib import Path

from dmlsplit.directml.rules.rule import Example, read_rules

_PROGRAM = """\
import numpy as np
import dmlsplit as dml

x = dml.TensorDesc("FLOAT32", (6,){tensor})
desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4))
op = dml.Device("cpu").compile(desc)
a, outs = np.zeros(6, "f4"), [np.zeros(2, "f4"), np.zeros(4, "f4")]
{bind}"""


def _example(
    broken: str, message: str, kept: str = "op.bind(a, outs)", tensor: str = ""
) -> Example:
    """Programs that differ in what they bind."""

    def program(bind: str) -> str:
        return _PROGRAM.format(bind=bind, tensor=tensor and f", {tensor}")

    return Example("python", program(broken), program(kept), message)


BINDINGS = read_rules(Path(__file__).with_suffix(".yaml"), example=lambda e: _example(**e))
