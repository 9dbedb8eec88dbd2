"""How many modules stay loaded, and when one is unloaded, with a fake CuPy.

On the simulated card the tests run with the real one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dmlsplit.backends.cuda import images, modules
from dmlsplit.backends.cuda.modules import MAX_MODULES, Kernel, kernel_loader
from dmlsplit.errors import DmlError


class NvrtcError(Exception):
    """CuPy's."""


class Gpu:
    """One GPU: the modules loaded on it, and the parts of CuPy that `modules` uses."""

    def __init__(self) -> None:
        self.loaded: set[bytes] = set()
        self.most = self.loads = 0
        self.strays = 0  # modules unloaded while another device may be current
        self.running: set[bytes] = set()  # modules whose launches are not done
        self.killed: set[bytes] = set()  # running modules that were unloaded
        self.meanwhile: Callable[[], object] = int  # runs while a thread waits, as another would
        self.captures: set[int] = set()
        self.is_current = False
        gpu = self

        class Module:
            def load(self, image: bytes) -> None:
                assert gpu.is_current
                self.image = b""
                if image == b"bad":
                    raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
                self.image = image
                gpu.loaded.add(image)
                gpu.loads += 1
                gpu.most = max(gpu.most, len(gpu.loaded))

            def get_function(self, name: str) -> SimpleNamespace:
                if self.image == b"another kernel":
                    raise RuntimeError("CUDA_ERROR_NOT_FOUND")
                return SimpleNamespace(name=name, module=self.image)

            def __del__(self) -> None:
                gpu.strays += not gpu.is_current
                gpu.loaded.discard(self.image)
                gpu.killed |= gpu.running & {self.image}

        def compiled(source: str, options: Any) -> None:
            assert options[-1] == "-arch=sm_90"
            if "error" in source:
                raise NvrtcError

        def wait() -> None:
            assert (gpu.is_current, gpu.captures) == (True, set())
            gpu.running.clear()
            gpu.meanwhile()

        def is_capturing(stream: int) -> bool:
            if stream == 0 and gpu.captures:
                raise RuntimeError("cudaErrorStreamCaptureImplicit")
            return stream in gpu.captures

        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(deviceSynchronize=wait, streamIsCapturing=is_capturing),
            get_current_stream=lambda: SimpleNamespace(ptr=7),
            Device=lambda: SimpleNamespace(compute_capability="90", id=3),
            function=SimpleNamespace(Module=Module),
            nvrtc=SimpleNamespace(
                getVersion=lambda: (13, 0),
                createProgram=lambda source, *_: source,
                compileProgram=compiled,
                getCUBIN=str.encode,
                getProgramLog=lambda source: "line 1",
                destroyProgram=lambda source: None,
                NVRTCError=NvrtcError,
            ),
        )

    @contextmanager
    def on_device(self, what: str) -> Iterator[None]:
        self.is_current = True
        yield
        self.is_current = False


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setattr(images, "read", lambda name: None)
    monkeypatch.setattr(images, "write", lambda name, image: None)
    return Gpu()


Load = Callable[[str, str], Kernel]


@pytest.fixture
def load(gpu: Gpu) -> Load:
    return kernel_loader(gpu, gpu.on_device, lambda function: function, lambda: "sm_90")


def test_ten_thousand_kernels_leave_a_bounded_number_loaded(gpu: Gpu, load: Load) -> None:
    for number in range(10_000):
        load(f"source {number}", "tile")
    assert gpu.most == MAX_MODULES == 256
    assert (gpu.loads, gpu.strays) == (10_000, 0)


def test_the_most_recently_used_kernels_stay_loaded(gpu: Gpu, load: Load) -> None:
    for number in range(1000):
        load("used", "tile")
        load(f"source {number}", "tile")
    assert gpu.loads == 1001
    load("source 999", "tile")
    load("used", "tile")
    assert gpu.loads == 1001


def test_a_kernel_is_not_unloaded_while_an_object_refers_to_it(gpu: Gpu, load: Load) -> None:
    held = load("held", "tile")
    for number in range(1000):
        load(f"source {number}", "tile")
    assert b"held" in gpu.loaded
    assert held.target.module == b"held"
    del held
    # Not at once, because the garbage collector may run during a capture.
    assert b"held" in gpu.loaded
    load("another", "tile")
    assert b"held" not in gpu.loaded


def test_launches_are_done_before_their_module_is_unloaded(gpu: Gpu, load: Load) -> None:
    held = [load("held", "tile")]
    load("dropped", "tile")
    for number in range(MAX_MODULES - 1):
        load(f"source {number}", "tile")
    gpu.running = {b"dropped"}
    gpu.meanwhile = held.clear  # by another thread, while this one waits
    load("another", "tile")
    assert b"dropped" not in gpu.loaded
    assert b"held" in gpu.loaded
    gpu.running = {b"held"}
    load("a third", "tile")
    assert b"held" not in gpu.loaded
    assert not gpu.killed


def test_modules_stay_loaded_if_waiting_for_the_device_fails(gpu: Gpu, load: Load) -> None:
    def fail() -> None:
        raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    for number in range(MAX_MODULES):
        load(f"source {number}", "tile")
    gpu.meanwhile = fail
    with pytest.raises(RuntimeError):
        load("another", "tile")
    assert len(gpu.loaded) == MAX_MODULES


@pytest.mark.parametrize("stream", [7, 3], ids=["current", "blocking"])
def test_nothing_is_unloaded_during_a_capture(gpu: Gpu, load: Load, stream: int) -> None:
    gpu.captures = {stream}
    for number in range(1000):
        load(f"source {number}", "tile")
    assert len(gpu.loaded) == 1000
    gpu.captures.clear()
    load("another", "tile")
    assert len(gpu.loaded) == MAX_MODULES


def test_a_kernel_can_be_kept_forever(
    gpu: Gpu, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_kept", set())
    load("captured", "tile").keep_loaded()
    for number in range(1000):
        load(f"source {number}", "tile")
    assert b"captured" in gpu.loaded


@pytest.mark.parametrize("image", [b"bad", b"another kernel"])
def test_a_stored_image_that_does_not_load_is_replaced(
    gpu: Gpu, load: Load, image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(images, "read", lambda name: image)
    monkeypatch.setattr(images, "write", lambda name, image: written.append(image))
    assert load("good", "tile").target.module == b"good"
    assert (written, gpu.loaded) == ([b"good"], {b"good"})
    with pytest.raises(RuntimeError, match="INVALID_IMAGE"):
        load("bad", "tile")


def test_a_compilers_error_names_the_kernel_and_the_device(gpu: Gpu, load: Load) -> None:
    with pytest.raises(DmlError, match="kernel tile does not compile for cuda:3") as caught:
        load("an error", "tile")
    assert "line 1" in str(caught.value)
