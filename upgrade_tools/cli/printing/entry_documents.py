"""What a store holds as JSON: keys, values and header values in lower-case hex, times as integers of milliseconds.

    {"kind": str, "store": str, "committedOffset": int | null, "position": {topic: {partition: offset}},
     "entries": [...]}

    key-value   {"key", "value", "timestamp", "headers"}
    window      {"key", "start", "end", "value", "timestamp", "headers"}, session likewise, without a timestamp
    versioned   {"key", "latest": version | null, "versions": [{"value", "timestamp", "validTo", "headers"}, ...]}

`timestamp` and `headers` are there if the kind has them; headers are [[key, value | null], ...] in their order. `end`
of a window is exclusive, of a session inclusive. Versions are oldest first and include `latest`, whose `validTo` is
null. With `--key-as` and `--value-as`, keys and values are what they are read as.
"""

from __future__ import annotations

from typing import Any

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.records.header_bytes import decode_headers
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding, in_document
from upgrade_tools.rows.selection import Found

Document = dict[str, Any]


def document_of(
    spec: StoreSpec, found: Found, *, with_headers: bool = True, encoding: EntryEncoding = AS_FOUND
) -> Document:
    """Return what was found for a key, as an entry of the list.

    Raises FormatError for its headers, DeserializationError for bytes that `encoding` can't read.
    """
    documents = [entry_fields(spec, entry, with_headers=with_headers, encoding=encoding) for entry in found.entries]
    if not LAYOUTS[spec.kind].keeps_versions:
        return documents[0]
    has_latest = bool(found.entries) and found.entries[-1].end_ms is None
    key = in_document(found.key, encoding.key)
    return {"key": key, "latest": documents[-1] if has_latest else None, "versions": documents}


def entry_fields(
    spec: StoreSpec, entry: StoredEntry, *, with_headers: bool = True, encoding: EntryEncoding = AS_FOUND
) -> Document:
    """Return one entry, or one version without its key. Raises FormatError, DeserializationError."""
    document: Document = {}
    value = in_document(entry.value, encoding.value)
    if LAYOUTS[spec.kind].keeps_versions:
        document.update(value=value, timestamp=entry.start_ms, validTo=entry.end_ms)
    else:
        document["key"] = in_document(entry.key, encoding.key)
        if entry.start_ms is not None:
            document.update(start=entry.start_ms, end=entry.end_ms)
        document["value"] = value
    if entry.timestamp_ms is not None:
        document["timestamp"] = entry.timestamp_ms
    if with_headers and entry.header_bytes is not None:
        document["headers"] = headers_document(entry.header_bytes)
    return document


def headers_document(header_bytes: bytes) -> list[list[str | None]]:
    """Return headers as pairs of key and value in hex. Raises FormatError."""
    return [[key, None if value is None else value.hex()] for key, value in decode_headers(header_bytes)]
