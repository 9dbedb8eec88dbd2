"""The dynamic sizes that would make unknown splits known, with examples that suit all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import lcm

from dmlsplit.directml.tensor import UINT_MAX
from dmlsplit.models.onnx.values import InferenceContext
from dmlsplit.models.site import Cause, SplitSite, Unknown


def missing_sizes(
    cause: Cause, context: InferenceContext, axis: int | None, axis_size: int, *, in_function: bool
) -> Iterator[tuple[str, int]]:
    """The sizes that would make one split known, as `dimension_name` calls them.

    `axis_size` suits its axis. In a function, names of values are not unique.
    """
    if cause is Cause.LENGTHS and not in_function:
        yield from ((name, axis_size) for name in sorted(context.inputs[1].sizes))
    if cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE):
        return
    shape = context.inputs[0].shape or ()
    axis_name = None if axis is None else shape[axis]
    for index, size in enumerate(shape):
        if not isinstance(size, int):
            is_axis = index == axis or (size is not None and size == axis_name)
            name = f"{context.node.input[0]}.{index}" if size is None else size
            yield name, axis_size if is_axis else 1


def unified_sites(sites: list[SplitSite], options: Mapping[str, str]) -> list[SplitSite]:
    """The sites, with examples that suit all of them: multiples of every number of pieces.

    Only the names in `options` can be given; sizes that they do not determine are left out.
    """
    sizes: dict[str, int] = {}
    gaps = [site.state for site in sites if isinstance(site.state, Unknown)]
    for name, size in chain.from_iterable(gap.missing for gap in gaps):
        multiple = lcm(size, sizes.get(name, 1))
        sizes[name] = multiple if multiple <= UINT_MAX else size
    return [_with_examples(site, sizes, options) for site in sites]


def _with_examples(
    site: SplitSite, sizes: Mapping[str, int], options: Mapping[str, str]
) -> SplitSite:
    """A site with the options that make it known, and a shape that suits them."""
    state = site.state
    if not isinstance(state, Unknown):
        return site
    names = [name for name, _ in state.missing]
    can_be_given = all(name in options for name in names)
    missing = tuple((options[name], sizes[name]) for name in names) if can_be_given else ()
    example = tuple(
        size if isinstance(size, int) else sizes.get(size or f"{site.input_name}.{axis}", 1)
        for axis, size in enumerate(site.shape or ())
    )
    example_shape = None if site.shape is None else example
    return replace(site, state=replace(state, missing=missing, example_shape=example_shape))


def without_examples(site: SplitSite) -> SplitSite:
    """A site without what other sites of the model decide."""
    if not isinstance(site.state, Unknown):
        return site
    return replace(site, state=replace(site.state, missing=(), example_shape=None))
