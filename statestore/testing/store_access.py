"""The stores of a test driver as a test asks for them: as they are, or with less than they hold.

An accessor that knows no timestamps or headers gives a facade over a store that has them: the same store class on the
same bytes, whose codec leaves them out on the way to the test, and fills them in on the way back. Source: Kafka's
TopologyTestDriver.get*Store and its *StoreFacade classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_headers import Headers
from statestore.stores.codec import ValueCodec
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.key_value import KeyValueStore, TimestampedKeyValueStore, TimestampedKeyValueStoreWithHeaders
from statestore.stores.session import SessionStore, SessionStoreWithHeaders
from statestore.stores.typed_store import TypedStore
from statestore.stores.versioned import VersionedKeyValueStore, VersionedKeyValueStoreWithHeaders
from statestore.stores.window import TimestampedWindowStore, TimestampedWindowStoreWithHeaders, WindowStore

S = TypeVar("S", bound=TypedStore)

_PLAIN, _TIMED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED
_TIMED_HEADERS, _HEADERS = StoreFormat.TIMESTAMPED_WITH_HEADERS, StoreFormat.WITH_HEADERS
_NO_TIMESTAMP: Final = -1


class _Mapping(NamedTuple):
    """How a facade converts what its store holds, and what it is given to put; None stays None."""

    shown: Callable[[Any], Any]
    held: Callable[[Any], Any]


_MAPPINGS: Final[dict[tuple[StoreFormat, StoreFormat], _Mapping]] = {
    (_TIMED, _PLAIN): _Mapping(lambda held: held.value, lambda value: ValueAndTimestamp(value, _NO_TIMESTAMP)),
    (_TIMED_HEADERS, _PLAIN): _Mapping(
        lambda held: held.value, lambda value: ValueTimestampHeaders(value, _NO_TIMESTAMP, Headers())
    ),
    (_TIMED_HEADERS, _TIMED): _Mapping(
        lambda held: ValueAndTimestamp(held.value, held.timestamp_ms),
        lambda shown: ValueTimestampHeaders(shown.value, shown.timestamp_ms, Headers()),
    ),
    (_HEADERS, _PLAIN): _Mapping(
        lambda held: held.aggregation, lambda aggregation: AggregationWithHeaders(aggregation, Headers())
    ),
}


class StoreAccess(ABC):
    """The accessors. Each gives None for an unknown store, and for one that is of another kind or holds less."""

    @abstractmethod
    def _store(self, name: str) -> tuple[TypedStore, StoreSpec] | None:
        """Return an open store with what is recorded of it, None if there is no such store."""

    def get_state_store(self, name: str) -> TypedStore | None:
        """Return a store as what it is, None if there is none of this name."""
        found = self._store(name)
        return None if found is None else found[0]

    def get_key_value_store(self, name: str) -> KeyValueStore[Any, Any] | None:
        """Return a key-value store of plain values; of a timestamped one a facade, which puts the timestamp -1."""
        return self._as(name, KeyValueStore)

    def get_timestamped_key_value_store(self, name: str) -> TimestampedKeyValueStore[Any, Any] | None:
        """Return a key-value store of ValueAndTimestamp; of one with headers a facade, which puts no headers."""
        return self._as(name, TimestampedKeyValueStore)

    def get_timestamped_key_value_store_with_headers(
        self, name: str
    ) -> TimestampedKeyValueStoreWithHeaders[Any, Any] | None:
        """Return a key-value store of ValueTimestampHeaders."""
        return self._as(name, TimestampedKeyValueStoreWithHeaders)

    def get_versioned_key_value_store(self, name: str) -> VersionedKeyValueStore[Any, Any] | None:
        """Return a versioned store of VersionedRecord; of one with headers a facade, which puts no headers."""
        return self._as(name, VersionedKeyValueStore)

    def get_versioned_key_value_store_with_headers(
        self, name: str
    ) -> VersionedKeyValueStoreWithHeaders[Any, Any] | None:
        """Return a versioned store of VersionedRecordWithHeaders."""
        return self._as(name, VersionedKeyValueStoreWithHeaders)

    def get_window_store(self, name: str) -> WindowStore[Any, Any] | None:
        """Return a window store of plain values; of a timestamped one a facade, which puts the timestamp -1."""
        return self._as(name, WindowStore)

    def get_timestamped_window_store(self, name: str) -> TimestampedWindowStore[Any, Any] | None:
        """Return a window store of ValueAndTimestamp; of one with headers a facade, which puts no headers."""
        return self._as(name, TimestampedWindowStore)

    def get_timestamped_window_store_with_headers(
        self, name: str
    ) -> TimestampedWindowStoreWithHeaders[Any, Any] | None:
        """Return a window store of ValueTimestampHeaders."""
        return self._as(name, TimestampedWindowStoreWithHeaders)

    def get_session_store(self, name: str) -> SessionStore[Any, Any] | None:
        """Return a session store of plain aggregates; of one with headers a facade, which puts no headers."""
        return self._as(name, SessionStore)

    def get_session_store_with_headers(self, name: str) -> SessionStoreWithHeaders[Any, Any] | None:
        """Return a session store of AggregationWithHeaders."""
        return self._as(name, SessionStoreWithHeaders)

    def _as(self, name: str, store_class: type[S]) -> S | None:
        """Return a store as one of this class, None if it can't be: the store itself, or a facade."""
        found = self._store(name)
        if found is None or found[1].kind is not store_class.kind:
            return None
        store, spec = found
        if spec.format is store_class.value_format:
            assert isinstance(store, store_class)
            return store
        mapping = _MAPPINGS.get((spec.format, store_class.value_format))
        return None if mapping is None else store.with_codec(store_class, lambda codec: _map_codec(codec, mapping))


def _map_codec(codec: ValueCodec, mapping: _Mapping) -> ValueCodec:
    encode, decode = codec.encode, codec.decode
    encode_with_key, decode_with_headers = codec.encode_with_key, codec.decode_with_headers
    shown, held = mapping
    mapped = codec._replace(
        encode=lambda value: encode(None if value is None else held(value)),
        decode=lambda stored: shown(decode(stored)),
        decode_pairs=None,
    )
    if encode_with_key is None or decode_with_headers is None:
        return mapped

    def decode_shown_with_headers(stored: bytes) -> tuple[Any, Headers]:
        holder, headers = decode_with_headers(stored)
        return shown(holder), headers

    return mapped._replace(
        encode_with_key=lambda value, raw_key: encode_with_key(None if value is None else held(value), raw_key),
        decode_with_headers=decode_shown_with_headers,
    )
