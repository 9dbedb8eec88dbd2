"""Scans the bytes of an ONNX model."""

import mmap
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from dmlsplit.errors import InvalidArgumentError, limit_error
from dmlsplit.models.limits import FIELDS_PER_BYTE, MAX_FIELDS, MIN_FIELDS
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.missing_sizes import without_examples
from dmlsplit.models.onnx.protobuf import Model, Shape
from dmlsplit.models.onnx.reader import LimitError, Reader, Span, WireError
from dmlsplit.models.onnx.walk import Walk
from dmlsplit.models.site import Invalid, NodePath, OnnxModel, SplitSite


class ModelScan(NamedTuple):
    """The splits of a model, and what is wrong in its declarations."""

    sites: list[SplitSite]
    # The inferred shapes of values whose declared shapes are wrong, by the path of the graph and
    # the name of the value.
    contradicted: Mapping[tuple[NodePath, str], Shape]
    # Whether an input has a default, which a caller may override.
    has_defaults: bool
    model: OnnxModel


def scan_model(name: str, data: bytes | mmap.mmap, dimensions: FixedSizes) -> ModelScan:
    """Scan a model; `name` is for its sites."""
    result = _scan(name, data, dimensions, with_defaults=True)
    if not result.has_defaults:
        return result
    others = _scan(name, data, dimensions, with_defaults=False)
    return result._replace(sites=_with_overridable(result.sites, others.sites))


def _scan(
    name: str, data: bytes | mmap.mmap, dimensions: FixedSizes, *, with_defaults: bool
) -> ModelScan:
    """Scan a model once, with or without the defaults of its inputs."""
    reader = Reader(data, min(MAX_FIELDS, MIN_FIELDS + FIELDS_PER_BYTE * len(data)))
    try:
        model = reader.read(Model, Span(0, len(data)))
        if len(model.graph) != 1:
            raise WireError(f"it has {len(model.graph)} graphs; a model must have 1")
        walk = Walk(name, reader, model, dimensions, with_defaults=with_defaults)
        sites = walk.find_sites()
        return ModelScan(sites, walk.contradictions.shapes, walk.has_defaults, walk.model)
    except LimitError as error:
        raise limit_error(str(error)) from None
    except WireError as error:
        raise InvalidArgumentError(
            f"cannot be read as an ONNX model: {error}. Fix: export or download the model again"
        ) from None


def _with_overridable(sites: list[SplitSite], others: list[SplitSite]) -> list[SplitSite]:
    """The sites; those that are not the same in `others`, without defaults, are overridable.

    ONNX Runtime folds, and leaves out, only what no caller can change. So are the positions at
    which pieces are taken.
    """
    by_path = {site.path: without_examples(site) for site in others}
    text = "its sizes follow from the default of a graph input; a caller may override it"
    merged = []
    for site in sites:
        other = by_path.get(site.path)
        runs_never, is_folded = (other.never_runs, other.is_folded) if other else (None, False)
        taken = other.taken if other else ()
        site = replace(site, never_runs=runs_never, is_folded=is_folded, taken=taken)
        if other != without_examples(site):
            site = replace(site, is_overridable=True, warnings=(*site.warnings, text))
            if isinstance(site.state, Invalid) and not (other and isinstance(other.state, Invalid)):
                # ONNX Runtime does not check defaults, as a caller may give other sizes.
                site = replace(site, state=replace(site.state, is_loaded=True))
        merged.append(site)
    return merged
