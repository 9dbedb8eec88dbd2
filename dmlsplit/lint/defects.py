"""Known defects of DirectML that may affect a split, without an error."""

from collections.abc import Iterator

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.rules import make_defect
from dmlsplit.lint.target import Target
from dmlsplit.messages import omitted_lines
from dmlsplit.models.site import SplitSite

# The most nodes that are named as combining the pieces of a split.
_MAX_NODES = 4
# microsoft/DirectML, Releases.md, 1.9.1: "Fix bug with unconnected split nodes".
_FIRST_WITH_UNCONNECTED = (1, 9, 1)
# The first report, onnxruntime issue 21007, is of DirectML 1.14 in ONNX Runtime 1.18.
_FIRST_RECOMBINED = (1, 18)
# How the graphs that are fused can be avoided, by runtimes.yaml's graph_fusion.
_WITHOUT_FUSION = {
    "option": "disable graph fusion with the session option ep.dml.disable_graph_fusion=1 "
    "(ORT_DISABLE_ALL does not)",
    "enable_all": "stay below the optimization level ORT_ENABLE_ALL",
}


def defects(site: SplitSite, target: Target) -> Iterator[Violation]:
    """The defects that may affect a split which DirectML gets."""
    runtime = target.runtime
    # ONNX Runtime fuses the graph: an application that calls DirectML directly fuses none.
    if site.recombined_by and runtime and (runtime.release or ()) >= _FIRST_RECOMBINED:
        names = site.recombined_by
        nodes = ", ".join([*names[:_MAX_NODES], *omitted_lines(len(names), _MAX_NODES)])
        yield make_defect("SPLIT-DEFECT-RECOMBINED", f"its outputs are combined by {nodes}")
    is_old = target.directml is not None and target.directml < _FIRST_WITH_UNCONNECTED
    if runtime and site.unused_outputs and is_old:
        fusion = runtime.provider.graph_fusion.value if runtime.provider else ""
        avoided = f"; or {_WITHOUT_FUSION[fusion]}" if fusion in _WITHOUT_FUSION else ""
        fault = f"output {site.unused_outputs[0]} is unused"
        fix = Advice.USE_DIRECTML_OR_CONNECT_OUTPUTS.format(without_fusion=avoided)
        yield make_defect("SPLIT-DEFECT-UNCONNECTED", fault, fix)
