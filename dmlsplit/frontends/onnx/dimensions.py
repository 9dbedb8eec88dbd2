"""The user's sizes for the dynamic dimensions of a model."""

from collections.abc import Iterable, Mapping

from dmlsplit.checks import instance, integer
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.messages import Shape, ValueInfo


class FixedSizes:
    """Sizes by the name of a dimension, such as ``batch``, or by input and axis: ``x.0``.

    Attributes
    ----------
    used : set of str
        The given names that a model has.
    given : mapping of str to int
        The sizes by name.
    """

    def __init__(self, given: Mapping[str, int]) -> None:
        self.used: set[str] = set()
        pairs = instance("given", given, Mapping).items()  # type: ignore[type-abstract]
        self.given = {name: integer(f"given[{name!r}]", size) for name, size in pairs}
        self._by_name = dict(given)

    def meet(self, inputs: Iterable[ValueInfo]) -> None:
        """Register the dimension names of a model's inputs: once per model, before `applied`.

        A dimension with two sizes, or with another size than its own, is an InvalidArgumentError.
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
        name = key if own == "?" or isinstance(own, int) else own
        if self._by_name.setdefault(name, size) != size:
            raise InvalidArgumentError(
                f"dimension {name} is {self._by_name[name]}, and as {key} it is {size}; "
                "both must be equal"
            )

    def check_all_used(self) -> None:
        """Refuse a name that no model so far has."""
        for name, size in self.given.items():
            if name not in self.used:
                raise InvalidArgumentError(
                    f"dimension {name} is given the size {size}; no .onnx model here has a dynamic "
                    "dimension of that name. Fix: give its name, or INPUT.AXIS"
                )

    def applied(self, entry: ValueInfo, is_input: bool = False) -> Shape | None:
        """The declared shape of a value, with the given sizes."""
        shape = entry.shape
        if shape is None or not self._by_name:
            return shape
        sizes = list(shape)
        for axis, name in enumerate(shape):
            if isinstance(name, str):
                key = f"{entry.name}.{axis}" if name == "?" and is_input else name
                if key in self.given:
                    self.used.add(key)
                sizes[axis] = self._by_name.get(key, name)
        return tuple(sizes)
