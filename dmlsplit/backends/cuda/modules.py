"""Loaded modules: compiled or read from disk, and unloaded when they are no longer needed.

CuPy's own RawModule is never unloaded, so that a process with many kinds of splits would fill the
device's memory with code.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from typing import Any

from dmlsplit.backends.cuda import images
from dmlsplit.errors import DmlError

# Modules in the least-recently-used cache of a device. Modules that bound operators and captured
# graphs need stay loaded in addition.
MAX_MODULES = 256
OPTIONS = ("-std=c++17",)


class Kernel:
    """A kernel of a module that stays loaded for as long as this object lives.

    `target` launches it: its handle, or CuPy's Function for `packed_launch.public_launch`.
    """

    __slots__ = ("_module", "_unused", "target")

    def __init__(self, module: Any, target: Any, unused: deque[Any]) -> None:
        self._module, self.target, self._unused = module, target, unused

    def keep_loaded(self) -> None:
        """Keep the module until the process ends."""
        _kept.add(self)

    def __del__(self) -> None:
        self._unused.append(self._module)


_kept: set[Kernel] = set()


def kernel_loader(
    cupy: Any,
    on_device: Callable[[str], AbstractContextManager[object]],
    target_of: Callable[[Any], Any],
    architecture: Callable[[], str],
) -> Callable[[str, str], Kernel]:
    """A loader of kernels on a device, by source and name.

    `on_device` makes the device current and translates CUDA's errors; its argument says what
    failed. `target_of` gives the `Kernel.target` of CuPy's Function, and `architecture` the target
    of the compilation in NVRTC's notation: ``sm_90`` for machine code, ``compute_90`` for PTX.
    """
    # A module can lose its last reference at any time, even during a capture, when nothing may be
    # unloaded. Unused modules are therefore unloaded when another module is loaded.
    unused: deque[Any] = deque()

    def loaded(image: bytes, name: str) -> Kernel:
        module = cupy.cuda.function.Module()
        module.load(image)
        return Kernel(module, target_of(module.get_function(name)), unused)

    def load(source: str, name: str) -> Kernel:
        with on_device(f"kernel {name} cannot be loaded"):
            if unused and not _is_capturing(cupy):
                _unload(cupy, unused)
            version = map(str, cupy.cuda.nvrtc.getVersion())
            file = images.file_name(source, (*OPTIONS, architecture(), *version))
            stored = images.read(file)
            with suppress(RuntimeError):  # a bad image is replaced
                if stored is not None:
                    return loaded(stored, name)
            image = _compile(cupy, source, name, architecture())
            images.write(file, image)
            return loaded(image, name)

    # The module evicted here is unloaded by the next load, hence `- 1`.
    return lru_cache(maxsize=MAX_MODULES - 1)(load)


def _is_capturing(cupy: Any) -> bool:
    """Whether CuPy's current stream or one that the legacy stream waits for is being captured."""
    streams = cupy.cuda.get_current_stream().ptr, 0
    try:
        return any(map(cupy.cuda.runtime.streamIsCapturing, streams))
    except RuntimeError:
        return True


def _unload(cupy: Any, unused: deque[Any]) -> None:
    """Unload modules after their launches, for which cuModuleUnload does not promise to wait."""
    # Taken before synchronising: launches of modules that other threads add later may be pending.
    modules = []
    with suppress(IndexError):
        while True:
            modules.append(unused.popleft())
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except RuntimeError:
        unused.extend(modules)
        raise
    # CuPy unloads a module when its object is freed, here together with the list.


def _compile(cupy: Any, source: str, name: str, architecture: str) -> bytes:
    """A source compiled for an architecture."""
    # Not by CuPy, which chooses the architecture from a table that lacks newer GPUs.
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(source, f"{name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"-arch={architecture}"))
        take = nvrtc.getCUBIN if architecture.startswith("sm_") else nvrtc.getPTX
        image: bytes = take(program)
    except nvrtc.NVRTCError:
        log = nvrtc.getProgramLog(program)
        raise DmlError(
            f"kernel {name} does not compile for cuda:{cupy.cuda.Device().id} ({architecture}); "
            f"please report this bug of dmlsplit, with what NVRTC says:\n{log}"
        ) from None
    finally:
        nvrtc.destroyProgram(program)
    return image
