"""The user's sizes for the dynamic dimensions of a model's inputs."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice

from dmlsplit.checks import instance, integer
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import MAX_SHOWN
from dmlsplit.models.limits import MAX_DIMENSION_NAMES
from dmlsplit.models.onnx.protobuf import ValueInfo, shown_name
from dmlsplit.models.site import Size, dimension_name


class FixedSizes:
    """Sizes by the name of an input's dimension, such as ``batch``, or as INPUT.AXIS: ``x.0``.

    A dimension without a name, or whose name is INPUT.AXIS of an input, has its own INPUT.AXIS as
    its name.

    Parameters
    ----------
    sizes : mapping of str to int
        The sizes by name, each at least 0.

    Attributes
    ----------
    sizes : dict of str to int
        The given sizes by name.

    Raises
    ------
    InvalidArgumentError
        If a size is not an integer, or negative.

    See Also
    --------
    scan : Finds the splits of a model, at these sizes.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> onnx.FixedSizes({"batch": 1, "images.2": 640}).sizes["batch"]
    1
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        pairs = instance("sizes", sizes, Mapping).items()  # type: ignore[type-abstract]
        self.sizes = {name: integer(f"sizes[{name!r}]", size) for name, size in pairs}
        for name, size in self.sizes.items():
            if size < 0:
                raise InvalidArgumentError(f"sizes[{name!r}] is {size}; it must be at least 0")
        # The given names that a model has.
        self._used: set[str] = set()
        # The names that could be given, as the keys of a dictionary, which keeps their order.
        self._dynamic: dict[str, None] = {}
        # The INPUT.AXIS of each dimension of the inputs of the model that was registered last.
        self._axes: set[Size] = set()
        # The sizes of that model's dimensions to which the user gives one, by their names.
        self._fixed: dict[Size, int] = {}

    def register(self, inputs: Iterable[ValueInfo]) -> dict[str, str]:
        """Register the dimensions of a model's inputs: once per model, before `size`.

        Parameters
        ----------
        inputs : iterable
            The declarations (ONNX's ValueInfoProto) of the inputs of the main graph.

        Returns
        -------
        dict of str to str
            For the name of each dynamic dimension, one that every shell takes literally, if there
            is such a name.

        Raises
        ------
        InvalidArgumentError
            If a dimension is given two sizes, or a size other than the model's.
        """
        dims = [
            (entry.name, axis, dim)
            for entry in inputs
            for axis, dim in enumerate(entry.shape or ())
        ]
        self._axes = {f"{value}.{axis}" for value, axis, _ in dims}
        self._fixed = {}
        plain_names: dict[str, str] = {}
        for value, axis, dim in dims:
            key = f"{value}.{axis}"
            name = key if dim in self._axes or not isinstance(dim, str) else dim
            for option in (name, key):
                if option in self.sizes:
                    self._fix(name, option, dim)
            if not isinstance(dim, int):
                plain = dimension_name(value, axis, None if name == key else name)
                plain_names.setdefault(name, plain)
        room = max(0, MAX_DIMENSION_NAMES - len(self._dynamic))
        self._dynamic.update(dict.fromkeys(islice(plain_names.values(), room)))
        return plain_names

    def _fix(self, name: str, option: str, dim: Size) -> None:
        """Fix a dimension to the size that is given as `option`."""
        size = self.sizes[option]
        self._used.add(option)
        if isinstance(dim, int) and dim != size:
            raise InvalidArgumentError(f"{option} is {size}; the model fixes it to {dim}")
        if (other := self._fixed.setdefault(name, size)) != size:
            raise InvalidArgumentError(
                f"dimension {name} is {other}, but {option}, the same dimension, is {size}; the "
                "two must be equal"
            )

    def size(self, dim: Size, axis: str | None = None) -> Size:
        """The size of a dimension, or else its name.

        A dimension of another value has the size that is given for an input's of the same name.

        Parameters
        ----------
        dim : int, str or None
            What the model declares: a size, the name of a dynamic one, or None without a name.
        axis : str, optional
            The INPUT.AXIS of the dimension, if an input has it.

        Returns
        -------
        int, str or None
            None for a dynamic dimension that has no name and is not of an input.
        """
        name = axis if dim is None or dim in self._axes else dim
        return self._fixed.get(name, name)

    @property
    def unused(self) -> tuple[str, ...]:
        """The names given by the user that no model scanned so far has."""
        return tuple(name for name in self.sizes if name not in self._used)

    def check_all_used(self) -> None:
        """Check that each name given by the user is that of a dimension of some model.

        Raises
        ------
        InvalidArgumentError
            If no model registered so far has it; the error proposes other names.
        """
        for name in self.unused:
            raise InvalidArgumentError(
                f"dimension {name} is given the size {self.sizes[name]}; no input of an .onnx "
                f"model here has a dynamic dimension of that name. Fix: {self.fix(name)}"
            )

    def fix(self, name: str) -> str:
        """What to give instead of a name that no model has: similar names, or else all of them."""
        if not self._dynamic:
            return (
                "remove it, as no input has a dynamic dimension; declare sizes of other values in "
                "the model's value_info"
            )
        names = get_close_matches(name, self._dynamic) or list(self._dynamic)
        more = f" ({len(names)} names)" if len(names) > MAX_SHOWN else ""
        listed = " or ".join(map(shown_name, names[:MAX_SHOWN]))
        return f"give {listed}{more}; declare sizes of other values in the model's value_info"
