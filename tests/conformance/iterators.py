"""What iterators of every kind of store hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from statestore.errors import StoreClosedError, StoreError


def check_closed_ones_refuse(iterators: Iterable[Any]) -> None:
    """Check that each of them, which has entries, refuses to go on once it is closed."""
    for iterator in iterators:
        with iterator:
            next(iterator)
        assert not iterator.is_open
        with pytest.raises(StoreError, match="closed"):
            next(iterator)


def check_closing_ends(store: Any, begun: list[Any], untouched: list[Any]) -> None:
    """Check that closing the store ends iterators with an error, those that have begun and those that have not."""
    for iterator in begun:
        next(iterator)
    store.close()
    for iterator in begun + untouched:
        with pytest.raises(StoreClosedError):
            list(iterator)
