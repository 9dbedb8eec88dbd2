"""Resources as DxDispatch prints them.

One deviation: DxDispatch streams 8-bit integers as characters; here they are numbers.
"""

from __future__ import annotations

import numpy as np


def printed(name: str, values: np.ndarray, verbose: bool) -> str:
    """Return the text of a ``print`` command, without the line end.

    Parameters
    ----------
    name
        Of the resource.
    values
        One-dimensional, of the resource's data type.
    verbose
        One element per line with its index and its bits.
    """
    texts = _numbers(values)
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    digits = 2 * values.dtype.itemsize
    width = len(str(len(values)))
    bits = values.view(f"u{values.dtype.itemsize}").tolist()
    # Widths are padded with spaces, those of the bits too.
    lines = [
        f"[{index:{width}}] {text} (0x{word:{digits}X})\n"
        for index, (text, word) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


def _numbers(values: np.ndarray) -> list[str]:
    # Six significant digits: a C++ stream's default.
    form = "{:g}" if values.dtype.kind == "f" else "{}"
    return [form.format(value) for value in values.tolist()]
