"""Which builders were made of which, to tell of those that were thrown away.

Kafka's builders change themselves, so `builder.withCachingEnabled()` alone is enough there. Here it returns another
builder, and who throws that away has changed nothing. Thrown away means: nobody looked into it, and nobody has it any
more. A builder that is kept, for another topology or for nothing, is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
B = TypeVar("B", bound="Superseded")


class Lineage:
    """Of one builder: what it was made of, and what became of those that were made of it."""

    __slots__ = ("_dropped", "_kept", "_lost", "_method", "_parent", "_used", "is_busy")

    def __init__(self, parent: Lineage | None = None, method: str = "") -> None:
        self.is_busy = False
        """Whether the builder makes another one: what that looks at, nobody uses."""
        self._parent = parent
        self._method = method
        self._used = False
        self._dropped = False
        self._kept = 0
        """How many of those made of it are not lost."""
        self._lost: list[str] = []
        if parent is not None:
            parent._kept += 1

    def use(self) -> None:
        """Note that somebody looked into the builder, and so that it was not made of others for nothing."""
        found: Lineage | None = self
        while found is not None and not found._used and not found.is_busy:
            found._used = True
            found = found._parent

    def drop(self) -> None:
        """Note that nobody has the builder any more."""
        self._dropped = True
        self._settle()

    def take_lost(self) -> list[str]:
        """Return the names of the methods whose results were thrown away; each result is told once."""
        lost, self._lost = self._lost, []
        return lost

    def _settle(self) -> None:
        if self._parent is not None and self._dropped and not self._used and not self._kept:
            self._parent._kept -= 1
            self._parent._lost.append(self._method)
            self._parent._settle()


class Superseded:
    """A builder whose methods return another one: it knows of results that were thrown away. Copies know of none."""

    _lineage: Lineage | None = None

    def thrown_away(self) -> list[str]:
        """Return the names of methods of this builder whose results were thrown away since it was asked last."""
        return [] if self._lineage is None else self._lineage.take_lost()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lineage", Lineage())

    def __getattribute__(self, name: str) -> object:
        if not name.startswith(("_", "with_", "thrown_away")):
            lineage = self._lineage
            if lineage is not None:
                lineage.use()
        return super().__getattribute__(name)

    def __getstate__(self) -> dict[str, object]:
        return {name: content for name, content in self.__dict__.items() if name != "_lineage"}

    def __del__(self) -> None:
        if self._lineage is not None:
            self._lineage.drop()


def superseding(method: Callable[Concatenate[B, P], B]) -> Callable[Concatenate[B, P], B]:
    """Have a builder know what becomes of the one that `method` returns, unless that is the same."""

    @wraps(method)
    def make(self: B, /, *arguments: P.args, **options: P.kwargs) -> B:
        lineage = self._lineage
        if lineage is None:
            return method(self, *arguments, **options)
        lineage.is_busy = True
        try:
            made = method(self, *arguments, **options)
            if made is not self and made != self:
                object.__setattr__(made, "_lineage", Lineage(lineage, method.__name__))
        finally:
            lineage.is_busy = False
        return made

    return make
