"""What stores of several kinds are asked, and hold, alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from statestore.errors import StoreError
from statestore.errors.state import StoreClosedError


def closed_iterators_refuse(iterators: Iterable[Any]) -> None:
    """Check that each of them, which has entries, refuses to go on once it is closed."""
    for iterator in iterators:
        with iterator:
            next(iterator)
        assert not iterator.is_open
        with pytest.raises(StoreError, match="closed"):
            next(iterator)


def closing_ends_iterators(store: Any, begun: list[Any], untouched: list[Any]) -> None:
    """Check that closing the store ends iterators with an error, those that have begun and those that have not."""
    for iterator in begun:
        next(iterator)
    store.close()
    for iterator in begun + untouched:
        with pytest.raises(StoreClosedError):
            list(iterator)


def closed_store_refuses(store: Any, *uses: Callable[[], Any]) -> None:
    """Check that a store can be closed, twice too, and that each of these uses is refused from then on."""
    store.close()
    store.close()
    assert not store.is_open
    for use in uses:
        with pytest.raises(StoreClosedError, match="store"):
            use()


def null_keys_are_refused(*uses: Callable[[], Any]) -> None:
    """Check that each of these uses, of a key of None, is a TypeError that names the store."""
    for use in uses:
        with pytest.raises(TypeError, match="store"):
            use()


def key_ranges(last: bytes) -> list[tuple[bytes | None, bytes | None]]:
    """Return ranges of the keys around b"k", one of them up to `last`, inclusive; None is an open end."""
    return [
        (None, None),
        (b"k", b"k"),
        (b"k", b"k\x00"),
        (None, last),
        (b"k\x00", None),
        (b"", b""),
        (None, b"\xff"),
        (b"l", b"k"),
        (b"x", b"y"),
    ]
