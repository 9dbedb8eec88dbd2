"""Front ends for the splits of ONNX, OpenVINO and DxDispatch.

Each turns a split into a `SplitOperatorDesc`, without side effects, and runs it on a `Device`.
`scan(path)` finds every split of a model file without running anything.
"""

from dmlsplit.models.site import (
    Invalid,
    Known,
    SplitSite,
    Unknown,
)

__all__ = ["Invalid", "Known", "SplitSite", "Unknown"]
