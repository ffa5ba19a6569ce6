"""`Stores`: the factories of suppliers and builders, named as in Kafka Streams 4.3 and KIP-1271.

Time spans are timedeltas, or ints of milliseconds. Suppliers raise ValueError, naming the parameter, for illegal names,
negative time spans, a retention shorter than the window and segments of no length. Builders raise TypeError for
arguments of the wrong type, and ValueError for a supplier whose format is not the builder's: Kafka takes some of them,
and loses headers or writes values that can't be read back.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.serde import Serde
from statestore.format.values.store_format import StoreFormat
from statestore.stores.builder import StoreBuilder
from statestore.stores.key_value import KeyValueStore, TimestampedKeyValueStore, TimestampedKeyValueStoreWithHeaders
from statestore.stores.session import SessionStore, SessionStoreWithHeaders
from statestore.stores.supplier import (
    BytesStoreSupplier,
    Duration,
    KeyValueBytesStoreSupplier,
    SessionBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
    segmented,
    window_supplier,
)
from statestore.stores.typed_store import TypedStore
from statestore.stores.versioned import VersionedKeyValueStore, VersionedKeyValueStoreWithHeaders
from statestore.stores.window import TimestampedWindowStore, TimestampedWindowStoreWithHeaders, WindowStore

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=TypedStore)

_SUPPLIERS: Final = {
    supplier_class.kind: supplier_class
    for supplier_class in (
        KeyValueBytesStoreSupplier,
        VersionedBytesStoreSupplier,
        WindowBytesStoreSupplier,
        SessionBytesStoreSupplier,
    )
}


class Stores:
    """Factories for suppliers and builders of state stores."""

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return a supplier of a RocksDB store of plain values."""
        return KeyValueBytesStoreSupplier(name, StoreFormat.PLAIN, True)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return a supplier of a RocksDB store that keeps a timestamp with each value."""
        return KeyValueBytesStoreSupplier(name, StoreFormat.TIMESTAMPED, True)

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> KeyValueBytesStoreSupplier:
        """Return a supplier of a RocksDB store that keeps a timestamp and headers with each value."""
        return KeyValueBytesStoreSupplier(name, StoreFormat.TIMESTAMPED_WITH_HEADERS, True)

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueBytesStoreSupplier:
        """Return a supplier of a key-value store in memory, for every kind of key-value builder."""
        return KeyValueBytesStoreSupplier(name, None, False)

    @staticmethod
    def persistent_versioned_key_value_store(
        name: str, history_retention: Duration, segment_interval: Duration | None = None
    ) -> VersionedBytesStoreSupplier:
        """Return a supplier of a RocksDB store that keeps old versions for `history_retention`."""
        return segmented(VersionedBytesStoreSupplier, name, StoreFormat.PLAIN, history_retention, segment_interval)

    @staticmethod
    def persistent_versioned_key_value_store_with_headers(
        name: str, history_retention: Duration, segment_interval: Duration | None = None
    ) -> VersionedBytesStoreSupplier:
        """Return a supplier of a RocksDB store that keeps old versions, each with its headers."""
        return segmented(
            VersionedBytesStoreSupplier, name, StoreFormat.WITH_HEADERS, history_retention, segment_interval
        )

    @staticmethod
    def in_memory_versioned_key_value_store(
        name: str, history_retention: Duration, segment_interval: Duration | None = None
    ) -> VersionedBytesStoreSupplier:
        """Return a supplier of a versioned store in memory, for both versioned builders. Kafka has none."""
        return segmented(VersionedBytesStoreSupplier, name, None, history_retention, segment_interval)

    @staticmethod
    def persistent_window_store(
        name: str,
        retention_period: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        segment_interval: Duration | None = None,
    ) -> WindowBytesStoreSupplier:
        """Return a supplier of a RocksDB window store of plain values."""
        sizes = retention_period, window_size, retain_duplicates, segment_interval
        return window_supplier(name, StoreFormat.PLAIN, *sizes)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str,
        retention_period: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        segment_interval: Duration | None = None,
    ) -> WindowBytesStoreSupplier:
        """Return a supplier of a RocksDB window store that keeps a timestamp with each value."""
        sizes = retention_period, window_size, retain_duplicates, segment_interval
        return window_supplier(name, StoreFormat.TIMESTAMPED, *sizes)

    @staticmethod
    def persistent_timestamped_window_store_with_headers(
        name: str,
        retention_period: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        segment_interval: Duration | None = None,
    ) -> WindowBytesStoreSupplier:
        """Return a supplier of a RocksDB window store that keeps a timestamp and headers with each value."""
        sizes = retention_period, window_size, retain_duplicates, segment_interval
        return window_supplier(name, StoreFormat.TIMESTAMPED_WITH_HEADERS, *sizes)

    @staticmethod
    def in_memory_window_store(
        name: str,
        retention_period: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        segment_interval: Duration | None = None,
    ) -> WindowBytesStoreSupplier:
        """Return a supplier of a window store in memory, for every kind of window builder."""
        return window_supplier(name, None, retention_period, window_size, retain_duplicates, segment_interval)

    @staticmethod
    def persistent_session_store(
        name: str, retention_period: Duration, segment_interval: Duration | None = None
    ) -> SessionBytesStoreSupplier:
        """Return a supplier of a RocksDB session store of plain aggregates."""
        return segmented(SessionBytesStoreSupplier, name, StoreFormat.PLAIN, retention_period, segment_interval)

    @staticmethod
    def persistent_session_store_with_headers(
        name: str, retention_period: Duration, segment_interval: Duration | None = None
    ) -> SessionBytesStoreSupplier:
        """Return a supplier of a RocksDB session store that keeps headers with each aggregate."""
        return segmented(SessionBytesStoreSupplier, name, StoreFormat.WITH_HEADERS, retention_period, segment_interval)

    @staticmethod
    def in_memory_session_store(
        name: str, retention_period: Duration, segment_interval: Duration | None = None
    ) -> SessionBytesStoreSupplier:
        """Return a supplier of a session store in memory, for both session builders."""
        return segmented(SessionBytesStoreSupplier, name, None, retention_period, segment_interval)

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """Return a builder of a key-value store of plain values."""
        return _builder(supplier, KeyValueStore, key_serde, value_serde)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[TimestampedKeyValueStore[K, V]]:
        """Return a builder of a timestamped key-value store."""
        return _builder(supplier, TimestampedKeyValueStore, key_serde, value_serde)

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[TimestampedKeyValueStoreWithHeaders[K, V]]:
        """Return a builder of a timestamped key-value store with headers."""
        return _builder(supplier, TimestampedKeyValueStoreWithHeaders, key_serde, value_serde)

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: VersionedBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[VersionedKeyValueStore[K, V]]:
        """Return a builder of a versioned key-value store."""
        return _builder(supplier, VersionedKeyValueStore, key_serde, value_serde)

    @staticmethod
    def versioned_key_value_store_with_headers_builder(
        supplier: VersionedBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[VersionedKeyValueStoreWithHeaders[K, V]]:
        """Return a builder of a versioned key-value store with headers. The name is KIP-1271's."""
        return _builder(supplier, VersionedKeyValueStoreWithHeaders, key_serde, value_serde)

    versioned_key_value_store_builder_with_headers = versioned_key_value_store_with_headers_builder
    """The name that Kafka's trunk gives it."""

    @staticmethod
    def window_store_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[WindowStore[K, V]]:
        """Return a builder of a window store of plain values."""
        return _builder(supplier, WindowStore, key_serde, value_serde)

    @staticmethod
    def timestamped_window_store_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[TimestampedWindowStore[K, V]]:
        """Return a builder of a timestamped window store."""
        return _builder(supplier, TimestampedWindowStore, key_serde, value_serde)

    @staticmethod
    def timestamped_window_store_with_headers_builder(
        supplier: WindowBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[TimestampedWindowStoreWithHeaders[K, V]]:
        """Return a builder of a timestamped window store with headers."""
        return _builder(supplier, TimestampedWindowStoreWithHeaders, key_serde, value_serde)

    @staticmethod
    def session_store_builder(
        supplier: SessionBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[SessionStore[K, V]]:
        """Return a builder of a session store of plain aggregates."""
        return _builder(supplier, SessionStore, key_serde, value_serde)

    @staticmethod
    def session_store_with_headers_builder(
        supplier: SessionBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[SessionStoreWithHeaders[K, V]]:
        """Return a builder of a session store with headers."""
        return _builder(supplier, SessionStoreWithHeaders, key_serde, value_serde)


def _builder(
    supplier: BytesStoreSupplier, store_class: type[S], key_serde: Serde[Any], value_serde: Serde[Any]
) -> StoreBuilder[S]:
    store_format = store_class.value_format
    _require("supplier", supplier, _SUPPLIERS[store_class.kind])
    _require("key_serde", key_serde, Serde)
    _require("value_serde", value_serde, Serde)
    if supplier.format not in (None, store_format):
        raise ValueError(
            f"supplier of store {supplier.name!r} is of format {supplier.format.describe()}, the builder's is "
            f"{store_format.describe()}: take the supplier and the builder of the same kind of store"
        )
    return StoreBuilder(supplier, store_class, key_serde, value_serde)


_STORE_CLASSES: Final[dict[tuple[StoreKind, StoreFormat], type[TypedStore]]] = {
    (store_class.kind, store_class.value_format): store_class
    for store_class in (
        KeyValueStore,
        TimestampedKeyValueStore,
        TimestampedKeyValueStoreWithHeaders,
        VersionedKeyValueStore,
        VersionedKeyValueStoreWithHeaders,
        WindowStore,
        TimestampedWindowStore,
        TimestampedWindowStoreWithHeaders,
        SessionStore,
        SessionStoreWithHeaders,
    )
}


def recorded_store_builder(spec: StoreSpec, key_serde: Serde[Any], value_serde: Serde[Any]) -> StoreBuilder[TypedStore]:
    """Return a builder of a store as it is recorded."""
    sizes = spec.retention_ms, spec.segment_interval_ms, spec.window_size_ms, spec.retain_duplicates
    supplier = _SUPPLIERS[spec.kind](spec.name, spec.format, True, *sizes)
    builder = _builder(supplier, store_class_of(spec.kind, spec.format), key_serde, value_serde)
    return builder.with_header_index(*spec.indexed_headers) if spec.indexed_headers else builder


def store_class_of(kind: StoreKind, store_format: StoreFormat) -> type[TypedStore]:
    """Return the class of stores of a kind in a format. Raises KeyError if the kind has no such format."""
    return _STORE_CLASSES[kind, store_format]


def _require(parameter: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{parameter} must be a {kind.__name__}, not {value!r}")
