"""Key-value stores, over any byte store. Source: Kafka's KeyValueStore; with headers: KIP-1271.

What a store holds of a key is its codec's choice: a plain value, a ValueAndTimestamp or a ValueTimestampHeaders.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow as pa

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.bytestore.protocol import Pair, RowChanges, takes_rows
from statestore.errors import DeserializationError, FormatError
from statestore.errors.readable import shape_of
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serde
from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.iterator import StoreIterator
from statestore.stores.readable_store import ReadableStore
from statestore.stores.segment_columns import times_of
from statestore.stores.typed_store import HeadersBytesStore, TypedStore

K = TypeVar("K")
V = TypeVar("V")

_VALUES_AT_ONCE = 512


class ReadOnlyKeyValueStore(ReadableStore, Generic[K, V]):
    """A map of keys to values that can only be read.

    A key of None raises TypeError everywhere. Keys are ordered by their serialized bytes, unsigned.
    """

    def get(self, key: K) -> V | None:
        """Return what the store holds of `key`; None if nothing."""
        # All of _require_key and _decode, for the calls that they are: every record is read through here.
        if key.__class__ is bytes and self._keeps_keys:
            stored = self._inner.get(key)  # type: ignore[arg-type]
        else:
            if key is None:
                self._refuse_key()
            stored = self._inner.get(self._key_bytes(key))
        if stored is None:
            return None
        try:
            held: V = self._decode_raw(stored)
        except (FormatError, DeserializationError) as cause:
            raise self._unreadable(cause) from cause
        return held

    def get_many(self, keys: Any, stream_time_ms: Any = None) -> HeldColumns:
        """Return what the store holds of each key of a column, in rows of their own; each key is fetched once.

        `keys` is an Arrow or numpy column of the type that the key serde has. `stream_time_ms` is a column of whole
        numbers: what expires in stream time is shown unless it has at the time beside its key; None is now. Raises
        TypeError for other columns, for a null among the keys, and if a serde of the store has no columns, ValueError
        for illegal times, and StoreError for entries that can't be read.
        """
        columns = self._columns()
        key_bytes = columns.key_bytes(keys)
        expiring = self._parts.stack.expiring
        if stream_time_ms is not None and expiring is not None:
            times = times_of("stream_time_ms", stream_time_ms, len(key_bytes)).tolist()
            return self._held(columns, pa.array(expiring.get_many_at(key_bytes.to_pylist(), times), pa.binary()))
        groups = KeyGroups(key_bytes)
        held = self._held(columns, pa.array(self._inner.get_many(groups.keys.to_pylist()), pa.binary()))
        return held if groups.keys is key_bytes else held.take(groups.codes)

    def range(self, start: K | None, end: K | None) -> StoreIterator[tuple[K, V]]:
        """Yield entries from `start` to `end`, both inclusive, None = open, ascending, as the store is at the call."""
        return self._entries(start, end, reverse=False)

    def reverse_range(self, start: K | None, end: K | None) -> StoreIterator[tuple[K, V]]:
        """Yield entries from `end` down to `start`, both inclusive, None = open, as the store is at the call."""
        return self._entries(start, end, reverse=True)

    def all(self) -> StoreIterator[tuple[K, V]]:
        """Yield all entries, ascending, as the store is at the call."""
        return self._entries(None, None, reverse=False)

    def reverse_all(self) -> StoreIterator[tuple[K, V]]:
        """Yield all entries, descending, as the store is at the call."""
        return self._entries(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any] | None = None) -> StoreIterator[tuple[K, V]]:
        """Yield entries whose serialized key begins with `prefix`, ascending, as the store is at the call.

        Without a serde, the prefix is bytes.
        """
        begin = prefix if prefix_serde is None else prefix_serde.serialize(prefix)
        if not isinstance(begin, bytes):
            raise TypeError(f"store {self.name!r}: a prefix without a serde must be bytes, not {shape_of(begin)}")
        return self._iterate_pairs(pairs_with_prefix(self._inner, begin))

    def range_values(self, start: K | None, end: K | None) -> StoreIterator[Any]:
        """Yield the values of `range` alone, without keys and what else they were written with; twice as fast or more.

        Read ahead by some hundred entries, or a few MB: a value that can't be read shows up that much earlier.
        """
        return StoreIterator(self.name, self._values(self._inner.range(self._bound(start), self._bound(end))))

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return self._inner.approximate_num_entries()

    def _values(self, pairs: Iterator[Pair]) -> Generator[Any, None, None]:
        decode_values = self._decode_values
        for chunk in chunks(pairs, max_rows=_VALUES_AT_ONCE):
            try:
                values = decode_values(chunk)
            except (FormatError, DeserializationError) as cause:
                raise self._unreadable(cause) from cause
            yield from values
        self._require_open()

    def _entries(self, start: K | None, end: K | None, *, reverse: bool) -> StoreIterator[tuple[K, V]]:
        return self._iterate_pairs(self._inner.range(self._bound(start), self._bound(end), reverse=reverse))


class KeyValueStore(ReadOnlyKeyValueStore[K, V], TypedStore):
    """A map of keys to values."""

    kind = StoreKind.KEY_VALUE
    value_format = StoreFormat.PLAIN

    def put(self, key: K, value: V | None) -> None:
        """Set what the store holds of `key`; None, or a holder of None, deletes it with its headers."""
        if self._keys is not None:
            self._inner.put(*self._to_put(key, value))
            return
        if key.__class__ is bytes and self._keeps_keys:
            self._inner.put(key, self._encode(value))  # type: ignore[arg-type]
            return
        if key is None:
            self._refuse_key()
        self._inner.put(self._key_bytes(key), self._encode(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set `key` if the store holds nothing of it, and return None; else change nothing and return what it holds."""
        key_bytes, stored = self._to_put(key, value)
        present = self._inner.get(key_bytes)
        if present is None:
            self._inner.put(key_bytes, stored)
            return None
        held: V = self._decode(present)
        return held

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set all entries in order; the whole of them is serialized before the first is written."""
        if self._keys is None:
            self._inner.write([(self._require_key(key), self._encode(value)) for key, value in entries])
        else:
            self._keys.write(self._inner, (self._to_put(key, value) for key, value in entries))

    def put_many(self, records: RecordColumns) -> None:
        """Set the key of each record to its value, in order; a null value deletes.

        As much is stored of each record's timestamp and headers as the store's format has room for, and what is logged
        has them in any case: it is as if each record was the current one at its put. Of several records with one key
        only the last one is written and logged, in the order of these.

        Raises TypeError if a serde of the store has no columns, and for a null key, and SerializationError for columns
        of types that the serdes can't write; nothing is written then.
        """
        columns = self._columns()
        keys, stored = columns.key_bytes(records.key), columns.stored(records)
        self._watch_many(stored)
        if takes_rows(self._inner):
            self._inner.write_rows(RowChanges(keys, stored, records))
        else:
            self._put_one_by_one(self._inner.put, records, keys.to_pylist(), stored.to_pylist())

    def delete(self, key: K) -> V | None:
        """Delete `key` and return what the store held of it, None if nothing."""
        key_bytes = self._require_key(key) if self._keys is None else self._to_put(key, None)[0]
        stored = self._inner.get(key_bytes)
        self._inner.put(key_bytes, None)
        return None if stored is None else self._decode(stored)

    def read_only(self) -> ReadOnlyKeyValueStore[K, V]:
        """Return a view of the store that has its methods to read, and no other ones."""
        return ReadOnlyKeyValueStore(self._parts)


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]]):
    """A map of keys to values, each with the timestamp it was written with."""

    value_format = StoreFormat.TIMESTAMPED

    def put_value(self, key: K, value: V | None, *, timestamp_ms: int | None = None) -> None:
        """Put a value with the timestamp of the record that is being processed, unless one is given; None deletes."""
        self.put(key, ValueAndTimestamp.make(value, self._timestamp_to_put(timestamp_ms)))


class TimestampedKeyValueStoreWithHeaders(KeyValueStore[K, ValueTimestampHeaders[V]], HeadersBytesStore):
    """A map of keys to values, each with the timestamp and headers it was written with.

    Headers are not parsed on the way in or out: only who looks into `headers` of a result pays for it.
    """

    value_format = StoreFormat.TIMESTAMPED_WITH_HEADERS

    def put_value(
        self, key: K, value: V | None, *, timestamp_ms: int | None = None, headers: Headers | None = None
    ) -> None:
        """Put a value with timestamp and headers of the record that is being processed, unless they are given.

        A value of None deletes. To write no headers, give empty ones.
        """
        time_ms = self._timestamp_to_put(timestamp_ms)
        held = None if value is None else ValueTimestampHeaders(value, time_ms, self._headers_to_put(headers))
        self.put(key, held)
