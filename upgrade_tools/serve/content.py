"""Bytes as they stand in answers.

    {"text": str, "size": int}      UTF-8; or "hex", where it is not text
    "as": str                       the serde that made the text
    "cut": true                     only the beginning is here; `size` is of the whole
    "id": str                       of a key: its bytes in hex, by which requests name it; long keys have none

Texts may hold control characters: who shows them must escape them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.errors import DeserializationError
from statestore.format.records.header_bytes import decode_headers
from statestore.format.serde import STANDARD_SERDES
from upgrade_tools.rows.entry_encoding import EntryEncoding

CUT_BYTES: Final = 512
WHOLE_BYTES: Final = 1 << 20
_LONGEST_ID_BYTES: Final = 2_048
_IN_TEXT: Final = ("string", "json")

Document = dict[str, Any]


def content(data: bytes | None, encoding: str | None = None, limit: int = CUT_BYTES) -> Document | None:
    """Return bytes as the serde reads them, or as text or hex; beyond `limit` bytes only the beginning."""
    if data is None:
        return None
    is_cut = len(data) > limit
    shown: Document = {"size": len(data), **({"cut": True} if is_cut else {})}
    if encoding not in (None, "bytes", *_IN_TEXT) and not is_cut:
        try:
            value = STANDARD_SERDES[encoding].deserialize(data)
        except DeserializationError:
            pass
        else:
            return {"text": value if isinstance(value, str) else json.dumps(value), "as": encoding, **shown}
    if encoding != "bytes":
        text = _text(data[:limit], is_cut)
        if text is not None:
            return {"text": text, **shown}
    return {"hex": data[:limit].hex(), **shown}


def _text(data: bytes, is_cut: bool) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        # A cut may go through the middle of a character.
        if is_cut and problem.reason == "unexpected end of data" and problem.end == len(data) and problem.start:
            return data[: problem.start].decode()
        return None


def key_content(key: bytes, encoding: str | None = None, limit: int = CUT_BYTES) -> Document:
    """Return a key, with the text by which it can be asked for."""
    shown = content(key, encoding, limit)
    assert shown is not None
    if len(key) <= _LONGEST_ID_BYTES:
        shown["id"] = key.hex() or "0x"  # an empty parameter counts as missing
    return shown


def headers_content(header_bytes: bytes | None, limit: int = CUT_BYTES) -> list[Document]:
    """Return headers in their order. Raises FormatError."""
    if not header_bytes:
        return []
    return [
        {"key": key if len(key) <= limit else f"{key[:limit]}...", "value": content(value, None, limit)}
        for key, value in decode_headers(header_bytes)
    ]


def entry_content(shard: int, entry: StoredEntry, encoding: EntryEncoding, limit: int = CUT_BYTES) -> Document:
    """Return an entry, or one version, without the fields that its kind lacks. Raises FormatError."""
    document: Document = {"shard": shard, "key": key_content(entry.key, encoding.key, limit)}
    if entry.start_ms is not None:
        document.update(start=entry.start_ms, end=entry.end_ms)
    document["value"] = content(entry.value, encoding.value, limit)
    if entry.timestamp_ms is not None:
        document["timestamp"] = entry.timestamp_ms
    if entry.header_bytes is not None:
        document.update(headers=headers_content(entry.header_bytes, limit), headerBytes=len(entry.header_bytes))
    return document
