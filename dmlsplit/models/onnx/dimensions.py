"""The user's sizes for the dynamic dimensions of a model."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice

from dmlsplit.checks import instance, integer
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import MAX_SHOWN
from dmlsplit.models.onnx.protobuf import (
    MAX_RANK,
    Shape,
    ValueInfo,
    shown_name,
)
from dmlsplit.models.site import Size

# The most names of dimensions that are remembered, to list them in an error.
_MAX_NAMES = 1000


class FixedSizes:
    """Sizes by the name of a dimension, such as ``batch``, or by value and axis: ``x.0``.

    Attributes
    ----------
    used : set of str
        The names that a model has.
    dynamic : dict of str to None
        The names of the dynamic dimensions of the models, as `sizes` takes them, in their order.
    sizes : mapping of str to int
        The given sizes by name.
    has_given_rank : bool
        Whether a model has a value whose rank only the given sizes determine.
    contradicted : mapping
        The inferred shapes of the values of a model whose declared shapes contradict them. A key
        has the path of the value's graph, as in sites, and its name.

    See Also
    --------
    scan : Takes it.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> onnx.FixedSizes({"batch": 1, "images.2": 640}).sizes["batch"]
    1
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.used: set[str] = set()
        self.dynamic: dict[str, None] = {}
        self.contradicted: dict[tuple[tuple[int | str, ...], str], Shape] = {}
        pairs = instance("sizes", sizes, Mapping).items()  # type: ignore[type-abstract]
        self.sizes = {name: integer(f"sizes[{name!r}]", size) for name, size in pairs}
        self._by_name = dict(sizes)
        self.has_given_rank = False
        self._gives_ranks = True
        self._given_axes: dict[str, set[str]] = {}  # by value
        for name in self.sizes:
            value, _, axis = name.rpartition(".")
            if axis.isdecimal():
                self._given_axes.setdefault(value, set()).add(axis)
        self._axes: set[str] = set()  # VALUE.AXIS of each dimension of an input
        self._input_names: set[Size] = set()  # of dimensions of the inputs

    def register(self, inputs: Iterable[ValueInfo]) -> None:
        """Register the dimension names of a model's inputs: once per model, before `apply`.

        A dimension with two sizes, or a size other than the model's, is an InvalidArgumentError.
        """
        self._by_name = dict(self.sizes)
        dims = {f"{e.name}.{i}": dim for e in inputs for i, dim in enumerate(e.shape or ())}
        self._axes = set(dims)
        self._input_names = set(dims.values())
        self.contradicted = {}
        self.has_given_rank = False
        self._remember(key if dim is None else dim for key, dim in dims.items())
        for key, dim in dims.items():
            self._size(key, dim)

    def register_names(self, inputs: Iterable[ValueInfo]) -> None:
        """Register the dimension names of the inputs of a body in the model."""
        self._input_names.update(dim for entry in inputs for dim in entry.shape or ())

    def _size(self, key: str, dim: Size) -> Size:
        """The size or name of a dimension, given its VALUE.AXIS and its size or name so far."""
        if key not in self.sizes:
            return self._size_by_name(dim)
        if key in self._input_names and key not in self._axes:
            raise InvalidArgumentError(
                f"{key} has two meanings: a dimension of that name, and an axis of a value. "
                "Fix: give the dimension as INPUT.AXIS, with an input that has it"
            )
        self.used.add(key)
        size = self.sizes[key]
        if isinstance(dim, int) and dim != size:
            raise InvalidArgumentError(
                f"{key} is {size}; {self._others}the model fixes it to {dim}"
            )
        named = dim if isinstance(dim, str) and dim not in self._axes else key
        if self._by_name.setdefault(named, size) != size:
            raise InvalidArgumentError(
                f"dimension {named} is {self._by_name[named]}, but {key}, the same dimension, is "
                f"{size}; the two must be equal"
            )
        return size

    def without_ranks(self) -> "FixedSizes":
        """These sizes, without those of the axes of values of unknown rank."""
        sizes = FixedSizes(self.sizes)
        sizes._gives_ranks = False
        return sizes

    @property
    def unused(self) -> tuple[str, ...]:
        """The names given by the user that no model scanned so far has."""
        return tuple(name for name in self.sizes if name not in self.used)

    def check_all_used(self) -> None:
        """Refuse a name that no model so far has."""
        for name in self.unused:
            raise InvalidArgumentError(
                f"dimension {name} is given the size {self.sizes[name]}; no .onnx model here has a "
                f"dynamic dimension of that name. Fix: {self.fix(name)}"
            )

    def fix(self, name: str) -> str:
        """What to give instead of a name that no model has: similar names, or else all of them."""
        names = get_close_matches(name, self.dynamic) or list(self.dynamic)
        listed = f"{' or '.join(map(shown_name, names[:MAX_SHOWN]))}, or " if names else ""
        more = f" ({len(names)} names)" if len(names) > MAX_SHOWN else ""
        return f"give {listed}VALUE.AXIS with a value of the model{more}"

    def _remember(self, dims: Iterable[Size]) -> None:
        names = (dim for dim in dims if isinstance(dim, str))
        self.dynamic.update(dict.fromkeys(islice(names, max(0, _MAX_NAMES - len(self.dynamic)))))

    def declared_shape(self, entry: ValueInfo) -> Shape | None:
        """The declared shape of a value, with the sizes that are given by name.

        A dimension whose name is VALUE.AXIS of an input counts as unnamed.
        """
        shape = entry.shape
        if shape and self.sizes:
            self._remember(shape)
        return shape and tuple(None if n in self._axes else self._size_by_name(n) for n in shape)

    def apply(self, name: str, shape: Shape | None) -> Shape | None:
        """The shape of a value of a graph, with the given sizes.

        If its rank is unknown, it is the number of axes with a given size, unless one is missing.
        """
        if not self.sizes:
            return shape
        if shape is None and name in self._given_axes:
            axes = self._given_axes[name]
            numbers = list(map(str, range(MAX_RANK)))
            self.used.update(f"{name}.{axis}" for axis in axes.intersection(numbers))
            if self._gives_ranks and axes == set(numbers[: len(axes)]):
                shape = (None,) * len(axes)
                self.has_given_rank = True
        return shape and tuple(self._size(f"{name}.{axis}", dim) for axis, dim in enumerate(shape))

    def check_computed(self, value: str, shape: Shape, declared: Shape, after: str) -> None:
        """Refuse a size that is given for a dimension's name, if the model computes another.

        If the name is also that of a dimension of an input, the declaration is wrong, not the size.

        Parameters
        ----------
        value, shape, after
            The name of a value, its computed shape, and the node that computes it.
        declared
            Its shape as the model declares it, without the given sizes.
        """
        if len(shape) != len(declared):
            return
        for axis, (size, name) in enumerate(zip(shape, declared, strict=True)):
            if not isinstance(name, str) or name in self._input_names or not isinstance(size, int):
                continue
            if (found := self._by_name.get(name, size)) != size:
                raise InvalidArgumentError(
                    f"dimension {name} is {found}; {self._others}it must be {size}, the size of "
                    f"{value}.{axis} after {after}. Fix: give {size}, or omit it"
                )

    @property
    def _others(self) -> str:
        """In an error about one size, that it may depend on others."""
        return "at the other given sizes, " * (len(self.sizes) > 1)

    def _size_by_name(self, dim: Size) -> Size:
        if not isinstance(dim, str) or dim not in self._by_name:
            return dim
        if dim in self.sizes:
            self.used.add(dim)
        return self._by_name[dim]
