"""Headers with numbers for keys, through a registry that both sides have.

A key costs one byte or four, however long its name is. But somebody must manage the numbers: what is not in the
registry is an error. Source: KIP-82, the rejected `Map<Int, byte[]>`.
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.errors import LossyHeadersError, UnknownHeaderError
from statestore.format.varint import INT32_MAX, INT32_MIN
from statestore.headers.record_headers import Header, Headers
from statestore.kip82.id_header_bytes import IdForm, decode_id_headers, encode_id_headers

__all__ = ["HeaderIds", "from_id_bytes", "from_id_map", "to_id_bytes", "to_id_map"]


class HeaderIds:
    """Which id stands for which key, one to one. Never change an id: bytes depend on it."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        """Register these keys.

        Raises ValueError if two keys have the same id or an id is not a signed 32-bit integer, TypeError if a key is
        not a str.
        """
        self._ids = dict(ids)
        self._keys: dict[int, str] = {}
        for key, header_id in self._ids.items():
            Header(key, None)
            if not INT32_MIN <= header_id <= INT32_MAX:
                raise ValueError(f"the id of header {key!r} must be a signed 32-bit integer, got {header_id}")
            other = self._keys.setdefault(header_id, key)
            if other != key:
                raise ValueError(f"headers {other!r} and {key!r} have the same id {header_id}")

    def id_of(self, key: str) -> int:
        """Return the id of a key. Raises UnknownHeaderError."""
        try:
            return self._ids[key]
        except KeyError:
            raise UnknownHeaderError(key) from None

    def key_of(self, header_id: int) -> str:
        """Return the key of an id. Raises UnknownHeaderError."""
        try:
            return self._keys[header_id]
        except KeyError:
            raise UnknownHeaderError(header_id) from None


def to_id_map(headers: Headers, ids: HeaderIds) -> dict[int, bytes | None]:
    """Return the headers as a map, in their order.

    Raises UnknownHeaderError, and LossyHeadersError if a key comes twice: a map has each id once.
    """
    values: dict[int, bytes | None] = {}
    for key, value in headers:
        header_id = ids.id_of(key)
        if header_id in values:
            raise LossyHeadersError("a map of ids", key=key, problem="comes twice")
        values[header_id] = value
    return values


def from_id_map(values: Mapping[int, bytes | None], ids: HeaderIds) -> Headers:
    """Return the headers of a map, in its order. Raises UnknownHeaderError."""
    return Headers((ids.key_of(header_id), value) for header_id, value in values.items())


def to_id_bytes(headers: Headers, ids: HeaderIds, form: IdForm = IdForm.VARINT) -> bytes:
    """Return the headers as bytes in the layout of `id_header_bytes`; order, repeated keys and nulls are kept.

    Raises UnknownHeaderError.
    """
    return encode_id_headers(((ids.id_of(key), value) for key, value in headers), form)


def from_id_bytes(data: bytes, ids: HeaderIds, form: IdForm = IdForm.VARINT) -> Headers:
    """Return the headers in bytes that `to_id_bytes` made with the same ids and form.

    Raises UnknownHeaderError, and FormatError where the bytes do not follow the layout.
    """
    return Headers((ids.key_of(header_id), value) for header_id, value in decode_id_headers(data, form))
