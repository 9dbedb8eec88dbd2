"""The user's sizes for the dynamic dimensions of a model."""

from collections.abc import Iterable, Mapping
from itertools import count, takewhile

from dmlsplit.checks import instance, integer
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.messages import Shape, ValueInfo


class FixedSizes:
    """Sizes by the name of a dimension, such as ``batch``, or by value and axis: ``x.0``.

    Attributes
    ----------
    used : set of str
        The given names that a model has.
    given : mapping of str to int
        The sizes by name.
    give_ranks : bool
        Whether sizes decide unknown ranks, which shape inference may still find.
    """

    def __init__(self, given: Mapping[str, int]) -> None:
        self.used: set[str] = set()
        self.give_ranks = True
        pairs = instance("given", given, Mapping).items()  # type: ignore[type-abstract]
        self.given = {name: integer(f"given[{name!r}]", size) for name, size in pairs}
        self._by_name = dict(given)

    def meet(self, inputs: Iterable[ValueInfo]) -> None:
        """Register the dimension names of a model's inputs: once per model, before `applied`.

        A dimension with two sizes, or a size other than the model's, is an InvalidArgumentError.
        """
        self._by_name = dict(self.given)
        for entry in inputs:
            for axis, own in enumerate(entry.shape or ()):
                key = f"{entry.name}.{axis}"
                if key in self.given:
                    self._fix(key, own)

    def _fix(self, key: str, own: int | str) -> None:
        """Fix a dimension of an input that the model gives `own`, its size or name."""
        self.used.add(key)
        size = self.given[key]
        if isinstance(own, int) and own != size:
            raise InvalidArgumentError(f"{key} is {size}; the model fixes it to {own}")
        named = own if isinstance(own, str) and own != "?" else key
        if self._by_name.setdefault(named, size) != size:
            raise InvalidArgumentError(
                f"dimension {named} is {self._by_name[named]}, but {key}, the same dimension, is "
                f"{size}; the two must be equal"
            )

    @property
    def unused(self) -> tuple[str, ...]:
        """The given names that no model so far has."""
        return tuple(name for name in self.given if name not in self.used)

    def check_all_used(self) -> None:
        """Refuse a name that no model so far has."""
        for name in self.unused:
            raise InvalidArgumentError(
                f"dimension {name} is given the size {self.given[name]}; no .onnx model here has a "
                "dynamic dimension of that name. Fix: give the right name, or VALUE.AXIS"
            )

    def declared(self, entry: ValueInfo) -> Shape | None:
        """The declared shape of a value, with the sizes that are given by name."""
        shape = entry.shape
        return shape and tuple(self._named(size) for size in shape)

    def applied(self, name: str, shape: Shape | None) -> Shape | None:
        """The shape of a value of a graph, with the given sizes.

        If its rank is unknown, it is the number of axes with a given size, counted from 0.
        """
        if not self.given:
            return shape
        if shape is None and self.give_ranks:
            keys = takewhile(self.given.__contains__, (f"{name}.{axis}" for axis in count()))
            shape = ("?",) * sum(1 for _ in keys) or None
        return shape and tuple(self._size(f"{name}.{axis}", own) for axis, own in enumerate(shape))

    def _size(self, key: str, own: int | str) -> int | str:
        if key not in self.given:
            return self._named(own)
        if isinstance(own, int):
            self._fix(key, own)
        self.used.add(key)
        return self.given[key]

    def _named(self, own: int | str) -> int | str:
        if not isinstance(own, str) or own not in self._by_name:
            return own
        if own in self.given:
            self.used.add(own)
        return self._by_name[own]
