"""Session stores, over any byte store. Source: Kafka's SessionStore; with headers: KIP-1271.

A session is known by its key, start and end, both of which belong to it. All times are milliseconds since the epoch.
"""

from __future__ import annotations

import struct
from operator import index
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, overload

import numpy as np
import pyarrow as pa

from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.format.binary_columns import Integers
from statestore.format.keys.time_key_columns import encode_session_keys, session_times
from statestore.format.keys.window_key import MAX_TIME_MS, encode_session_key, split_session_key
from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import AggregationWithHeaders
from statestore.stores.iterator import StoreIterator, Windowed
from statestore.stores.readable_store import ReadForms, SegmentedReadableStore
from statestore.stores.segment_columns import get_segmented, put_segmented, scan_segmented, times_of, upper_bound
from statestore.stores.supplier import Duration, in_milliseconds
from statestore.stores.typed_store import HeadersBytesStore, TypedStore

K = TypeVar("K")
A = TypeVar("A")

_END = struct.Struct(">q")
_GREATEST_SUFFIX = _END.pack(MAX_TIME_MS) * 2
_FETCH_FORMS = ("key",), ("from_key", "to_key")
_FETCH, _BACKWARD_FETCH = ReadForms("fetch", *_FETCH_FORMS), ReadForms("backward_fetch", *_FETCH_FORMS)
_FIND_FORMS = (
    ("key", "earliest_end_ms", "latest_start_ms"),
    ("from_key", "to_key", "earliest_end_ms", "latest_start_ms"),
)
_FIND = ReadForms("find_sessions", ("earliest_end_ms", "latest_end_ms"), *_FIND_FORMS)
_BACKWARD_FIND = ReadForms("backward_find_sessions", *_FIND_FORMS)


class FoundSessions(NamedTuple):
    """Sessions of some keys, in columns: those of each key together, in order of their ends, then of their starts."""

    rows: Integers
    """The row of the key of each."""
    start_ms: Integers
    end_ms: Integers
    held: HeldColumns


class ReadOnlySessionStore(SegmentedReadableStore, Generic[K, A]):
    """Aggregates by key and session, which can only be read.

    Sessions that end the retention or more before the stream time are not shown. Entries come segment by segment, by
    the end of the session; within one in the order of the serialized keys, then of end and start.
    """

    _FORMS: ClassVar = {
        "fetch": _FETCH,
        "backward_fetch": _BACKWARD_FETCH,
        "find_sessions": _FIND,
        "backward_find_sessions": _BACKWARD_FIND,
    }

    @property
    def retention_ms(self) -> int:
        """For how long a session is shown after its end, in milliseconds of stream time."""
        return self._segments.retention_ms

    def fetch_session(self, key: K, start_ms: Duration, end_ms: Duration) -> A | None:
        """Return the aggregate of the session of `key` from `start_ms` to `end_ms`; None if there is none."""
        ended_ms = in_milliseconds(end_ms)
        session = encode_session_key(self._require_key(key), in_milliseconds(start_ms), ended_ms)
        if ended_ms < self._segments.first_visible_ms:
            self._require_open()
            return None
        stored = self._inner.get(segment_prefix(self._segments.id_of(ended_ms)) + session)
        return None if stored is None else self._decode(stored)

    def fetch_session_many(self, keys: Any, start_ms: Any, end_ms: Any) -> HeldColumns:
        """Return the aggregate of each key of a column, in the session whose start and end stand beside it.

        Keys are an Arrow or numpy column of the type that the key serde has, times ones of whole numbers. Raises what
        `KeyValueStore.get_many` raises, and ValueError for times that are no session's.
        """
        columns = self._columns()
        raw_keys, starts_ms, ends_ms = self._sessions(columns.key_bytes(keys), start_ms, end_ms)
        sessions = encode_session_keys(raw_keys, starts_ms, ends_ms)
        return self._held(columns, get_segmented(self._parts, sessions, ends_ms))

    def find_sessions_many(self, keys: Any, earliest_end_ms: Any, latest_start_ms: Any) -> FoundSessions:
        """Return the sessions that `find_sessions` yields of each key of a column, with the times that stand beside it.

        Keys and times are columns as for `fetch_session_many`, and it raises the same.
        """
        columns = self._columns()
        raw_keys, earliest_ms, latest_ms = self._sessions(columns.key_bytes(keys), earliest_end_ms, latest_start_ms)
        self._require_open()
        first_ms = np.maximum(earliest_ms, self._segments.first_visible_ms)
        bounds = [(_END.pack(time_ms), _GREATEST_SUFFIX) for time_ms in first_ms.tolist()]
        rows, sessions, stored = scan_segmented(
            self._parts, raw_keys.to_pylist(), bounds, self._segments.ids_of(first_ms)
        )
        starts_ms, ends_ms = session_times(sessions)
        wanted = starts_ms <= latest_ms[rows]
        held = self._held(columns, stored.filter(pa.array(wanted)))
        return FoundSessions(rows[wanted], starts_ms[wanted], ends_ms[wanted], held)

    @overload
    def fetch(self, key: K) -> StoreIterator[tuple[Windowed, A]]: ...

    @overload
    def fetch(self, from_key: K | None, to_key: K | None) -> StoreIterator[tuple[Windowed, A]]: ...

    def fetch(self, *given: Any, **named: Any) -> StoreIterator[tuple[Windowed, A]]:
        """Yield the sessions of one key, or of all from one key to another, inclusive, None = open."""
        return self._find((*_FETCH.arguments(given, named), 0, MAX_TIME_MS), reverse=False)

    @overload
    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed, A]]: ...

    @overload
    def backward_fetch(self, from_key: K | None, to_key: K | None) -> StoreIterator[tuple[Windowed, A]]: ...

    def backward_fetch(self, *given: Any, **named: Any) -> StoreIterator[tuple[Windowed, A]]:
        """Yield what `fetch` yields, in the opposite order."""
        return self._find((*_BACKWARD_FETCH.arguments(given, named), 0, MAX_TIME_MS), reverse=True)

    @overload
    def find_sessions(
        self, earliest_end_ms: Duration, latest_end_ms: Duration
    ) -> StoreIterator[tuple[Windowed, A]]: ...

    @overload
    def find_sessions(
        self, key: K, earliest_end_ms: Duration, latest_start_ms: Duration
    ) -> StoreIterator[tuple[Windowed, A]]: ...

    @overload
    def find_sessions(
        self, from_key: K | None, to_key: K | None, earliest_end_ms: Duration, latest_start_ms: Duration
    ) -> StoreIterator[tuple[Windowed, A]]: ...

    def find_sessions(self, *given: Any, **named: Any) -> StoreIterator[tuple[Windowed, A]]:
        """Yield the sessions that overlap with a time, all ends inclusive.

        find_sessions(key, earliest_end_ms, latest_start_ms): of one key, those that end at the first time or later and
        start at the second or earlier. find_sessions(from_key, to_key, earliest_end_ms, latest_start_ms): of a range of
        keys, None = open. find_sessions(earliest_end_ms, latest_end_ms): of all keys, by their end alone. Times are
        milliseconds, or timedeltas, since the epoch; arguments can be given by name.
        """
        return self._find(_FIND.arguments(given, named), reverse=False)

    @overload
    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int, /
    ) -> StoreIterator[tuple[Windowed, A]]: ...

    @overload
    def backward_find_sessions(
        self, from_key: K | None, to_key: K | None, earliest_end_ms: int, latest_start_ms: int, /
    ) -> StoreIterator[tuple[Windowed, A]]: ...

    def backward_find_sessions(self, *given: Any, **named: Any) -> StoreIterator[tuple[Windowed, A]]:
        """Yield what `find_sessions` yields of keys, in the opposite order."""
        return self._find(_BACKWARD_FIND.arguments(given, named), reverse=True)

    def _sessions(self, keys: pa.BinaryArray, start_ms: Any, end_ms: Any) -> tuple[pa.BinaryArray, Integers, Integers]:
        return keys, times_of("start_ms", start_ms, len(keys)), times_of("end_ms", end_ms, len(keys))

    def _find(self, arguments: tuple[Any, ...], *, reverse: bool) -> StoreIterator[tuple[Windowed, A]]:
        earliest_end_ms, latest_ms = arguments[-2:]
        latest_end_ms, latest_start_ms = (latest_ms, MAX_TIME_MS) if len(arguments) == 2 else (MAX_TIME_MS, latest_ms)
        lower: bytes | None = None
        upper: bytes | None = None
        if len(arguments) == 3:
            lower = upper = self._require_key(arguments[0])
        elif len(arguments) == 4:
            lower, upper = map(self._bound, arguments[:2])
        first_end_ms = max(index(earliest_end_ms), self._segments.first_visible_ms)
        last_end_ms, last_start_ms = min(index(latest_end_ms), MAX_TIME_MS), index(latest_start_ms)

        def is_wanted(found: bytes, start_ms: int, end_ms: int) -> bool:
            return (
                first_end_ms <= end_ms <= last_end_ms
                and start_ms <= last_start_ms
                and (lower is None or found >= lower)
                and (upper is None or found <= upper)
            )

        if lower is not None and lower == upper:
            bounds: tuple[bytes | None, bytes | None] = (
                lower + _END.pack(min(first_end_ms, MAX_TIME_MS)),
                lower + _GREATEST_SUFFIX,
            )
        else:
            bounds = (lower, None if upper is None else upper_bound(upper, _GREATEST_SUFFIX))
        scans = self._scans((first_end_ms, last_end_ms), bounds, reverse=reverse)
        return self._iterate(self._windowed(scans, split_session_key, is_wanted))


class SessionStore(ReadOnlySessionStore[K, A], TypedStore):
    """Aggregates by key and session."""

    kind = StoreKind.SESSION
    value_format = StoreFormat.PLAIN

    def hold_stream_time(self, latest_ms: int) -> None:
        """Keep puts from advancing the stream time beyond `latest_ms`, until the next call."""
        self._segments.latest_ms = latest_ms

    def put(self, session: Windowed, aggregate: A | None) -> None:
        """Set the aggregate of a session; None removes it.

        A session whose segment has expired is not stored. Raises ValueError unless 0 <= start <= end <= 2^63 - 1.
        """
        self._set(session, aggregate)

    def put_many(self, records: RecordColumns, start_ms: Any, end_ms: Any) -> None:
        """Set the aggregate of each record's key, which is its value, in the session with the start and end beside it.

        A null value removes the session. Times are columns of whole numbers. All else is as with
        `KeyValueStore.put_many`; raises ValueError, too, for times that are no session's.
        """
        columns = self._columns()
        keys, starts_ms, ends_ms = self._sessions(columns.key_bytes(records.key), start_ms, end_ms)
        stored, sessions = columns.stored(records), encode_session_keys(keys, starts_ms, ends_ms)
        self._watch_many(stored)
        if not put_segmented(self._parts, sessions, ends_ms, stored, records):
            self._put_one_by_one(self._set_stored, records, sessions.to_pylist(), ends_ms.tolist(), stored.to_pylist())

    def remove(self, session: Windowed) -> None:
        """Remove a session, if it is there."""
        self._set(session, None)

    def _set(self, session: Windowed, aggregate: A | None) -> None:
        session_key, start_ms, end_ms = session
        key_bytes, stored = self._to_put(session_key, aggregate)
        self._set_stored(encode_session_key(key_bytes, start_ms, end_ms), end_ms, stored)

    def _set_stored(self, key: bytes, end_ms: int, stored: bytes | None) -> None:
        self._segments.advance(end_ms)
        segment_id = self._segments.id_of(end_ms)
        self._inner.put(segment_prefix(segment_id) + key, stored)
        if stored is not None:
            self._segments.note_use(segment_id)

    def read_only(self) -> ReadOnlySessionStore[K, A]:
        """Return a view of the store that has its methods to read, and no other ones."""
        return ReadOnlySessionStore(self._parts)


class ReadOnlySessionStoreWithHeaders(ReadOnlySessionStore[K, AggregationWithHeaders[A]]):
    """Aggregates with headers by key and session, which can only be read."""


class SessionStoreWithHeaders(
    SessionStore[K, AggregationWithHeaders[A]], ReadOnlySessionStoreWithHeaders[K, A], HeadersBytesStore
):
    """Aggregates by key and session, each with the headers it was written with."""

    value_format = StoreFormat.WITH_HEADERS

    def put_value(self, session: Windowed, aggregate: A | None, *, headers: Headers | None = None) -> None:
        """Put an aggregate with the headers of the record that is being processed, unless they are given.

        An aggregate of None removes the session. To write no headers, give empty ones.
        """
        held = None if aggregate is None else AggregationWithHeaders(aggregate, self._headers_to_put(headers))
        self.put(session, held)

    def read_only(self) -> ReadOnlySessionStoreWithHeaders[K, A]:
        """Return a view of the store that has its methods to read, and no other ones."""
        return ReadOnlySessionStoreWithHeaders(self._parts)
