"""The node of a split in one line, as a compiler shows a line of a program."""

from dmlsplit.messages import cut_middle, printable, width
from dmlsplit.models.site import Known, SplitSite, Unknown

# The most pieces whose sizes are shown; if there are more, only their number is.
_MAX_SIZES = 8
_INDENT = 2


def excerpt(site: SplitSite) -> str:
    """A line such as ``Split-18(x: UINT8[batch,6], axis=1) -> [2,4]``.

    Empty if the shape of the input is unknown, and cut in the middle if it is too long.
    """
    if site.shape is None:
        return ""
    sizes = ",".join("?" if size is None else str(size) for size in site.shape)
    value = f"{site.input_name}: " if site.input_name else ""
    axis = "" if site.axis is None else f", axis={site.axis}"
    line = f"{site.operator}({value}{site.element_type or '?'}[{sizes}]{axis}){_outputs(site)}"
    return cut_middle(printable(line), width() - _INDENT)


def _outputs(site: SplitSite) -> str:
    """The sizes of the pieces, or how many there are; empty if unknown."""
    pieces = site.state.pieces if isinstance(site.state, Known | Unknown) else None
    if not pieces:
        return ""
    if len(pieces) > _MAX_SIZES:
        return f" -> {len(pieces)} outputs"
    return f" -> [{','.join(map(str, pieces))}]"
