"""Suppliers and builders: what a user says of a store, and the one place that stacks it. Source: Kafka's Stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.format.serde import Serde
from statestore.format.store_format import StoreFormat
from statestore.stores.key_value import TimestampedKeyValueStoreWithHeaders

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class KeyValueBytesStoreSupplier:
    """Where and in which format a key-value store keeps its bytes."""

    spec: StoreSpec


@dataclass(frozen=True)
class StoreBuilder(Generic[K, V]):
    """Describes a store and builds it over the bytes that a driver provides."""

    supplier: KeyValueBytesStoreSupplier
    key_serde: Serde[K]
    value_serde: Serde[V]

    @property
    def name(self) -> str:
        """The store's name."""
        return self.supplier.spec.name

    @property
    def spec(self) -> StoreSpec:
        """What is recorded of the store."""
        return self.supplier.spec

    def build(self, inner: ByteStore) -> TimestampedKeyValueStoreWithHeaders[K, V]:
        """Return the typed store over `inner`."""
        return TimestampedKeyValueStoreWithHeaders(inner, self.key_serde, self.value_serde)


class Stores:
    """Factories for suppliers and builders, named as in Kafka Streams."""

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> KeyValueBytesStoreSupplier:
        """Return a supplier of a RocksDB store that keeps a timestamp and headers with each value.

        Raises ValueError if `name` is not a legal Kafka name.
        """
        return KeyValueBytesStoreSupplier(StoreSpec(name, StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS))

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: KeyValueBytesStoreSupplier, key_serde: Serde[K], value_serde: Serde[V]
    ) -> StoreBuilder[K, V]:
        """Return a builder of a timestamped key-value store with headers. Raises TypeError on wrong arguments."""
        _require("supplier", supplier, KeyValueBytesStoreSupplier)
        _require("key_serde", key_serde, Serde)
        _require("value_serde", value_serde, Serde)
        return StoreBuilder(supplier, key_serde, value_serde)


def _require(parameter: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{parameter} must be a {kind.__name__}, not {value!r}")
