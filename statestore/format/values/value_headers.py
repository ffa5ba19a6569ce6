"""Headers and value, without a timestamp: what session stores and versioned stores with headers hold.

    value_headers := headers_size:varint headers:u8[headers_size] value:u8[..]

`headers` are those of `header_bytes`; none is the single byte 00. A null value, a delete, has no bytes: it is None.
Source: KIP-1271, AggregationWithHeadersSerializer of Kafka Streams.
"""

from __future__ import annotations

from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varint, encode_varint

_NO_HEADERS = encode_varint(0)


def encode_value_headers(value: bytes | None, header_bytes: bytes) -> bytes | None:
    """Return the value behind its headers; None for None. Raises ValueError for headers beyond 2^31 - 1 bytes."""
    return None if value is None else b"".join((encode_varint(len(header_bytes)), header_bytes, value))


def split_value_headers(data: bytes) -> tuple[bytes, bytes]:
    """Return header bytes, which are not parsed, and value. Raises FormatError."""
    size, start = decode_varint(data, 0, "headers size")
    if size < 0:
        raise NegativeLengthError("headers", length=size)
    end = start + size
    if end > len(data):
        raise TruncatedError("headers", wanted=size, got=len(data) - start)
    return data[start:end], data[end:]


def convert_plain_to_value_headers(plain: bytes | None) -> bytes | None:
    """Return a plain value in this layout, without headers; None for None. Kafka's HeadersBytesStore."""
    return None if plain is None else _NO_HEADERS + plain
