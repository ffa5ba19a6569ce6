"""Typed stores on Kafka Streams' task directories: what they write, they read back, and real Kafka Streams does too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore import (
    AggregationWithHeaders,
    Headers,
    Serdes,
    Stores,
    TaskDirectory,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.stores.builder import StoreBuilder
from tests.support.golden.task_directories import APPLICATION, HISTORY_MS, KINDS, RETENTION_MS, SEGMENT_MS, WINDOW_MS
from tests.support.java.reader import ReadRequest, read_with_kafka_streams

BYTES = Serdes.bytes()
HEADERS = Headers([("trace", b"\x00\xff"), ("trace", None), ("ключ", b"")])
TIMES = (190_000, 130_000, 205_000, 260_000)
WINDOW = ("store", RETENTION_MS, WINDOW_MS)


def builders() -> dict[str, StoreBuilder[Any]]:
    """Return a builder for each of KINDS."""
    suppliers: dict[str, tuple[Any, Any]] = {
        "kv": (Stores.key_value_store_builder, Stores.persistent_key_value_store("store")),
        "ts-kv": (Stores.timestamped_key_value_store_builder, Stores.persistent_timestamped_key_value_store("store")),
        "headers-kv": (
            Stores.timestamped_key_value_store_with_headers_builder,
            Stores.persistent_timestamped_key_value_store_with_headers("store"),
        ),
        "window": (Stores.window_store_builder, Stores.persistent_window_store(*WINDOW)),
        "window-dup": (Stores.window_store_builder, Stores.persistent_window_store(*WINDOW, True)),
        "ts-window": (Stores.timestamped_window_store_builder, Stores.persistent_timestamped_window_store(*WINDOW)),
        "headers-window": (
            Stores.timestamped_window_store_with_headers_builder,
            Stores.persistent_timestamped_window_store_with_headers(*WINDOW),
        ),
        "headers-window-dup": (
            Stores.timestamped_window_store_with_headers_builder,
            Stores.persistent_timestamped_window_store_with_headers(*WINDOW, True),
        ),
        "session": (Stores.session_store_builder, Stores.persistent_session_store("store", RETENTION_MS)),
        "headers-session": (
            Stores.session_store_with_headers_builder,
            Stores.persistent_session_store_with_headers("store", RETENTION_MS),
        ),
        "versioned": (
            Stores.versioned_key_value_store_builder,
            Stores.persistent_versioned_key_value_store("store", HISTORY_MS, SEGMENT_MS),
        ),
    }
    return {kind: make(supplier, BYTES, BYTES) for kind, (make, supplier) in suppliers.items()}


def held(kind: str, value: bytes, time_ms: int) -> Any:
    """Return what a store of this kind holds of a value."""
    if kind == "headers-session":
        return AggregationWithHeaders(value, HEADERS)
    if kind.startswith("headers"):
        return ValueTimestampHeaders(value, time_ms, HEADERS)
    return ValueAndTimestamp(value, time_ms) if kind.startswith("ts") else value


def fill(kind: str, store: Any) -> None:
    """Put, replace, delete; the last time lets the first segment of windows and sessions expire."""
    for number, time_ms in enumerate(TIMES):
        for key in (b"", b"k", b"k\0"):
            value = held(kind, b"%d" % number, time_ms)
            if kind == "versioned":
                store.put(key, value, time_ms)
            elif kind.endswith("session"):
                store.put(Windowed(key, time_ms - 7, time_ms), value)
            elif "window" in kind:
                store.put(key, value, time_ms)
                store.put(key, value, time_ms)
            else:
                store.put(key + b"%d" % number, value)
    if kind == "versioned":
        store.delete(b"k", 270_000)
    elif kind.endswith("session"):
        store.remove(Windowed(b"k", 189_993, 190_000))
    elif kind.endswith("window"):
        store.put(b"k", None, 190_000)
    elif kind.endswith("kv"):
        store.delete(b"k0")


def entries(kind: str, store: Any) -> list[dict[str, Any]]:
    """Return what the store shows, in the terms of the checker."""
    if kind == "versioned":
        return [
            {
                "key": key.hex(),
                "latest": shown(store.get(key)),
                "versions": [shown(version) for version in store.get(key, 0, 2**62)][::-1],
            }
            for key in (b"", b"k", b"k\0")
        ]
    found = store.fetch(None, None) if kind.endswith("session") else store.all()
    return [{**shown_key(key), **(shown(value) or {})} for key, value in found]


def shown_key(key: Any) -> dict[str, Any]:
    if isinstance(key, Windowed):
        return {"key": key.key.hex(), "start": key.start_ms, "end": key.end_ms}
    return {"key": key.hex()}


def shown(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return {"value": value.hex()}
    if isinstance(value, AggregationWithHeaders):
        return {"value": value.aggregation.hex(), "headers": shown_headers(value.headers)}
    found = {"value": value.value.hex(), "timestamp": value.timestamp_ms}
    if hasattr(value, "valid_to_ms"):  # of a store without headers: Kafka Streams has no other
        return {**found, "validTo": value.valid_to_ms}
    return {**found, "headers": shown_headers(value.headers)} if hasattr(value, "headers") else found


def shown_headers(headers: Headers) -> list[list[str | None]]:
    return [[key, None if value is None else value.hex()] for key, value in headers]


@pytest.mark.usefixtures("java")
def test_kafka_streams_reads_what_typed_stores_wrote(tmp_path: Path) -> None:
    requests, wanted = [], []
    for kind, builder in builders().items():
        path = tmp_path / kind
        with TaskDirectory(path, APPLICATION) as directory:
            fill(kind, builder.build(directory.open_store(builder.spec)))
        with TaskDirectory(path, APPLICATION) as directory:
            reopened = builder.build(directory.open_store(builder.spec))
            wanted.append(entries(kind, reopened))
        requests.append(ReadRequest(path, kind))
    assert list(builders()) == list(KINDS)
    for (kind, mine), answer in zip(zip(KINDS, wanted, strict=True), read_with_kafka_streams(requests), strict=True):
        assert len(mine) >= 3
        assert answer.get("error") is None, (kind, answer["error"])
        assert answer["entries"] == mine, kind
