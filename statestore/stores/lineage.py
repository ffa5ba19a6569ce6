"""Tells of builders that were made of another one and thrown away.

Kafka's builders change themselves, so `builder.withCachingEnabled()` alone is enough there. Here it returns another
builder, and who throws that away has changed nothing. Thrown away means: it is gone, and neither it nor a builder that
was made of it was used. A builder that is kept, for another topology or for nothing, is not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
B = TypeVar("B", bound="Derivable")

_OWN: Final = frozenset({"_base", "_loss", "_lost"})


class Derivable:
    """A builder whose methods return another one. Copies know nothing of what was made of the original."""

    _base: Derivable | None = None
    """The builder that this one was made of. It is kept, so that it goes after this one."""
    _loss: weakref.finalize[Any, Any] | None = None  # what tells the base when this one is gone
    _lost: list[str] | None = None

    def thrown_away(self) -> list[str]:
        """Return the names of methods of this builder whose results were thrown away since it was asked last."""
        lost, self.__dict__["_lost"] = self._lost, []
        return lost or []

    def use(self) -> None:
        """Say that the builder is used: neither it nor what it was made of is lost when it is gone."""
        used: Derivable | None = self
        while used is not None:
            if used._loss is not None:
                used._loss.detach()
            used = used._base

    def __getstate__(self) -> dict[str, object]:
        return {name: content for name, content in self.__dict__.items() if name not in _OWN}


def derives(method: Callable[Concatenate[B, P], B]) -> Callable[Concatenate[B, P], B]:
    """Have a builder know if what `method` returns is thrown away. Where nothing changes, return the builder itself."""

    @wraps(method)
    def derive(self: B, /, *arguments: P.args, **options: P.kwargs) -> B:
        made = method(self, *arguments, **options)
        if made == self:
            return self
        # Frozen dataclasses refuse setattr.
        lost = self.__dict__.setdefault("_lost", [])
        made.__dict__["_base"] = self
        made.__dict__["_loss"] = loss = weakref.finalize(made, lost.append, method.__name__)
        loss.atexit = False
        return made

    return derive
