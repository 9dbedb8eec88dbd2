"""Device -> CompiledOperator -> BoundOperator: compile once, bind, dispatch many times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from dmlsplit.arrays import allocation, array_view
from dmlsplit.arrays.array_view import ArrayView
from dmlsplit.backends import Launch, Program
from dmlsplit.backends.find import compiled, find_backend
from dmlsplit.binding import BindingTable, BoundTensor, BufferBinding
from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.levels import FeatureLevel, Level
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import NUMPY_TYPES, DataTypeLike, TensorDataType, TensorDesc
from dmlsplit.directml.validation import validate
from dmlsplit.errors import InvalidArgumentError, UnsupportedError


class Device:
    """A place where splits run, at a feature level (DMLCreateDevice1).

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
        If the name of the device or of the level is none.
    UnsupportedError
        If there is no such device.
    """

    def __init__(self, device: str | None = None, feature_level: Level = "6_4") -> None:
        try:
            self.feature_level = FeatureLevel.parse(feature_level)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        self._backend = find_backend(device)

    @property
    def name(self) -> str:
        """``cpu`` or ``cuda:N``."""
        return self._backend.device

    def check_feature_levels(self, requested: Iterable[Level]) -> FeatureLevel:
        """Return the highest of the requested levels that the device supports.

        The query DML_FEATURE_FEATURE_LEVELS.

        Raises
        ------
        UnsupportedError
            If it supports none of them.
        """
        try:
            levels = [FeatureLevel.parse(level) for level in requested]
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
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
        try:
            kind = TensorDataType.parse(data_type)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        return kind in capability_table()[self.feature_level].input_tensor.data_types

    def compile(self, desc: SplitOperatorDesc) -> CompiledOperator:
        """Validate a descriptor and compile it. Compiled operators are cached by descriptor.

        Raises
        ------
        InvalidArgumentError
            If the descriptor breaks a rule or the device's level does not accept it;
            `report` holds every violation.
        """
        if not isinstance(desc, SplitOperatorDesc):
            raise InvalidArgumentError(
                f"descriptor is a {type(desc).__name__}; it must be a SplitOperatorDesc"
            )
        return _compile(self, desc)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self._backend, self.feature_level) == (other._backend, other.feature_level)

    def __hash__(self) -> int:
        return hash((self._backend, self.feature_level))

    def __repr__(self) -> str:
        return f"Device({self.name!r}, feature_level={str(self.feature_level)!r})"


class CompiledOperator:
    """A descriptor made ready for one device (IDMLCompiledOperator).

    Attributes
    ----------
    device : Device
        Where it runs.
    desc : SplitOperatorDesc
        What it does.
    """

    def __init__(self, device: Device, desc: SplitOperatorDesc, program: Program) -> None:
        self.device = device
        self.desc = desc
        self._program = program
        self._table = BindingTable.of(desc, device.name)

    def __call__(self, array: Any, stream: Any = None) -> list[Any]:
        """Split an array into new ones, laid out as the descriptor's outputs.

        Returns
        -------
        list
            One array per output, of the same library as `array`.
        """
        buffer = array.buffer if isinstance(array, BufferBinding) else array
        with allocation.on_stream(self.device.name, stream):
            like = array_view.view(buffer, "InputTensor")
            with allocation.on_torch_stream(like, stream):
                own = _outputs(self.desc.output_tensors, like)
        self.dispatch(array, own, stream)
        return allocation.same_kind(own, buffer)

    def dispatch(self, array: Any, outputs: Sequence[Any], stream: Any = None) -> None:
        """Split an array into the caller's buffers: `bind` and `BoundOperator.dispatch`."""
        with allocation.on_stream(self.device.name, stream):
            operator = self.bind(array, outputs)
        operator.dispatch(stream)

    def bind(self, array: Any, outputs: Sequence[Any]) -> BoundOperator:
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
            If a binding breaks a rule; `report` holds every violation.
        """
        source, targets = self._table.bind(array, outputs)
        launch = self._program.bind(source.address, [target.address for target in targets])
        return BoundOperator(_on_current_stream(launch, source.owner), source, targets)


class BoundOperator:
    """A compiled operator with its buffers (IDMLBindingTable). It keeps them alive.

    Attributes
    ----------
    dispatch : callable
        ``dispatch(stream=None)`` carries out the split, and nothing else: no check, no
        allocation, no copy between host and device.
    """

    __slots__ = ("_keep", "dispatch")

    def __init__(self, launch: Launch, source: BoundTensor, targets: Sequence[BoundTensor]) -> None:
        self.dispatch = launch
        self._keep = source, targets


def _outputs(tensors: Sequence[TensorDesc], like: ArrayView) -> list[Any]:
    kind = NUMPY_TYPES[tensors[0].data_type]
    if all(tensor.strides is None for tensor in tensors):
        return allocation.packed(like, [tensor.sizes for tensor in tensors], kind)
    return [
        allocation.strided(
            like,
            tensor.sizes,
            [step * tensor.element_bytes for step in tensor.effective_strides],
            kind,
            tensor.total_tensor_size_in_bytes,
        )
        for tensor in tensors
    ]


def _on_current_stream(launch: Launch, source: Any) -> Launch:
    """Let a launch without a stream use the one that the input's library would use."""
    current = allocation.current_stream(source)
    if current is None:
        return launch

    def dispatch(stream: Any = None) -> None:
        launch(current() if stream is None else stream)

    return dispatch


@lru_cache(maxsize=1024)
def _compile(device: Device, desc: SplitOperatorDesc) -> CompiledOperator:
    report = validate(desc, device.feature_level)
    if not report.ok:
        raise InvalidArgumentError(str(report), report)
    program = compiled(device._backend, descriptor_geometry(desc))
    return CompiledOperator(device, desc, program)
