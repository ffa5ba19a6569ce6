"""A database in memory: the engine of in-memory stores, which are restored from their changelog at every start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from statestore.bytestore.engines.scans import KeyOrder, ScannedStore
from statestore.bytestore.protocol import Change, Pair, Range
from statestore.errors.state import StoreClosedError

_ENTRY_BYTES: Final = 200
"""What an entry takes beside the bytes of its key and value: two objects, and slots in a dict and a list with their
spare room. Measured with CPython 3.11."""


class MemoryByteStore(ScannedStore):
    """A ByteStore in this process's memory. A range copies its pairs before they change: that is its snapshot."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.held_bytes = 0  # about how much memory its entries take
        self._pairs: dict[bytes, bytes] = {}
        self._order = KeyOrder(self._pairs)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        self._require_open()
        return self._pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        self._require_open()
        return [*map(self._pairs.get, keys)]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        self._require_open()
        before = self._pairs.get(key)
        if value is None:
            if before is not None:
                self._order.remove(key)
                self._remove(key)
            return
        if self._order.is_kept:
            self._order.expect(key)
        if before is None:
            self.held_bytes += len(key) + len(value) + _ENTRY_BYTES
        else:
            self.held_bytes += len(value) - len(before)
        self._pairs[key] = value

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        for key, value in changes:
            self.put(key, value)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self._require_open()
        for key in self._order.remove_below(end):
            self._remove(key)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        self._require_open()
        found = self._order.pairs(start, end, reverse=reverse)
        return self._hand_out(pair for pair in found)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        self._require_open()
        pairs, between = self._pairs, self._order.between
        return [[(key, pairs[key]) for key in between(start, end)] for start, end in ranges]

    def approximate_num_entries(self) -> int:
        """Return how many keys have a value: here it is exact."""
        self._require_open()
        return len(self._pairs)

    def approximate_size_bytes(self) -> int:
        """Return about how much memory the entries take."""
        self._require_open()
        return self.held_bytes

    def close(self) -> None:
        """Close the store and its iterators, and let go of the content."""
        super().close()
        self._pairs.clear()
        self.held_bytes = 0

    def _remove(self, key: bytes) -> None:
        self.held_bytes -= len(key) + len(self._pairs.pop(key)) + _ENTRY_BYTES

    def _require_open(self) -> None:
        if self._closed:  # without a call, as every access does this
            raise StoreClosedError(self.name)


class MemoryDatabase:
    """Several MemoryByteStores under one roof, as a RocksDBDatabase has column families."""

    def __init__(self, families: Sequence[str]) -> None:
        self._stores = {name: MemoryByteStore(name) for name in families}

    @property
    def held_bytes(self) -> int:
        """About how much memory the entries of all families take."""
        return sum(store.held_bytes for store in self._stores.values())

    def family(self, name: str, store: str | None = None) -> MemoryByteStore:
        """Return the byte store `name`, called `store` in errors from now on."""
        family = self._stores[name]
        family.name = store or family.name
        return family

    def close(self) -> None:
        """Close every store."""
        for store in self._stores.values():
            store.close()
