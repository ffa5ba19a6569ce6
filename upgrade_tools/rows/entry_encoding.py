"""Keys and values, read by standard serdes as `--key-as` and `--value-as` say, for people and for scripts."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final, NamedTuple

from statestore.errors import DeserializationError
from statestore.format.byte_text import bytes_of, text_of
from statestore.format.serde import STANDARD_SERDES

_WRITTEN: Final = ("string", "json")
"""Encodings whose bytes are readable text."""
_SHOWN_BYTES: Final = 1_000
_BOOLEANS: Final = {"true": True, "false": False}


class EntryEncoding(NamedTuple):
    """Names of standard serdes for keys and values; None shows text as text, and is hex in documents."""

    key: str | None = None
    value: str | None = None


AS_FOUND: Final = EntryEncoding()


def shown(content: bytes, encoding: str | None) -> str:
    """Return bytes for people, as the serde reads them. Bytes that it can't read are shown with a remark."""
    if encoding is None:
        return text_of(content)
    if encoding == "bytes":
        return f"0x{content[:_SHOWN_BYTES].hex()}"
    try:
        value = STANDARD_SERDES[encoding].deserialize(content)
    except DeserializationError:
        return f"{text_of(content)} (no {encoding})"
    if encoding not in _WRITTEN:
        return json.dumps(value)
    text = content[:_SHOWN_BYTES].decode(errors="ignore")
    more = "" if len(content) <= _SHOWN_BYTES else f"...({len(content)} bytes)"
    return (text if text.isprintable() else json.dumps(text)) + more


def in_document(content: bytes, encoding: str | None) -> Any:
    """Return bytes for JSON: as hex, or as the serde reads them. Raises DeserializationError.

    NaN, infinities and numbers that no float can be become strings: JSON has none.
    """
    if encoding in (None, "bytes"):
        return content.hex()
    try:
        value = STANDARD_SERDES[encoding].deserialize(content)
    except DeserializationError as cause:
        raise DeserializationError(
            f"{cause}: leave out the option that says {encoding}, or read without --json"
        ) from cause
    if encoding == "json":  # its numbers may be out of the range of floats
        return json.loads(content, parse_float=lambda text: _finite(float(text), text))
    return _finite(value, str(value))


def _finite(value: Any, otherwise: str) -> Any:
    return otherwise if isinstance(value, float) and not isfinite(value) else value


def bytes_in(text: str, encoding: str | None) -> bytes:
    """Return the bytes that a command's argument stands for. Raises ValueError, SerializationError."""
    if encoding in (None, "bytes"):
        return bytes_of(text)
    if encoding == "string":
        return text.encode()
    if encoding == "boolean":
        if text not in _BOOLEANS:
            raise ValueError(f"{text!r} is neither true nor false")
        return STANDARD_SERDES[encoding].serialize(_BOOLEANS[text])
    value = json.loads(text) if encoding == "json" else float(text) if encoding == "double" else int(text)
    return STANDARD_SERDES[encoding].serialize(value)
