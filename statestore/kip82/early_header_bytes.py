"""Early header bytes: the headers of one record, as an earlier draft of KIP-82 laid them out.

    headers := header[..], to the end of the bytes
    header  := size:uvarint body:u8[size]
    body    := key_size:uvarint key:u8[key_size] value:u8[..]

Keys are UTF-8. The value is what is left of the body, so it has no length of its own and can't be null. No headers are
no bytes. The draft does not say whether its "length of the individual header" counts itself: here it does not, as the
length of a record does not. Source: KIP-82, "Wire protocol of the headers bytes" of the draft with `Headers.asBytes`.
"""

from __future__ import annotations

from collections.abc import Iterable

from statestore.errors import FormatError, TruncatedError
from statestore.format.varint import decode_uvarint, encode_uvarint


def encode_early_headers(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the headers of these keys and values, in their order; b"" if there are none.

    Raises TypeError if a key is not a str or a value not bytes (None has no form here), UnicodeEncodeError (a
    ValueError) if a key holds a lone surrogate, and ValueError if a header exceeds 2^32 - 1 bytes.
    """
    parts: list[bytes] = []
    for key, value in pairs:
        if not isinstance(value, bytes):
            raise TypeError(f"the value of early header {key!r} must be bytes, got {type(value).__name__}")
        key_bytes = str.encode(key)
        key_size = encode_uvarint(len(key_bytes))
        parts += (encode_uvarint(len(key_size) + len(key_bytes) + len(value)), key_size, key_bytes, value)
    return b"".join(parts)


def decode_early_headers(data: bytes) -> list[tuple[str, bytes]]:
    """Return the headers in `data`, in order.

    Raises TruncatedError, VarintError or FormatError where `data` does not follow the layout: a key that is not UTF-8
    is refused, too.
    """
    pairs: list[tuple[str, bytes]] = []
    position = 0
    while position < len(data):
        size, start = decode_uvarint(data, position, "early header size")
        position = start + size
        if position > len(data):
            raise TruncatedError("early header", wanted=size, got=len(data) - start)
        pairs.append(_decode_body(data[start:position]))
    return pairs


def _decode_body(body: bytes) -> tuple[str, bytes]:
    size, start = decode_uvarint(body, 0, "early header key size")
    end = start + size
    if end > len(body):
        raise TruncatedError("early header key", wanted=size, got=len(body) - start)
    try:
        return body[start:end].decode(), body[end:]
    except UnicodeDecodeError as cause:
        raise FormatError("early header key", f"is not UTF-8 ({cause.reason} at byte {cause.start})") from cause
