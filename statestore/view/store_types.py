"""`QueryableStoreTypes`: what a store can be asked for as, in the names of Kafka Streams 4.3.

A type shows what its name says, also of a store that holds more. Kafka Streams has none for versioned stores.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.stores.facades import facade


class QueryableStoreType(NamedTuple):
    """A kind of store, and what is shown of what it holds."""

    name: str
    kind: StoreKind
    shown: StoreFormat

    def accepts(self, spec: StoreSpec) -> bool:
        """Return whether a store can be shown so. Source: Kafka's QueryableStoreType."""
        if spec.kind is not self.kind:
            return False
        return spec.format is self.shown or facade(spec.format, self.shown) is not None


class QueryableStoreTypes:
    """What `StateView.store` can be asked for. A store of another kind, or that holds less, is refused."""

    @staticmethod
    def key_value_store() -> QueryableStoreType:
        """Return the type of key-value stores, which shows plain values."""
        return QueryableStoreType("key_value_store", StoreKind.KEY_VALUE, StoreFormat.PLAIN)

    @staticmethod
    def timestamped_key_value_store() -> QueryableStoreType:
        """Return the type of key-value stores with timestamps, which shows ValueAndTimestamp."""
        return QueryableStoreType("timestamped_key_value_store", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)

    @staticmethod
    def timestamped_key_value_store_with_headers() -> QueryableStoreType:
        """Return the type of key-value stores with timestamps and headers, which shows ValueTimestampHeaders."""
        shown = StoreFormat.TIMESTAMPED_WITH_HEADERS
        return QueryableStoreType("timestamped_key_value_store_with_headers", StoreKind.KEY_VALUE, shown)

    @staticmethod
    def window_store() -> QueryableStoreType:
        """Return the type of window stores, which shows plain values."""
        return QueryableStoreType("window_store", StoreKind.WINDOW, StoreFormat.PLAIN)

    @staticmethod
    def timestamped_window_store() -> QueryableStoreType:
        """Return the type of window stores with timestamps, which shows ValueAndTimestamp."""
        return QueryableStoreType("timestamped_window_store", StoreKind.WINDOW, StoreFormat.TIMESTAMPED)

    @staticmethod
    def timestamped_window_store_with_headers() -> QueryableStoreType:
        """Return the type of window stores with timestamps and headers, which shows ValueTimestampHeaders."""
        shown = StoreFormat.TIMESTAMPED_WITH_HEADERS
        return QueryableStoreType("timestamped_window_store_with_headers", StoreKind.WINDOW, shown)

    @staticmethod
    def session_store() -> QueryableStoreType:
        """Return the type of session stores, which shows plain aggregates."""
        return QueryableStoreType("session_store", StoreKind.SESSION, StoreFormat.PLAIN)

    @staticmethod
    def session_store_with_headers() -> QueryableStoreType:
        """Return the type of session stores with headers, which shows AggregationWithHeaders."""
        return QueryableStoreType("session_store_with_headers", StoreKind.SESSION, StoreFormat.WITH_HEADERS)
