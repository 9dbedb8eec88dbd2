"""Readers of other systems' splits: ONNX, OpenVINO and DxDispatch.

Each front end has a pure `lower` step, from attributes, types and shapes to
`SplitOperatorDesc`s and what happens around them, and a run step that hands the
descriptors to a `Device`. `scan(path)` finds every split of a model file without
running anything.
"""

from dmlsplit.frontends.site import SplitSite

__all__ = ["SplitSite"]
