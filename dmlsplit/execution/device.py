"""Device -> CompiledOperator -> BoundOperator: compile once, bind, dispatch many times."""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, SupportsIndex, overload

import numpy as np

from dmlsplit.arrays import is_native
from dmlsplit.arrays.adapter import NewArrays, Shape, package_of
from dmlsplit.arrays.array_view import device_number_of
from dmlsplit.arrays.types import Array, ArrayT, Stream
from dmlsplit.backends import Backend, BoundCopy, Program
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.backends.find import default_backend, find_backend
from dmlsplit.checks import instance, integer
from dmlsplit.directml.levels import NEWEST, FeatureLevel, support_table
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.directml.validation import report_at
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from dmlsplit.execution.binding import BindingTable, BufferBinding
from dmlsplit.execution.prepared_split import FEW_PIECES, MANY_PIECES_CACHED, PreparedSplit
from dmlsplit.execution.slices import split_by_slices
from dmlsplit.messages import shown


@dataclass(frozen=True, init=False, repr=False)
class Device:
    """The CPU or a CUDA device, at a feature level (DMLCreateDevice1).

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None means ``"cuda:0"`` if it is usable, else
        ``"cpu"``, and `reason` says why.
    feature_level : FeatureLevel, str or int
        Anything that `FeatureLevel.parse` reads; the newest level if none is given.

    Attributes
    ----------
    feature_level : FeatureLevel
        The level that `compile` validates against.
    reason : str or None
        Why ``Device()`` is the CPU, and the fix; None for any other device.

    Raises
    ------
    InvalidArgumentError
        If the device name or the feature level is not recognised.
    UnsupportedError
        If there is no such device, or it cannot be used; the error says why.

    See Also
    --------
    CompiledOperator : What `compile` returns.
    selftest : Tests a device.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> device = dml.Device("cpu", feature_level="4_0")
    >>> device.supports_data_type("INT64")
    False
    >>> x = dml.TensorDesc("FLOAT32", (6, 2))
    >>> op = device.compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)))
    """

    feature_level: FeatureLevel
    _backend: Backend
    reason: str | None = field(compare=False)

    def __init__(
        self, device: str | None = None, feature_level: FeatureLevel | str | int = NEWEST
    ) -> None:
        object.__setattr__(self, "feature_level", FeatureLevel.parse(feature_level))
        backend, reason = default_backend() if device is None else (find_backend(device), None)
        object.__setattr__(self, "_backend", backend)
        object.__setattr__(self, "reason", reason)

    @property
    def name(self) -> str:
        """The name of the device, ``cpu`` or ``cuda:N`` with the number that CUDA gives it."""
        return self._backend.device

    def check_feature_levels(self, requested: Iterable[FeatureLevel | str | int]) -> FeatureLevel:
        """The highest requested level that the device supports (DML_FEATURE_FEATURE_LEVELS).

        Parameters
        ----------
        requested : iterable of FeatureLevel, str or int
            Anything that `FeatureLevel.parse` reads, in any order.

        Returns
        -------
        FeatureLevel
            DirectML's MaxSupportedFeatureLevel (Microsoft, "DML_FEATURE_DATA_FEATURE_LEVELS").

        Raises
        ------
        InvalidArgumentError
            If a level is not recognised. If `requested` is a string, or not iterable, the error is
            also a TypeError.
        UnsupportedError
            If the device supports none of them.
        """
        if isinstance(requested, str) or not isinstance(requested, Iterable):
            raise ArgumentTypeError(
                f"requested has the type {type(requested).__name__}; it must be an iterable of "
                "levels, such as a list"
            )
        levels = [FeatureLevel.parse(level) for level in requested]
        supported = [level for level in levels if level <= self.feature_level]
        if not supported:
            names = ", ".join(map(str, levels)) or "none"
            raise UnsupportedError(
                f"requested feature levels are {names}; the device supports up to "
                f"{self.feature_level}"
            )
        return max(supported)

    def supports_data_type(self, data_type: TensorDataType | str | int | np.dtype) -> bool:
        """Whether Split accepts a data type at this level (DML_FEATURE_TENSOR_DATA_TYPE).

        Parameters
        ----------
        data_type : TensorDataType, str, int or numpy.dtype
            Anything that `TensorDataType.parse` reads.

        Returns
        -------
        bool
            From the table of levels (Microsoft, "DML_SPLIT_OPERATOR_DESC", section "Tensor
            support").

        Raises
        ------
        InvalidArgumentError
            If the data type is not recognised.
        """
        data_type = TensorDataType.parse(data_type)
        return data_type in support_table()[self.feature_level].data_types

    def compile(self, desc: SplitOperatorDesc) -> CompiledOperator:
        """Validate a descriptor and compile it. Compiled operators are cached by descriptor.

        Parameters
        ----------
        desc : SplitOperatorDesc
            The split.

        Returns
        -------
        CompiledOperator
            The split of any arrays that fit the descriptor.

        Raises
        ------
        InvalidArgumentError
            If the descriptor breaks a rule or the device's level does not accept it;
            its `report` lists every violation. If `desc` is not a descriptor, the error is also
            a TypeError.

        Examples
        --------
        >>> import numpy as np
        >>> import dmlsplit as dml
        >>> x = dml.TensorDesc("FLOAT32", (1, 1, 2, 3))
        >>> desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(1, 2))
        >>> op = dml.Device("cpu").compile(desc)
        >>> [piece.shape for piece in op(np.ones((1, 1, 2, 3), "f4"))]
        [(1, 1, 2, 1), (1, 1, 2, 2)]
        """
        return _compiled(self, instance("desc", desc, SplitOperatorDesc))

    def warm(
        self, descs: Iterable[SplitOperatorDesc], alignment: SupportsIndex | None = None
    ) -> None:
        """Compile the kernels of these splits in advance.

        Later calls of operators and of ``dml.split`` that make one of these splits do not wait for
        the compiler, as long as all addresses have this alignment.

        Parameters
        ----------
        descs : iterable of SplitOperatorDesc
            The splits. Splits of other sizes that use the same kernels are then compiled too.
        alignment : int, optional
            A power of two, up to 16, that divides all addresses of inputs and outputs, in bytes;
            None for any addresses. The larger it is, the fewer programs are compiled. Allocations
            begin at multiples of 16 bytes, but slices of arrays may begin anywhere.

        Raises
        ------
        InvalidArgumentError
            If `alignment` is another value, or `compile` refuses a split. If `alignment` is not an
            integer, or `descs` is not an iterable of descriptors, the error is also a TypeError.
        """
        if not isinstance(descs, Iterable):
            raise ArgumentTypeError(
                f"descs has the type {type(descs).__name__}; it must be an iterable of "
                "descriptors, such as [desc]"
            )
        common_alignment = 1 if alignment is None else integer("alignment", alignment)
        if common_alignment not in (1, 2, 4, 8, 16):
            raise InvalidArgumentError(
                f"alignment is {common_alignment}; it must be 1, 2, 4, 8 or 16"
            )
        for desc in descs:
            self.compile(desc)._prepared.program.prepare(common_alignment)

    def __repr__(self) -> str:
        why = "" if self.reason is None else f", reason={self.reason!r}"
        return f"Device({self.name!r}, feature_level={str(self.feature_level)!r}{why})"


class CompiledOperator:
    """A descriptor compiled for one device (IDMLCompiledOperator). Made by `Device.compile`.

    Attributes
    ----------
    device : Device
        The device for which it was compiled.
    desc : SplitOperatorDesc
        The descriptor.

    See Also
    --------
    Device.compile : Compiles a descriptor, or says why the level does not accept it.
    BoundOperator : With buffers, for many dispatches.

    Examples
    --------
    >>> import numpy as np
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("INT32", (6,))
    >>> op = dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)))
    >>> op(np.arange(6, dtype=np.int32))
    [array([0, 1], dtype=int32), array([2, 3, 4, 5], dtype=int32)]
    """

    def __init__(self, device: Device, desc: SplitOperatorDesc, program: Program) -> None:
        self.device = device
        self.desc = desc
        self._table = BindingTable(desc, device.name)
        self._prepared = PreparedSplit(program, _new_outputs(desc, self._table.output_layouts))
        tensors = desc.input_tensor, *desc.output_tensors
        is_packed = device.name == "cpu" and all(tensor.strides is None for tensor in tensors)
        # What `_split_by_slices` compares and passes on.
        self._shape = desc.input_tensor.sizes if is_packed else None
        self._dtype = self._prepared.outputs.dtype
        self._sizes = desc.split_sizes

    @overload
    def __call__(self, array: BufferBinding, stream: Stream | None = None) -> list[Any]: ...
    @overload
    def __call__(self, array: ArrayT, stream: Stream | None = None) -> list[ArrayT]: ...
    def __call__(self, array: Any, stream: Stream | None = None) -> list[Any]:
        """Split an array into new ones, laid out as the descriptor's outputs.

        Parameters
        ----------
        array : array or BufferBinding
            An array with the input tensor's sizes, type and strides; or a range of a buffer.
        stream : CudaStream or int, optional
            The CUDA stream of the copies, or its handle; None means the current one. On the CPU, it
            must be None.

        Returns
        -------
        list of arrays
            One array per output, of the library of `array`, with the sizes, type and strides of the
            output's tensor.

        Raises
        ------
        InvalidArgumentError
            If the binding breaks a rule; the `report` lists every violation. Also if `array` is not
            an array, or `stream` is not a stream of the device.
        OutOfMemoryError
            If the outputs do not fit in memory.
        """
        # Even a context that does nothing would take a tenth of a small split's time.
        if stream is None:
            return self._split(array, None)
        with _stream_context(self.device.name, stream):
            return self._split(array, stream)

    def _split(self, array: Any, stream: Stream | None) -> list[Any]:
        """`__call__` inside the context of the stream."""
        if stream is None and (pieces := self._split_by_slices(array)) is not None:
            return pieces
        source = self._table.bind_input(array)
        like = array
        if isinstance(array, BufferBinding):
            # The buffer's own ndarray class, such as numpy.matrix, must not become the outputs'.
            like = None if is_native(array.buffer) else array.buffer
        # Still on the stream: DLPack makes the receiving library wait for the current one.
        return self._prepared.split(source, like, stream)

    def __repr__(self) -> str:
        return f"<CompiledOperator {self._subject}>"

    @property
    def _subject(self) -> str:
        """The split, in one line."""
        desc = self.desc
        sizes = shown(self.desc.split_sizes)
        return f"on {self.device.name}: {desc.input_tensor}, axis {desc.axis} into {sizes}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _compiled, (self.device, self.desc)  # The copy is the cached operator.

    def dispatch(
        self,
        array: Array | BufferBinding,
        outputs: Sequence[Array | BufferBinding],
        stream: Stream | None = None,
    ) -> None:
        """Split an array into the caller's buffers: `bind` and `BoundOperator.dispatch`.

        Parameters
        ----------
        array : array or BufferBinding
            An array with the input tensor's sizes, type and strides; or a range of a buffer.
        outputs : list or tuple of array or BufferBinding
            For each output, an array with its sizes, type and strides; or a range of a buffer. From
            its first byte to its last one, no output may overlap another one, or the input.
        stream : CudaStream or int, optional
            The CUDA stream of the copies, or its handle; None means the current one. On the CPU, it
            must be None.

        Raises
        ------
        InvalidArgumentError
            If a binding breaks a rule; the `report` lists every violation. Also if `outputs` is not
            a list, or `stream` is not a stream of the device.
        """
        if stream is None:
            return self._split_into(array, outputs, None)
        with _stream_context(self.device.name, stream):
            return self._split_into(array, outputs, stream)

    def _split_into(self, array: Any, outputs: Sequence[Any], stream: Stream | None) -> None:
        """`dispatch` inside the context of the stream."""
        # The table refuses outputs that are None, which slices would allocate. The engine refuses
        # streams on the CPU, of which slices know nothing.
        needs_table = stream is not None or outputs is None
        if needs_table or self._split_by_slices(array, outputs) is None:
            self._prepared.split_into(*self._table.bind(array, outputs), stream)

    def _split_by_slices(self, array: Any, outputs: Any = None) -> list[Any] | None:
        """`split_by_slices` of an array that is exactly as the descriptor's tensor.

        None for any other array.
        """
        if type(array) is not np.ndarray or array.shape != self._shape:
            return None
        if array.dtype != self._dtype or not array.flags.c_contiguous:
            return None
        return split_by_slices(array, self._sizes, self.desc.axis, outputs)

    def bind(
        self, array: Array | BufferBinding, outputs: Sequence[Array | BufferBinding]
    ) -> BoundOperator:
        """Check the binding table once, for many dispatches.

        Parameters
        ----------
        array : array or BufferBinding
            An array with the input tensor's sizes, type and strides; or a range of a buffer.
        outputs : list or tuple of array or BufferBinding
            For each output, an array with its sizes, type and strides; or a range of a buffer. From
            its first byte to its last one, no output may overlap another one, or the input.

        Returns
        -------
        BoundOperator
            The operator with these buffers, which it keeps alive.

        Raises
        ------
        InvalidArgumentError
            If a binding breaks a rule; the `report` lists every violation. Also if `outputs` is not
            a list.
        """
        source, owners, addresses = self._table.bind(array, outputs)
        copy = self._prepared.bind(source, owners, addresses)
        return BoundOperator(self, copy, (source.owner, *owners))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundOperator:
    """A compiled operator with its buffers (IDMLBindingTable). Made by `CompiledOperator.bind`.

    Keep this object for as long as any CUDA graph that has captured its dispatch: it owns the
    buffers and keeps the kernels loaded.

    See Also
    --------
    CompiledOperator.bind : Which buffers fit, and what is checked.

    Examples
    --------
    >>> import numpy as np
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("INT32", (6,))
    >>> op = dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)))
    >>> a, outs = np.zeros(6, np.int32), [np.empty(2, np.int32), np.empty(4, np.int32)]
    >>> bound = op.bind(a, outs)
    >>> a[:] = range(6)
    >>> bound.dispatch()
    >>> outs[1]
    array([2, 3, 4, 5], dtype=int32)
    """

    _operator: CompiledOperator
    _copy: BoundCopy
    _buffers: tuple[Any, ...]

    def dispatch(self, stream: Stream | None = None) -> None:
        """Copy the input to the outputs. Only the stream is checked, and nothing is allocated.

        Nothing is copied between host and device.

        Parameters
        ----------
        stream : CudaStream or int, optional
            The CUDA stream of the copies, or its handle; None means the current one. On the CPU, it
            must be None.

        Raises
        ------
        InvalidArgumentError
            If `stream` is not a stream of the device.
        """
        self._copy(stream)

    def __repr__(self) -> str:
        return f"<BoundOperator {self._operator._subject}>"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a bound operator belongs to the memory that it is bound to; it can be neither copied "
            "nor pickled. Fix: bind() with other arrays; a CompiledOperator can be pickled"
        )


def _stream_context(device: str, stream: Stream) -> AbstractContextManager[object]:
    """A context that makes a stream current, for the views and CuPy's new arrays made in it."""
    # New memory may be used only on the stream that was current when it was allocated: pools reuse
    # memory whose last use is queued there. Pending work on a foreign array is awaited there too.
    if device == "cpu":
        return nullcontext()
    device_number = device_number_of(device)
    cupy_stream = stream if package_of(stream) == "cupy" else None
    handle = stream_handle(stream, device_number)
    return driver.load().on_stream(device_number, handle, cupy_stream)


def _new_outputs(desc: SplitOperatorDesc, layouts: Sequence[tuple[Shape, Shape]]) -> NewArrays:
    """The outputs that a call allocates, each with a shape and strides in bytes."""
    tensors = desc.output_tensors
    width = tensors[0].element_bytes
    dtype = np.dtype(tensors[0].data_type.numpy_name)
    if all(tensor.strides is None for tensor in tensors):
        return NewArrays(tuple(shape for shape, _ in layouts), dtype)
    buffers = tuple((tensor.total_tensor_size_in_bytes // width,) for tensor in tensors)
    return NewArrays(buffers, dtype, tuple(layouts))


def _compiled(device: Device, desc: SplitOperatorDesc) -> CompiledOperator:
    """`Device.compile`, cached by device and descriptor."""
    is_small = len(desc.output_tensors) <= FEW_PIECES
    return (_operators_of_few_pieces if is_small else _operators_of_many_pieces)(device, desc)


def _compile(device: Device, desc: SplitOperatorDesc) -> CompiledOperator:
    """A new operator, as of `Device.compile`."""
    report = report_at(desc, device.feature_level)
    if not report.ok:
        raise InvalidArgumentError(str(report), report)
    program = device._backend.compile(descriptor_geometry(desc))
    program.prepare()
    return CompiledOperator(device, desc, program)


_operators_of_few_pieces = lru_cache(maxsize=1024)(_compile)
_operators_of_many_pieces = lru_cache(maxsize=MANY_PIECES_CACHED)(_compile)
