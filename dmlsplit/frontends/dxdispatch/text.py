"""Resources as DxDispatch prints them.

One deviation: DxDispatch streams 8-bit integers as characters; here they are numbers.
"""

import numpy as np


def printed(name: str, values: np.ndarray, verbose: bool) -> str:
    """Return the text of a ``print`` command for a flat array, without the line end.

    `verbose` prints one element per line with its index and its bits.
    """
    # Six significant digits: a C++ stream's default.
    form = "{:g}" if values.dtype.kind == "f" else "{}"
    texts = [form.format(value) for value in values.tolist()]
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
