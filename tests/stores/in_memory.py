"""Stores in memory, of every kind, for tests of what they make of nonsense."""

from collections.abc import Callable
from typing import Any

from statestore import (
    AggregationWithHeaders,
    Headers,
    Serde,
    Serdes,
    StoreBuilder,
    Stores,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.bytestore.engines.memory import MemoryDatabase

MAX_MS = 2**63 - 1
NAME = "store"
HEADERS = Headers([("h", b"1")])
BYTES = (Serdes.bytes(), Serdes.bytes())

IN_MEMORY = {
    "key-value": Stores.in_memory_key_value_store(NAME),
    "window": Stores.in_memory_window_store(NAME, 100, 10, segment_interval=50),
    "session": Stores.in_memory_session_store(NAME, 100, 50),
    "versioned": Stores.in_memory_versioned_key_value_store(NAME, 100, 50),
}
BUILDERS: dict[str, tuple[Callable[..., StoreBuilder[Any]], str]] = {
    "plain": (Stores.key_value_store_builder, "key-value"),
    "timestamped": (Stores.timestamped_key_value_store_builder, "key-value"),
    "with headers": (Stores.timestamped_key_value_store_with_headers_builder, "key-value"),
    "windows": (Stores.timestamped_window_store_with_headers_builder, "window"),
    "plain windows": (Stores.window_store_builder, "window"),
    "sessions": (Stores.session_store_with_headers_builder, "session"),
    "plain sessions": (Stores.session_store_builder, "session"),
    "versions": (Stores.versioned_key_value_store_with_headers_builder, "versioned"),
    "plain versions": (Stores.versioned_key_value_store_builder, "versioned"),
}


def builder(kind: str, serdes: tuple[Serde[Any], Serde[Any]] = BYTES) -> StoreBuilder[Any]:
    build, supplier = BUILDERS[kind]
    return build(IN_MEMORY[supplier], *serdes)


def store_of(kind: str, entries: dict[bytes, bytes] | None = None, serdes: Any = BYTES) -> Any:
    """Return a store in memory, over bytes that may be anything."""
    family = MemoryDatabase([NAME]).family(NAME)
    family.write((entries or {}).items())
    return builder(kind, serdes).build(family)


GOOD = {
    "plain": b"v",
    "timestamped": ValueAndTimestamp(b"v", 1),
    "with headers": ValueTimestampHeaders(b"v", 1, HEADERS),
    "windows": ValueTimestampHeaders(b"v", 1, HEADERS),
    "plain windows": b"v",
    "sessions": AggregationWithHeaders(b"v", HEADERS),
    "plain sessions": b"v",
    "plain versions": b"v",
    "versions": b"v",
}


def put(kind: str, store: Any, key: Any, value: Any, time_ms: Any = 10) -> None:
    if "sessions" in kind:
        store.put(Windowed(key, time_ms, time_ms), value)
    else:
        store.put(key, value, *() if kind in ("plain", "timestamped", "with headers") else (time_ms,))


def content(kind: str, store: Any) -> list[Any]:
    if "versions" in kind:
        return [found for found in (store.get(b"k"), store.get(b"new")) if found is not None]
    return list(store.fetch(None, None) if "sessions" in kind else store.all())
