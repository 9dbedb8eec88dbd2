"""Every data type at every dimension count: the table of feature_levels.yaml, asked as a whole."""

from collections.abc import Iterator

from dmlsplit.conformance.case import Case
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType, TensorDesc


def table_cases() -> Iterator[Case]:
    """Yield one case per data type and dimension count, those that exist nowhere included."""
    for kind in TensorDataType:
        for rank in range(DIMENSION_COUNT_MAX + 2):
            about = f"{kind.name} with {rank} dimensions"
            yield Case(f"table-{kind.name}-{rank}", about, _split(kind, rank))


def _split(kind: TensorDataType, rank: int) -> SplitOperatorDesc:
    """Split a dimension of 4 into 1 and 3; without dimensions, copy."""
    shapes = [(*(1,) * (rank - 2), *(2,) * (rank > 1), last) for last in (4, 1, 3)]
    if rank == 0:
        shapes = [(), ()]
    tensors = [_tensor(kind, shape) for shape in shapes]
    return SplitOperatorDesc(tensors[0], tensors[1:], max(rank - 1, 0))


def _tensor(kind: TensorDataType, shape: tuple[int, ...]) -> TensorDesc:
    # UNKNOWN has no size, which would break a second rule on the other side.
    total = 64 if kind is TensorDataType.UNKNOWN else None
    return TensorDesc(kind, shape, total_tensor_size_in_bytes=total)
