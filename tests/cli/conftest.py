"""Children that compare models are forked."""

from tests.support.forked import forked_children

__all__ = ["forked_children"]
