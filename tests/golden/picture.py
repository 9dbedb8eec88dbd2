"""The picture that README and the start page of the site show: where it is, and what it shows."""

import dmlsplit as dml
from tests.support.command import ROOT

PICTURE = ROOT / "docs" / "pictures" / "split.svg"
PIXELS = dml.SplitOperatorDesc.from_sizes(
    dml.TensorDesc("UINT8", (1, 4, 8, 3)), axis=3, sizes=(1, 1, 1)
)
