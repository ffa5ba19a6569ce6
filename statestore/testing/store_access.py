"""The stores of a test driver as a test asks for them: as they are, or with less than they hold.

An accessor that knows no timestamps or headers gives a facade over a store that has them: the same store class on the
same bytes, whose codec leaves them out on the way to the test, and fills them in on the way back. Source: Kafka's
TopologyTestDriver.get*Store and its *StoreFacade classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.stores.facades import facade
from statestore.stores.key_value import KeyValueStore, TimestampedKeyValueStore, TimestampedKeyValueStoreWithHeaders
from statestore.stores.session import SessionStore, SessionStoreWithHeaders
from statestore.stores.typed_store import TypedStore
from statestore.stores.versioned import VersionedKeyValueStore, VersionedKeyValueStoreWithHeaders
from statestore.stores.window import TimestampedWindowStore, TimestampedWindowStoreWithHeaders, WindowStore

S = TypeVar("S", bound=TypedStore)


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
        shown = facade(spec.format, store_class.value_format)
        return None if shown is None else store.with_codec(store_class, shown)
