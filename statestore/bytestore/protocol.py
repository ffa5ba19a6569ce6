"""The contract of every ordered map of bytes to bytes, whatever holds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeGuard

from statestore.bytestore.row_changes import RowChanges

Pair = tuple[bytes, bytes]
Change = tuple[bytes, "bytes | None"]
KeyChanges = Mapping[bytes, "bytes | None"]  # changes of keys that are all different
Range = tuple[bytes, bytes]  # the first and the last key, both inclusive


class ByteStore(Protocol):
    """An ordered map of bytes to bytes; order is unsigned bytewise, as RocksDB's and Kafka's.

    Every method raises StoreClosedError once the store is closed.
    """

    @property
    def name(self) -> str:
        """The store's name, for errors and metrics."""

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none: the same as `get`, one by one."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`: how whole time segments expire."""

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open.

        Sees the store as it is at the call, not at the first `next`. Start beyond end yields nothing. Ends early if the
        store is closed meanwhile: who hands the iterator on must tell the two apart by `is_open`.
        """

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order: the same as `range`, one by one. Ascending ones are fastest."""

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value, never negative."""

    def approximate_size_bytes(self) -> int:
        """Return about how much room the entries take where they are held, never negative."""

    def close(self) -> None:
        """Close the store and every iterator that it handed out. Closing twice is harmless."""


class RowStore(ByteStore, Protocol):
    """A ByteStore that is written to in rows too: a write set, and each layer of a typed store."""

    @property
    def takes_rows(self) -> bool:
        """Whether it and all below take many writes at once; else each is to be made while its record is current."""

    def write_rows(self, changes: RowChanges) -> None:
        """Do what `put` does of each row while its record is the current one. Not unless it `takes_rows`."""


def takes_rows(store: ByteStore) -> TypeGuard[RowStore]:
    """Return whether a store can be written to in rows; one that does not say so can't."""
    return getattr(store, "takes_rows", False) is True
