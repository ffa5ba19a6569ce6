"""EarlyHeaders: headers with the methods and bytes of an earlier draft of KIP-82.

For what was written by that draft, and to compare: there, headers are made from bytes, can be added to but not removed,
and are never null. Source: KIP-82, the draft whose Headers has get, add, keys and asBytes.
"""

from __future__ import annotations

from statestore.errors import LossyHeadersError
from statestore.headers.record_headers import Header, Headers
from statestore.kip82.early_header_bytes import decode_early_headers, encode_early_headers

__all__ = ["EarlyHeaders"]


class EarlyHeaders:
    """A multimap of keys and values, in order, over its bytes. Not hashable."""

    __slots__ = ("_bytes", "_pairs")

    def __init__(self, header_bytes: bytes = b"") -> None:
        """Make headers of bytes in the layout of `early_header_bytes`; b"" for none.

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
        # One header's bytes follow the other's, so those that came in stay as they are, whatever their varints.
        self._bytes += encode_early_headers([(key, value)])
        self._pairs.append((header.key, value))

    def keys(self) -> list[str]:
        """Return each key once, in the order in which they first come."""
        return list(dict.fromkeys(key for key, _ in self._pairs))

    def as_bytes(self) -> bytes:
        """Return the encoded headers: the very bytes they were made from, followed by what was added."""
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
