"""Versioned key-value stores, over any byte store. Source: Kafka's VersionedKeyValueStore; with headers: KIP-1271.

Every version of a key has the time at which it became valid, and is valid until the next one. All times are
milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, overload

from statestore.bytestore.kinds.segments import LATEST_SEGMENT, SEGMENT_ID_SIZE, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.bytestore.kinds.versioned_rows import NOT_PUT, FoundVersion, VersionedRows
from statestore.bytestore.protocol import Pair
from statestore.format.keys.window_key import MAX_TIME_MS, check_time
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.versioned_row import decode_latest_row
from statestore.headers.record_headers import Headers
from statestore.stores.holders import AggregationWithHeaders, VersionedRecord, VersionedRecordWithHeaders
from statestore.stores.iterator import StoreIterator
from statestore.stores.readable_store import ReadableStore, ReadForms, VersionedParts
from statestore.stores.supplier import Duration
from statestore.stores.typed_store import HeadersBytesStore, TypedStore

K = TypeVar("K")
V = TypeVar("V")


_HISTORY = ("key", "from_ms", "to_ms")
_GET = ReadForms("get", ("key",), ("key", "as_of_ms"), _HISTORY, (*_HISTORY, "order"))


class ResultOrder(Enum):
    """In which order versions come."""

    ANY = "any"
    ASCENDING = "ascending"
    DESCENDING = "descending"


class ReadOnlyVersionedKeyValueStore(ReadableStore, Generic[K, V]):
    """The versions of keys, which can only be read."""

    _FORMS: ClassVar = {"get": _GET}
    _parts: VersionedParts

    def __init__(self, parts: VersionedParts) -> None:
        super().__init__(parts)
        self._segments = parts.segments
        self._rows = VersionedRows(self._inner, parts.segments)

    @property
    def stream_time_ms(self) -> int:
        """The latest time that was put; -1 before the first, as far as is known."""
        return self._segments.stream_time_ms

    @overload
    def get(self, key: K) -> VersionedRecord[V] | None: ...

    @overload
    def get(self, key: K, as_of_ms: Duration) -> VersionedRecord[V] | None: ...

    @overload
    def get(
        self, key: K, from_ms: Duration, to_ms: Duration, order: ResultOrder = ResultOrder.ANY
    ) -> StoreIterator[VersionedRecord[V]]: ...

    def get(self, *given: Any, **named: Any) -> Any:
        """Return or yield versions of `key`.

        get(key): the latest; None if there is none, or it was deleted.
        get(key, as_of_ms): the one that was valid then; None if there was none. Beyond the history that is kept, None
        unless the latest version was valid then already.
        get(key, from_ms, to_ms, order): those that were valid at some time in between, both ends inclusive, as they are
        at the call. Tombstones are no versions.
        Times are milliseconds, or timedeltas, since the epoch; arguments can be given by name.
        """
        if not named:  # most reads
            if len(given) == 1:
                return self._record(self._rows.get(self._require_key(given[0])))
            if len(given) == 2 and given[1].__class__ is int:
                return self._record(self._rows.get_as_of(self._require_key(given[0]), given[1]))
        key, *arguments = _GET.arguments(given, named)
        key_bytes = self._require_key(key)
        if not arguments:
            return self._record(self._rows.get(key_bytes))
        if len(arguments) == 1:
            return self._record(self._rows.get_as_of(key_bytes, *arguments))
        from_ms, to_ms, *order = arguments
        reverse = not order or ResultOrder(order[0]) is not ResultOrder.ASCENDING
        return self._iterate(self._records(self._rows.between(key_bytes, from_ms, to_ms, reverse=reverse)))

    def _indexed_segments(self) -> Iterable[bytes]:
        return (segment_prefix(LATEST_SEGMENT),)

    def _iterate_stored(self, pairs: Iterator[Pair]) -> StoreIterator[tuple[Any, Any]]:
        return self._iterate(self._latest(pairs))

    def _latest(self, pairs: Iterator[Pair]) -> Generator[tuple[Any, Any], None, None]:
        keys, key_object, decode = self._keys, self._key_object, self._decode_raw
        for stored_key, row in pairs:
            raw_key = stored_key[SEGMENT_ID_SIZE:]
            valid_from_ms, stored = decode_latest_row(row)
            key, decoded = (key_object(raw_key), decode(stored)) if keys is None else keys.pair(raw_key, stored)
            yield key, self._holder(decoded, valid_from_ms, None)

    def _record(self, found: FoundVersion | None) -> VersionedRecord[V] | None:
        if found is None:
            return None
        return self._holder(self._decode(found.value), found.valid_from_ms, found.valid_to_ms)

    def _records(self, versions: Iterator[FoundVersion]) -> Generator[VersionedRecord[V], None, None]:
        decode = self._decode_raw
        for value, valid_from_ms, valid_to_ms in versions:
            self._require_open()
            yield self._holder(decode(value), valid_from_ms, valid_to_ms)

    def _holder(self, decoded: Any, valid_from_ms: int, valid_to_ms: int | None) -> VersionedRecord[V]:
        if isinstance(decoded, AggregationWithHeaders):
            return VersionedRecordWithHeaders(decoded.aggregation, valid_from_ms, valid_to_ms, decoded.header_bytes)
        return VersionedRecord(decoded, valid_from_ms, valid_to_ms)


class VersionedKeyValueStore(ReadOnlyVersionedKeyValueStore[K, V], TypedStore):
    """The versions of keys."""

    kind = StoreKind.VERSIONED
    value_format = StoreFormat.PLAIN

    def __init__(self, parts: VersionedParts) -> None:
        super().__init__(parts)
        self._changelog = parts.changelog
        self._written_for = parts.written_for
        self._dropped_records = 0

    @property
    def dropped_records(self) -> int:
        """How many versions were older than the history that is kept, so that they were not stored."""
        return self._dropped_records

    def put(self, key: K, value: V | None, timestamp_ms: int) -> int:
        """Add the version of `key` that is valid from `timestamp_ms` on, or replace it; None deletes from then on.

        Return the time at which it ceases to be valid, -1 if it is the latest, -2^63 if it is older than the history
        that is kept and was not stored. Raises ValueError unless the time is 0 to 2^63 - 1.
        """
        return self._put(key, value, timestamp_ms)

    def delete(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Delete `key` from `timestamp_ms` on, and return the version that was valid then, None if none was."""
        key_bytes = self._require_key(key)
        check_time("timestamp_ms", timestamp_ms)
        found = self._rows.get_as_of(key_bytes, timestamp_ms)
        return None if self._put(key, None, timestamp_ms) == NOT_PUT else self._record(found)

    def read_only(self) -> ReadOnlyVersionedKeyValueStore[K, V]:
        """Return a view of the store that has its methods to read, and no other ones."""
        return ReadOnlyVersionedKeyValueStore(self._parts)

    def _put(self, key: K, holder: Any, timestamp_ms: int) -> int:
        key_bytes, stored = self._to_put(key, holder)
        if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= MAX_TIME_MS:
            check_time("timestamp_ms", timestamp_ms)
        valid_to_ms = self._rows.put(key_bytes, stored, timestamp_ms)
        if valid_to_ms == NOT_PUT:
            self._require_open()
            self._dropped_records += 1
        if self._changelog is not None:
            self._changelog.append(key_bytes, stored, self._written_for, timestamp_ms)
        return valid_to_ms


class VersionedKeyValueStoreWithHeaders(VersionedKeyValueStore[K, V], HeadersBytesStore):
    """The versions of keys, each with the headers it was written with."""

    value_format = StoreFormat.WITH_HEADERS

    def put(self, key: K, value: V | None, timestamp_ms: int, headers: Headers | None = None) -> int:
        """Do what VersionedKeyValueStore.put does, with headers; None means none. A delete keeps no headers.

        Those of the record being processed are written by `put_value` alone: a put without headers writes empty ones,
        as in Kafka's trunk (RocksDBVersionedStoreWithHeaders).
        """
        return self._put(key, AggregationWithHeaders.make(value, headers), timestamp_ms)

    def put_value(
        self, key: K, value: V | None, *, timestamp_ms: int | None = None, headers: Headers | None = None
    ) -> int:
        """Do what `put` does, with timestamp and headers of the record being processed, unless they are given."""
        time_ms = self._timestamp_to_put(timestamp_ms)
        record_headers = Headers.from_bytes(self.record_context.header_bytes) if headers is None else headers
        return self.put(key, value, time_ms, record_headers)
