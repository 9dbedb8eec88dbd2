"""Device -> CompiledOperator -> BoundOperator: compile once, bind, dispatch many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, overload

from dmlsplit.arrays import ArrayView, adapter_of, is_native, view
from dmlsplit.arrays.adapter import Adapter, Context, allocated, package_of
from dmlsplit.arrays.array_view import device_number
from dmlsplit.arrays.dlpack import give_back
from dmlsplit.arrays.packing import packing
from dmlsplit.arrays.torch import KINDS, writes
from dmlsplit.arrays.types import A, Array, Stream
from dmlsplit.backends import Backend, BoundCopy, Program
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.backends.find import compiled, find_backend
from dmlsplit.binding import BindingTable, BufferBinding
from dmlsplit.checks import instance
from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.levels import FeatureLevel, Level
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import DataTypeLike, TensorDataType
from dmlsplit.directml.validation import validate
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

Bindable: TypeAlias = Array | BufferBinding


@dataclass(frozen=True, init=False, repr=False)
class Device:
    """The CPU or a CUDA device, at a feature level (DMLCreateDevice1).

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None takes ``"cuda:0"`` if there is one, else
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
        """Return the highest of the requested levels that the device supports.

        This is the query DML_FEATURE_FEATURE_LEVELS.

        Raises
        ------
        UnsupportedError
            If it supports none of them.
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
        """Whether Split takes a data type at the device's level (DML_FEATURE_TENSOR_DATA_TYPE)."""
        kind = TensorDataType.parse(data_type)
        return kind in capability_table()[self.feature_level].input_tensor.data_types

    def compile(self, desc: SplitOperatorDesc) -> CompiledOperator:
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
        self.device = device
        self.desc = desc
        self._program = program
        self._table = BindingTable(desc, device.name)
        tensors = desc.output_tensors
        self._type = tensors[0].data_type.numpy_name
        self._packing = None
        if all(tensor.strides is None for tensor in tensors):
            sizes = tuple(tensor.sizes for tensor in tensors)
            self._packing = packing(sizes, tensors[0].element_bytes)

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
        # A context, even one that does nothing, takes a tenth of a small split's time.
        if stream is None:
            return self._split(array, None)
        with _on_stream(self.device.name, stream):
            return self._split(array, stream)

    def __reduce__(self) -> tuple[Any, ...]:
        return _compile, (self.device, self.desc)  # The copy is the cached one.

    def _split(self, given: Any, stream: Stream | None) -> list[Any]:
        is_binding = isinstance(given, BufferBinding)
        buffer = given.buffer if is_binding else given
        source = view(buffer, "InputTensor")
        library = adapter_of(source.owner)
        if stream is None:
            made, addresses = self._outputs(library, source)
        else:
            with library.allocating_on(source, stream):
                made, addresses = self._outputs(library, source)
        if is_binding or not self._table.is_input(source):
            # The input is bound as this view: another would wait for its stream again.
            seen: Any = replace(given, buffer=source) if is_binding else source
            entry, _ = self._table.bind(seen, made)
            source = source._replace(address=entry.address)
        self._copy(library, source.owner, source.address, addresses, stream)
        _used_on(stream, source.owner)
        # Here, because another library is told to wait for the stream that is current.
        return made if is_binding and is_native(buffer) else give_back(made, buffer)

    def _outputs(self, library: Adapter, like: ArrayView) -> tuple[list[Any], list[int]]:
        """Make the outputs, which need no check, and return their addresses, too."""
        if self._packing is not None:
            return allocated(library, like, self._packing, self._type)
        made = [
            library.strided(
                like,
                tensor.sizes,
                [step * tensor.element_bytes for step in tensor.effective_strides],
                self._type,
                tensor.total_tensor_size_in_bytes,
            )
            for tensor in self.desc.output_tensors
        ]
        return made, [view(array, "output").address for array in made]

    def _copy(
        self, library: Adapter, owner: Any, src: int, dsts: Sequence[int], stream: Stream | None
    ) -> None:
        current = library.current_stream(owner) if stream is None else None
        self._program.copy(src, dsts, current() if current else stream)

    def dispatch(
        self, array: Bindable, outputs: Sequence[Bindable], stream: Stream | None = None
    ) -> None:
        """Split an array into the caller's buffers: `bind` and `BoundOperator.dispatch`."""
        with _on_stream(self.device.name, stream):
            src, dst = self._table.bind(array, outputs)
            if KINDS and (written := writes([entry.owner for entry in dst])):
                written()
            addresses = [entry.address for entry in dst]
            self._copy(adapter_of(src.owner), src.owner, src.address, addresses, stream)
            _used_on(stream, src.owner, *(entry.owner for entry in dst))

    def bind(self, array: Bindable, outputs: Sequence[Bindable]) -> BoundOperator:
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
        src, dst = self._table.bind(array, outputs)
        copy = self._program.bind(src.address, [output.address for output in dst])
        dispatch = _on_current_stream(copy, src.owner)
        if KINDS and (written := writes([output.owner for output in dst])):
            dispatch = _counted(dispatch, written)
        # The call itself keeps the buffers: `op.bind(...).dispatch()` drops the operator before it.
        dispatch.__dict__["buffers"] = (src, *dst)
        return BoundOperator(dispatch)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundOperator:
    """A compiled operator with its buffers (IDMLBindingTable). It keeps them and its kernels alive.

    A CUDA graph that captured its dispatch needs it for as long as the graph is replayed.

    Attributes
    ----------
    dispatch : callable
        ``dispatch(stream=None)`` does the split and nothing else: no check but of the stream, no
        allocation, no copy between host and device. The CPU has no streams, and refuses one.
    """

    dispatch: BoundCopy

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a bound operator belongs to the memory that it is bound to; it can be neither copied "
            "nor pickled. Fix: bind() with other arrays; a CompiledOperator can be pickled"
        )


def _on_stream(device: str, stream: Stream | None) -> Context:
    """Return a context in which views and CuPy's new arrays are for work on a stream.

    What a foreign array has under way is waited for on that stream. Memory pools reuse memory as
    soon as its last use is queued, so new memory is ready on the stream that was current and on
    no other.
    """
    if stream is None or device == "cpu":
        return nullcontext()
    number = device_number(device)
    own = stream if package_of(stream) == "cupy" else None
    return driver.load().on_stream(number, stream_handle(stream, number), own)


def _used_on(stream: Stream | None, *arrays: Any) -> None:
    """Tell the libraries of arrays that a stream of the caller's choice uses their memory."""
    if stream is not None:
        for array in arrays:
            adapter_of(array).used_on(array, stream)


def _on_current_stream(copy: BoundCopy, array: Any) -> BoundCopy:
    """Make a copy without a stream use the one that the input's library would use."""
    current = adapter_of(array).current_stream(array)
    if current is None:
        return copy

    def dispatch(stream: Any = None) -> None:
        copy(current() if stream is None else stream)

    return dispatch


def _counted(copy: BoundCopy, count: Callable[[], None]) -> BoundCopy:
    """Make each copy into tensors count as a write to them."""

    def dispatch(stream: Any = None) -> None:
        count()
        copy(stream)

    return dispatch


@lru_cache(maxsize=1024)
def _compile(device: Device, desc: SplitOperatorDesc) -> CompiledOperator:
    report = validate(desc, device.feature_level)
    if not report.ok:
        raise InvalidArgumentError(str(report), report)
    program = compiled(device._backend, descriptor_geometry(desc))
    return CompiledOperator(device, desc, program)
