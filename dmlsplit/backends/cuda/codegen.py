"""The CUDA source of a launch: its constants and parameters, then the texts from ``cuda/``.

The texts are joined here, never included by the compiler: CuPy's cache of compiled kernels
knows the source it was given, and nothing of included files.
"""

from functools import cache

from dmlsplit.backends.cuda.launch import Constant, KernelLaunch
from dmlsplit.resources import kernel_source

COMMON = "common.cuh"
# The kernel's only parameter, passed by value: no table of pointers is copied to the device.
PARAMETERS = """struct Parameters {
    const unsigned char* input;
    unsigned char* outputs[kOutputs];
"""


def source(launch: KernelLaunch) -> str:
    """A complete translation unit with one entry, named `launch.kernel`."""
    constants = "\n".join(map(_declaration, launch.constants))
    arguments = "".join(map(_member, launch.members))
    kernel = f"{launch.kernel}.cu"
    return (
        f'{constants}\n#line 1 "{COMMON}"\n{_text(COMMON)}'
        f'{PARAMETERS}{arguments}}};\n#line 1 "{kernel}"\n{_text(kernel)}'
    )


_text = cache(kernel_source)


def _declaration(constant: Constant) -> str:
    if constant.type == "using":
        return f"using {constant.name} = {constant.value};"
    assert isinstance(constant.value, int)
    return f"constexpr {constant.type} {constant.name} = {_literal(constant.value)};"


def _member(argument: Constant) -> str:
    table = argument.table
    count = "" if table is None else f"[{len(table)}]"
    return f"    {argument.type} {argument.name}{count};\n"


def _literal(value: int) -> str:
    return f"{value}ll" if value < 0 else f"{value}ull" if value >= 2**31 else str(value)
