"""The CUDA source of a launch: its constants and parameters, then the texts from ``cuda/``.

The texts are joined here, never included by the compiler: CuPy's cache of compiled kernels
knows the source it was given, and nothing of included files.
"""

from __future__ import annotations

from functools import cache

from dmlsplit.backends.cuda.launch import DIVISOR, Constant, KernelLaunch
from dmlsplit.resources import kernel_source

COMMON = "common.cuh"
# The kernel's only parameter, passed by value: no table of pointers is copied to the device.
PARAMETERS = """struct Parameters {
    const unsigned char* input;
    unsigned char* outputs[kOutputs];
"""


def source(launch: KernelLaunch) -> str:
    """Return a complete translation unit with one entry, named `launch.kernel`."""
    constants = "\n".join(map(_declaration, launch.constants))
    arguments = "".join(map(_member, launch.arguments))
    kernel = f"{launch.kernel}.cu"
    return (
        f'{constants}\n#line 1 "{COMMON}"\n{_text(COMMON)}'
        f'{PARAMETERS}{arguments}}};\n#line 1 "{kernel}"\n{_text(kernel)}'
    )


_text = cache(kernel_source)


def _declaration(constant: Constant) -> str:
    if constant.type == "using":
        return f"using {constant.name} = {constant.value};"
    if isinstance(constant.value, tuple):
        values = ", ".join(map(_literal, constant.value))
        return f"__constant__ constexpr {constant.type} {constant.name}[] = {{{values}}};"
    assert isinstance(constant.value, int)
    return f"constexpr {constant.type} {constant.name} = {_literal(constant.value)};"


def _member(argument: Constant) -> str:
    size = len(argument.value) if isinstance(argument.value, tuple) else 1
    count = size // 2 if argument.type == DIVISOR else size
    is_table = isinstance(argument.value, tuple) and (count > 1 or argument.type != DIVISOR)
    return f"    {argument.type} {argument.name}{f'[{count}]' if is_table else ''};\n"


def _literal(value: int) -> str:
    return f"{value}ll" if value < 0 else f"{value}ull" if value >= 2**31 else str(value)
