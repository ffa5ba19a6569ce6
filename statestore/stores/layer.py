"""What all layers of a store have in common: they pass on what they do not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from statestore.bytestore.protocol import ByteStore, Change, Pair, Range


class ByteStoreLayer:
    """A ByteStore that passes everything to `inner`."""

    def __init__(self, inner: ByteStore) -> None:
        self.name = inner.name
        self.inner = inner
        if type(self).get is ByteStoreLayer.get:
            # Most reads go through several layers that do nothing about them: a call less for each.
            self.get = inner.get  # type: ignore[method-assign]
        if type(self).range is ByteStoreLayer.range:
            self.range = inner.range  # type: ignore[method-assign]

    @property
    def is_open(self) -> bool:
        """Whether the store below is open."""
        return self.inner.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        # A layer that has a get() of its own has to be asked for each.
        changed = type(self).get is not ByteStoreLayer.get
        return [self.get(key) for key in keys] if changed else self.inner.get_many(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        self.inner.put(key, value)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        self.inner.write(changes)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self.inner.delete_below(end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        return self.inner.range(start, end, reverse=reverse)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        # As with get_many().
        changed = type(self).range is not ByteStoreLayer.range
        return [list(self.range(*each)) for each in ranges] if changed else self.inner.range_many(ranges)

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return self.inner.approximate_num_entries()

    def approximate_size_bytes(self) -> int:
        """Return about how much room the entries take where they are held."""
        return self.inner.approximate_size_bytes()

    def close(self) -> None:
        """Close the store below."""
        self.inner.close()
