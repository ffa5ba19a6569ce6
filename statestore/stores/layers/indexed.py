"""The layer over a store whose headers are indexed: it finds what the batch has written by its headers, too.

The index below knows what is committed. At the first question of a batch this layer takes the index keys of all that
the batch has written so far, and from then on those of each write: a batch that does not ask pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.header_index import HeaderIndex
from statestore.bytestore.protocol import ByteStore, ByteStoreLayer, Change, Pair, RowChanges
from statestore.bytestore.write_sets.write_set import WriteSet


class IndexedLayer(ByteStoreLayer):
    """Passes everything on, and knows by their headers the entries that `inner` holds back from `index`."""

    def __init__(self, inner: ByteStore, index: HeaderIndex, write_sets: list[WriteSet]) -> None:
        """Take the store below, with the write sets in it, the lowest last, and the index of what is below those."""
        super().__init__(inner)
        self.header_keys = index.header_keys
        self._index = index
        self._write_sets = write_sets
        self._written = write_sets[-1].beside(f"{inner.name} by header")
        """Index keys of what was written. They stay when an entry is written again: each hit is looked at anyway."""
        # Nothing is to be done until somebody asks.
        self.put = inner.put  # type: ignore[method-assign]
        self.write = inner.write  # type: ignore[method-assign]
        self.write_rows = super().write_rows  # type: ignore[method-assign]

    @classmethod
    def over(cls, inner: ByteStore) -> ByteStore:
        """Return `inner`, under such a layer if it has write sets and below them an index."""
        write_sets: list[WriteSet] = []
        below: ByteStore | None = inner
        while below is not None and not isinstance(below, HeaderIndex):
            if isinstance(below, WriteSet):
                write_sets.append(below)
            below = getattr(below, "inner", None)
        return inner if below is None or not write_sets else cls(inner, below, write_sets)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        self.inner.put(key, value)
        if value is not None:
            self._note([(key, value)])

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        pairs = list(changes)
        self.inner.write(pairs)
        self._note((key, value) for key, value in pairs if value is not None)

    def write_rows(self, changes: RowChanges) -> None:
        """Apply all rows."""
        super().write_rows(changes)
        self._note((key, value) for key, value in changes.last.items() if value is not None)

    def keys_with_header(self, name: str, value: bytes, segment: bytes = b"") -> Iterator[bytes]:
        """Yield the keys of a segment's entries that may have a header with this value, ascending, as of the call."""
        self._watch()
        prefix = self.header_keys.prefix(name, value, segment)
        written = (segment + row[len(prefix) :] for row, _ in pairs_with_prefix(self._written, prefix))
        keys = merge(self._index.keys_with_header(name, value, segment), written)
        return (key for key, _ in groupby(keys))

    def _watch(self) -> None:
        if "put" in vars(self):
            for name in ("put", "write", "write_rows"):
                delattr(self, name)
            for write_set in self._write_sets:
                self._note(write_set.pending_puts())
        elif not any(write_set.is_changed for write_set in self._write_sets):
            self._written.clear()

    def _note(self, pairs: Iterable[Pair]) -> None:
        of_entry = self.header_keys.of_entry
        self._written.write((row, b"") for key, stored in pairs for row in of_entry(key, stored))

    def close(self) -> None:
        """Close the store below."""
        self._written.close()
        super().close()
