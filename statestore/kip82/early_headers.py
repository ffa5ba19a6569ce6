"""EarlyHeaders: headers with the methods and bytes of an earlier draft of KIP-82.

For data that follows that draft, and to compare: there, headers are made from bytes, are only added, and are never
null.

    headers := header[..], to the end of the bytes
    header  := size:uvarint body:u8[size]
    body    := key_size:uvarint key:u8[key_size] value:u8[..]

Keys are UTF-8. The value is the rest of the body, so it has no length of its own and can't be null. The draft does not
say whether its "length of the individual header" counts itself: here it does not, like the length of a record. Source:
KIP-82, the draft whose Headers has get, add, keys and asBytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from statestore.errors import FormatError, LossyHeadersError
from statestore.format.varint import decode_uvarint, encode_uvarint, take_bytes
from statestore.headers.record_headers import Header, Headers

__all__ = ["EarlyHeaders"]


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

    Raises TruncatedError, VarintError or FormatError where `data` does not follow the layout, such as a key that is not
    UTF-8.
    """
    pairs: list[tuple[str, bytes]] = []
    position = 0
    while position < len(data):
        size, start = decode_uvarint(data, position, "early header size")
        body, position = take_bytes(data, start, size, "early header")
        pairs.append(_decode_body(body))
    return pairs


def _decode_body(body: bytes) -> tuple[str, bytes]:
    size, start = decode_uvarint(body, 0, "early header key size")
    key, end = take_bytes(body, start, size, "early header key")
    try:
        return key.decode(), body[end:]
    except UnicodeDecodeError as cause:
        raise FormatError("early header key", f"is not UTF-8 ({cause.reason} at byte {cause.start})") from cause


class EarlyHeaders:
    """A multimap of keys and values, in order, over its bytes. Not hashable."""

    __slots__ = ("_bytes", "_pairs")

    def __init__(self, header_bytes: bytes = b"") -> None:
        """Make headers of bytes in the layout above; b"" for none.

        Raises TruncatedError, VarintError or FormatError where the bytes do not follow the layout.
        """
        self._bytes = header_bytes
        self._pairs = decode_early_headers(header_bytes)

    @classmethod
    def of(cls, headers: Headers) -> EarlyHeaders:
        """Return a copy of record headers. Raises LossyHeadersError if a value is null."""
        early = cls()
        for key, value in headers:
            if value is None:
                raise LossyHeadersError("the early header format", key=key, problem="has a null value")
            early.add(key, value)
        return early

    def get(self, key: str) -> list[bytes]:
        """Return all values of this key, in order; none if there is no such header."""
        return [value for name, value in self._pairs if name == key]

    def add(self, key: str, value: bytes) -> None:
        """Append a header. Headers of the same key stay.

        Raises TypeError if the key is not a str or the value not bytes, ValueError if the key holds a lone surrogate.
        """
        header = Header(key, value)
        # The bytes that came in stay as they are, whatever their varints.
        self._bytes += encode_early_headers([(key, value)])
        self._pairs.append((header.key, value))

    def keys(self) -> list[str]:
        """Return each key once, in the order of their first headers."""
        return list(dict.fromkeys(key for key, _ in self._pairs))

    def as_bytes(self) -> bytes:
        """Return the encoded headers: the bytes they were made from, followed by what was added."""
        return self._bytes

    def to_headers(self) -> Headers:
        """Return the same headers as record headers."""
        return Headers(self._pairs)

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same headers in the same order."""
        return self._pairs == other._pairs if isinstance(other, EarlyHeaders) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # headers can be added

    def __repr__(self) -> str:
        """Return an expression for these headers."""
        return f"EarlyHeaders({self._bytes!r})"
