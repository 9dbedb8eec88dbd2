"""A lock for late imports, so that no thread holds an import lock while the process forks.

A child has only the thread that forked. A lock that another thread held at that moment is never
released there, such as Python's own lock of a module that was being imported.
"""

import os
from _thread import RLock  # the C core of `threading`, which takes longer than `import dmlsplit`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from functools import cached_property as cached_property
    from typing import Any
else:

    class cached_property:  # noqa: N801, named as that of functools
        """A property that is computed once, without the lock that functools has in Python 3.11."""

        def __init__(self, compute: "Callable[[Any], Any]") -> None:
            self.func = compute
            self.__doc__ = compute.__doc__

        def __get__(self, owner: "Any", owner_type: type) -> "Any":
            if owner is None:
                return self
            value = owner.__dict__[self.func.__name__] = self.func(owner)
            return value


_lock = RLock()  # reentrant, because a signal handler, or a module that is being imported, may fork
if hasattr(os, "register_at_fork"):
    _release = _lock.release
    os.register_at_fork(before=_lock.acquire, after_in_parent=_release, after_in_child=_release)


def late_import() -> "AbstractContextManager[object]":
    """A lock to hold during a late import: a fork waits until it is released.

    An UnsupportedError refuses an import inside another. A signal handler may run during an import;
    what it would import is then half loaded, by its own thread, which cannot wait for itself.
    """
    if _lock._is_owned():  # type: ignore[attr-defined]
        from dmlsplit.errors import UnsupportedError

        raise UnsupportedError(
            "dmlsplit is called by a signal handler that interrupted dmlsplit's first call, which "
            "still imports what it needs. Fix: call dmlsplit once before handlers do"
        )
    return _lock
