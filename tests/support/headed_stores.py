"""Builders of stores with headers, in RocksDB, for topologies that have one of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statestore import Serde, StoreBuilder, Stores


@dataclass(frozen=True)
class HeadedStores:
    """Stores whose keys and values have the same serdes."""

    key: Serde[Any]
    value: Serde[Any]

    def key_value(self, name: str) -> StoreBuilder[Any]:
        """Return the builder of a key-value store."""
        supplier = Stores.persistent_timestamped_key_value_store_with_headers(name)
        return Stores.timestamped_key_value_store_with_headers_builder(supplier, self.key, self.value)

    def windows(self, name: str, retention_ms: int, size_ms: int, segment_ms: int | None = None) -> StoreBuilder[Any]:
        """Return the builder of a window store without duplicates."""
        spans = retention_ms, size_ms, False, segment_ms
        supplier = Stores.persistent_timestamped_window_store_with_headers(name, *spans)
        return Stores.timestamped_window_store_with_headers_builder(supplier, self.key, self.value)

    def sessions(self, name: str, retention_ms: int) -> StoreBuilder[Any]:
        """Return the builder of a session store."""
        supplier = Stores.persistent_session_store_with_headers(name, retention_ms)
        return Stores.session_store_with_headers_builder(supplier, self.key, self.value)

    def versions(self, name: str, history_ms: int, segment_ms: int | None = None) -> StoreBuilder[Any]:
        """Return the builder of a versioned store."""
        supplier = Stores.persistent_versioned_key_value_store_with_headers(name, history_ms, segment_ms)
        return Stores.versioned_key_value_store_with_headers_builder(supplier, self.key, self.value)
