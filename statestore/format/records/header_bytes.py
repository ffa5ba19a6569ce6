"""Header bytes: the headers of one record, as they stand in state.

    headers := (nothing, if there are none)
             | count:varint { key_size:varint key:u8[key_size] value_size:varint value:u8[value_size] }[count]

Keys are UTF-8. A value size of -1 is a null value, 0 an empty one. Keys may repeat, and their order is kept.
This is the scalar codec; `header_columns` does the same over Arrow columns. Source: KIP-1271, HeadersSerializer and
HeadersDeserializer of Kafka Streams.

Lenient where Kafka is: a count of zero or less is no headers, bytes after the last header are ignored, varints may be
longer than needed, and malformed UTF-8 is replaced as Java's String does it. Everything else is a FormatError.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Final

from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varint, encode_varint

MIN_HEADER_SIZE: Final = 2
"""Bytes of the smallest header (empty key, null value): bounds a count before anything is allocated for it."""

_NULL_SIZE: Final = encode_varint(-1)
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_parse_count = 0


def encode_headers(pairs: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Return the headers of these keys and values, in their order; b"" if there are none.

    Raises TypeError if a key is not a str or a value neither bytes nor None, UnicodeEncodeError (a ValueError) if a key
    holds a lone surrogate, and ValueError if a key or a value is longer than 2^31 - 1 bytes.
    """
    parts = [b""]
    count = 0
    for key, value in pairs:
        key_bytes = str.encode(key)
        parts += (encode_varint(len(key_bytes)), key_bytes)
        if value is None:
            parts.append(_NULL_SIZE)
        else:
            parts += (encode_varint(len(value)), value)
        count += 1
    if not count:
        return b""
    parts[0] = encode_varint(count)
    return b"".join(parts)


def decode_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Return the headers in `data`, in order; a null value is None. `parse_count` counts it. Raises FormatError."""
    global _parse_count
    _parse_count += 1
    return parse_headers(data)


def last_header_value(data: bytes, key: str) -> bytes | None:
    """Return the value of the last header `key`, None for none or null, with no more parsing than needed."""
    if key.encode() in data:
        for name, value in reversed(decode_headers(data)):
            if name == key:
                return value
    return None


def header_values(data: bytes, keys: Container[bytes]) -> list[tuple[bytes, bytes]]:
    """Return key and value of the headers with one of `keys`, in UTF-8, in order, without parsing others; no nulls.

    Raises FormatError as `decode_headers` does.
    """
    found: list[tuple[bytes, bytes]] = []
    end = len(data)
    count, position = decode_varint(data, 0, "header count")
    for _ in range(count):
        if position < end and not (byte := data[position]) & 0x81:
            size, start = byte >> 1, position + 1
        else:
            size, start = decode_varint(data, position, "header key size")
            if size < 0:
                raise NegativeLengthError("header key", length=size)
        position = start + size
        if position > end:
            raise TruncatedError("header key", wanted=size, got=end - start)
        key = data[start:position]
        if position < end and not (byte := data[position]) & 0x81:
            size, start = byte >> 1, position + 1
        else:
            size, start = decode_varint(data, position, "header value size")
            if size < -1:
                raise NegativeLengthError("header value", length=size)
        position = start + max(size, 0)
        if position > end:
            raise TruncatedError("header value", wanted=size, got=end - start)
        if size >= 0 and key in keys:
            found.append((key, data[start:position]))
    return found


def parse_count() -> int:
    """Return how many times `decode_headers` ran in this process: the proof that untouched headers stay unparsed."""
    return _parse_count


def header_count(data: bytes) -> int:
    """Return how many headers `data` announces, none of them read; 0 if that is negative. Raises FormatError."""
    if not data:
        return 0
    count, _ = decode_varint(data, 0, "header count")
    return max(count, 0)


def parse_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Do `decode_headers` without the counting: for columns, whose caller asks for every row's headers."""
    if not data:
        return []
    end = len(data)
    count, position = decode_varint(data, 0, "header count")
    if count * MIN_HEADER_SIZE > end - position:
        raise TruncatedError("headers", wanted=count * MIN_HEADER_SIZE, got=end - position)
    pairs: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        # A size below 64 is one even byte and read in place: two calls would be a third of a header's time.
        if position < end and not (byte := data[position]) & 0x81:
            size, start = byte >> 1, position + 1
        else:
            size, start = decode_varint(data, position, "header key size")
            if size < 0:
                raise NegativeLengthError("header key", length=size)
        position = start + size
        if position > end:
            raise TruncatedError("header key", wanted=size, got=end - start)
        try:
            key = data[start:position].decode()
        except UnicodeDecodeError:
            key = decode_key(data[start:position])

        if position < end and not (byte := data[position]) & 0x81:
            size, start = byte >> 1, position + 1
        else:
            size, start = decode_varint(data, position, "header value size")
            if size == -1:
                pairs.append((key, None))
                position = start
                continue
            if size < -1:
                raise NegativeLengthError("header value", length=size)
        position = start + size
        if position > end:
            raise TruncatedError("header value", wanted=size, got=end - start)
        pairs.append((key, data[start:position]))
    return pairs


def decode_key(key: bytes) -> str:
    """Return a header key as text; malformed UTF-8 becomes as many U+FFFD as Java's String(bytes, UTF_8) makes of it.

    Java and Python differ in encoded surrogates only (ED, A0..BF, and a third byte if there is one): Java replaces each
    by one U+FFFD, Python by two or three.
    """
    try:
        return key.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(b"\xff", key).decode(errors="replace")
