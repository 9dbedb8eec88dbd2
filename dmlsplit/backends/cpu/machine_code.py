"""Machine code from LLVM assembly, by the optional package llvmlite."""

import os
from importlib.util import find_spec
from threading import Lock
from typing import Any

from dmlsplit.errors import InvalidArgumentError

VARIABLE = "DMLSPLIT_FAST"

# A fork waits until nothing is compiled: the child would wait for llvmlite's own lock forever.
compiling = Lock()
if hasattr(os, "register_at_fork"):
    _done = compiling.release
    os.register_at_fork(before=compiling.acquire, after_in_parent=_done, after_in_child=_done)


def is_allowed() -> bool:
    """Whether loops may be compiled. They may unless DMLSPLIT_FAST is 0."""
    asked = os.environ.get(VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise InvalidArgumentError(
            f"{VARIABLE} is {asked[:40]!r}; it must be 0 or 1. Fix: unset it to let llvmlite "
            "compile copies of narrow and of wide rows where it is installed"
        )
    return asked != "0"


def engine_of(text: str) -> Any:
    """Compiled LLVM assembly; None if llvmlite is missing, broken or too old. Hold `compiling`."""
    if find_spec("llvmlite") is None:
        return None
    try:
        import llvmlite.binding as llvm

        return _engine(llvm, text)
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None


def _engine(llvm: Any, text: str) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
