"""Device -> CompiledOperator -> BoundOperator: compile once, bind, dispatch many times."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, overload

import numpy as np

from dmlsplit.arrays import ArrayView, is_native
from dmlsplit.arrays.adapter import package_of
from dmlsplit.arrays.array_view import device_number
from dmlsplit.arrays.packing import Packing, packing
from dmlsplit.arrays.plan import Plan
from dmlsplit.arrays.types import A, Array, Stream
from dmlsplit.backends import Backend, BoundCopy, Program
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.backends.find import find_backend
from dmlsplit.binding import BindingTable, BufferBinding
from dmlsplit.checks import instance
from dmlsplit.directml.levels import FeatureLevel, Level, capability_table
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import DataTypeLike, TensorDataType
from dmlsplit.directml.validation import report_at
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

Bindable: TypeAlias = Array | BufferBinding


@dataclass(frozen=True, init=False, repr=False)
class Device:
    """The CPU or a CUDA device, at a feature level (DMLCreateDevice1).

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None means ``"cuda:0"`` if there is one, else
        ``"cpu"``.
    feature_level
        Anything that `FeatureLevel.parse` reads.

    Raises
    ------
    InvalidArgumentError
        If the device name or the feature level is not recognised.
    UnsupportedError
        If there is no such device.
    """

    feature_level: FeatureLevel
    _backend: Backend

    def __init__(self, device: str | None = None, feature_level: Level = "6_4") -> None:
        object.__setattr__(self, "feature_level", FeatureLevel.parse(feature_level))
        object.__setattr__(self, "_backend", find_backend(device))

    @property
    def name(self) -> str:
        """``cpu`` or ``cuda:N``."""
        return self._backend.device

    def check_feature_levels(self, requested: Iterable[Level]) -> FeatureLevel:
        """The highest requested level that the device supports (DML_FEATURE_FEATURE_LEVELS).

        Raises
        ------
        UnsupportedError
            If the device supports none of them.
        """
        if not isinstance(requested, Iterable):
            raise ArgumentTypeError(f"requested is {requested!r}; it must be a list of levels")
        levels = [FeatureLevel.parse(level) for level in requested]
        supported = [level for level in levels if level <= self.feature_level]
        if not supported:
            asked = ", ".join(map(str, levels)) or "none"
            raise UnsupportedError(
                f"requested feature levels are {asked}; the device supports up to "
                f"{self.feature_level}"
            )
        return max(supported)

    def supports_data_type(self, data_type: DataTypeLike) -> bool:
        """Whether Split accepts a data type at this level (DML_FEATURE_TENSOR_DATA_TYPE)."""
        kind = TensorDataType.parse(data_type)
        return kind in capability_table()[self.feature_level].input_tensor.data_types

    def compile(self, desc: SplitOperatorDesc) -> "CompiledOperator":
        """Validate a descriptor and compile it. Compiled operators are cached by descriptor.

        Raises
        ------
        InvalidArgumentError
            If the descriptor breaks a rule or the device's level does not accept it;
            its `report` lists every violation.
        """
        return _compile(self, instance("desc", desc, SplitOperatorDesc))

    def __repr__(self) -> str:
        return f"Device({self.name!r}, feature_level={str(self.feature_level)!r})"


class CompiledOperator:
    """A descriptor compiled for one device (IDMLCompiledOperator).

    Attributes
    ----------
    device : Device
        The device that it runs on.
    desc : SplitOperatorDesc
        The descriptor.
    """

    def __init__(self, device: Device, desc: SplitOperatorDesc, program: Program) -> None:
        self.device, self.desc = device, desc
        self._table = BindingTable(desc, device.name)
        self._plan = Plan(program, _outputs(desc))

    @overload
    def __call__(self, array: BufferBinding, stream: Stream | None = None) -> list[Any]: ...
    @overload
    def __call__(self, array: A, stream: Stream | None = None) -> list[A]: ...
    def __call__(self, array: Any, stream: Stream | None = None) -> list[Any]:
        """Split an array into new ones, laid out as the descriptor's outputs.

        Returns
        -------
        list
            One array per output, of the same library as `array`.
        """
        # A context, even one that does nothing, costs a tenth of a small split's time.
        if stream is None:
            return self._split(array, None)
        with _on_stream(self.device.name, stream):
            return self._split(array, stream)

    def _split(self, given: Any, stream: Stream | None) -> list[Any]:
        source = self._table.bind_input(given)
        if isinstance(given, BufferBinding):
            # A subclass of NumPy's arrays describes the buffer, not the tensor in it.
            given = None if is_native(given.buffer) else given.buffer
        # Still on the stream: DLPack makes the receiving library wait for the current one.
        return self._plan.split(source, given, stream)

    def __reduce__(self) -> tuple[Any, ...]:
        return _compile, (self.device, self.desc)  # The copy is the cached operator.

    def dispatch(
        self, array: Bindable, outputs: Sequence[Bindable], stream: Stream | None = None
    ) -> None:
        """Split an array into the caller's buffers: `bind` and `BoundOperator.dispatch`."""
        if stream is None:
            return self._split_into(array, outputs, None)
        with _on_stream(self.device.name, stream):
            return self._split_into(array, outputs, stream)

    def _split_into(self, array: Any, outputs: Sequence[Any], stream: Stream | None) -> None:
        source, entries = self._table.bind(array, outputs)
        owners, addresses = [e.owner for e in entries], [e.address for e in entries]
        self._plan.split_into(source, owners, addresses, stream)

    def bind(self, array: Bindable, outputs: Sequence[Bindable]) -> "BoundOperator":
        """Check the binding table once, for many dispatches.

        Parameters
        ----------
        array
            An array with the input tensor's sizes, type and strides; or a `BufferBinding`.
        outputs
            The same for each output.

        Raises
        ------
        InvalidArgumentError
            If a binding breaks a rule; its `report` lists every violation.
        """
        source, entries = self._table.bind(array, outputs)
        return BoundOperator(self._plan.bind(source, entries), (source, *entries))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundOperator:
    """A compiled operator with its buffers (IDMLBindingTable). It keeps them and its kernels alive.

    A CUDA graph that captured its dispatch can be replayed only while it exists.
    """

    _copy: BoundCopy
    _buffers: tuple[ArrayView, ...]

    def dispatch(self, stream: Stream | None = None) -> None:
        """Copy the input to the outputs. Only the stream is checked, and nothing is allocated.

        Nothing is copied between host and device. On the CPU, `stream` must be None.
        """
        self._copy(stream)

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a bound operator belongs to the memory that it is bound to; it can be neither copied "
            "nor pickled. Fix: bind() with other arrays; a CompiledOperator can be pickled"
        )


def _on_stream(device: str, stream: Stream) -> AbstractContextManager[object]:
    """A context in which views and CuPy's new arrays are for work on a stream.

    Pending work on a foreign array is awaited on that stream. Memory pools reuse memory as soon as
    its last use is queued, so new memory is ready on the stream that was current and on no other.
    """
    if device == "cpu":
        return nullcontext()
    number = device_number(device)
    own = stream if package_of(stream) == "cupy" else None
    return driver.load().on_stream(number, stream_handle(stream, number), own)


def _outputs(desc: SplitOperatorDesc) -> Packing:
    """The outputs that a call allocates."""
    tensors = desc.output_tensors
    width, dtype = tensors[0].element_bytes, np.dtype(tensors[0].data_type.numpy_name)
    if all(tensor.strides is None for tensor in tensors):
        return packing(tuple(tensor.sizes for tensor in tensors), width, dtype)
    stores = tuple((tensor.total_tensor_size_in_bytes // width,) for tensor in tensors)
    layouts = tuple((t.sizes, tuple(n * width for n in t.effective_strides)) for t in tensors)
    return packing(stores, width, dtype, layouts)


@lru_cache(maxsize=1024)
def _compile(device: Device, desc: SplitOperatorDesc) -> CompiledOperator:
    report = report_at(desc, device.feature_level)
    if not report.ok:
        raise InvalidArgumentError(str(report), report)
    program = device._backend.compile(descriptor_geometry(desc))
    program.prepare()
    return CompiledOperator(device, desc, program)
