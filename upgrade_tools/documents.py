"""What a store holds as JSON: keys, values and header values in lower-case hex, times as integers of milliseconds.

    {"kind": str, "store": str, "committedOffset": int | null, "position": {topic: {partition: offset}},
     "entries": [...]}

    key-value   {"key", "value", "timestamp", "headers"}
    window      {"key", "start", "end", "value", "timestamp", "headers"}, session likewise, without a timestamp
    versioned   {"key", "latest": version | null, "versions": [{"value", "timestamp", "validTo", "headers"}, ...]}

`timestamp` and `headers` are there if the kind has them; headers are [[key, value | null], ...] in their order. `end`
of a window is exclusive, that of a session inclusive. Versions are oldest first, `latest` is among them, its `validTo`
is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.format.header_bytes import parse_headers
from statestore.format.store_format import StoreFormat
from statestore.format.stored_value import split_stored
from statestore.recovery.contents import StoredEntry, stored_entries
from statestore.recovery.logical_writes import intervals_by_key
from upgrade_tools.states import OpenStore

Document = dict[str, Any]


def entry_documents(store: OpenStore) -> Iterator[Document]:
    """Yield the entries of a store in the order of its bytes, of a versioned store in that of its keys.

    Raises FormatError for bytes that are not of the store's kind and format.
    """
    if store.spec.kind is StoreKind.VERSIONED:
        return _versioned(store)
    return (entry_document(store.spec, entry) for entry in stored_entries(store.spec, store.bytes))


def entry_document(spec: StoreSpec, entry: StoredEntry) -> Document:
    """Return one entry of a store that is not versioned."""
    document: Document = {"key": entry.key.hex()}
    if entry.start_ms is not None:
        document.update(start=entry.start_ms, end=entry.end_ms)
    document["value"] = entry.value.hex()
    if spec.format in (StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS):
        document["timestamp"] = entry.timestamp_ms
    if entry.header_bytes is not None:
        document["headers"] = headers_document(entry.header_bytes)
    return document


def headers_document(header_bytes: bytes) -> list[list[str | None]]:
    """Return headers as pairs of key and value in hex. Raises FormatError."""
    return [[key, None if value is None else value.hex()] for key, value in parse_headers(header_bytes)]


def _versioned(store: OpenStore) -> Iterator[Document]:
    for key, intervals in intervals_by_key(store.spec, store.bytes):
        versions = []
        latest = None
        for interval in intervals:
            if interval.stored is None:
                continue
            parts = split_stored(store.spec.format, interval.stored)
            version: Document = {
                "value": parts.value.hex(),
                "timestamp": interval.valid_from_ms,
                "validTo": interval.valid_to_ms,
            }
            if parts.header_bytes is not None:
                version["headers"] = headers_document(parts.header_bytes)
            versions.append(version)
            if interval.valid_to_ms is None:
                latest = version
        # A key of which only a tombstone is left has no version.
        yield {"key": key.hex(), "latest": latest, "versions": versions}
