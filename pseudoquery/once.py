"""A property that is computed once, whichever thread asks first."""

from __future__ import annotations

from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

Value = TypeVar("Value")


class once_property(cached_property[Value]):  # noqa: N801 - it is used as `property` is
    """A cached property whose function runs once, even if several threads ask at the same time.

    `functools.cached_property` has had no lock since Python 3.12: each thread would load a model.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._mutex = RLock()

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with self._mutex:
            return super().__get__(instance, owner)
