"""Scans of the keys that begin with a prefix: where such keys end, and what a byte store has of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from statestore.bytestore.protocol import ByteStore, Pair


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least key that stands behind all that begin with `prefix`; None if none does."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def pairs_with_prefix(store: ByteStore, prefix: bytes, start: bytes | None = None) -> Iterator[Pair]:
    """Yield the pairs whose keys begin with `prefix`, ascending, as of the call; from `prefix` + `start` on, if given.

    A store that holds writes in memory copies what it is asked for, so it is not asked for more.
    """
    pairs = store.range(prefix + (start or b""), prefix_end(prefix))
    # The end is inclusive, and may be a key.
    return takewhile(lambda pair: pair[0].startswith(prefix), pairs)
