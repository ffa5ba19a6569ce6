"""What each part of a record costs on the wire, and what its lengths would cost in the older formats.

v0 and v1 spend four bytes on each length; v2 spends one on most. Source: KIP-82, "Core message size reduction".
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.format.records.header_bytes import encode_headers
from statestore.format.records.message_v0_v1 import OVERHEAD_BYTES, SIZE_FIELD_BYTES
from statestore.format.records.record_v2 import RecordV2, encode_record
from statestore.format.varint import encode_varint


class RecordSize(NamedTuple):
    """The bytes of one record in message format v2, uncompressed, without its share of the batch's own fields."""

    key_bytes: int
    value_bytes: int
    lengths_bytes: int
    """The length fields of key and value; a null has one, too."""
    headers_bytes: int
    """All of the headers, with their lengths and count; one byte if there are none."""
    overhead_bytes: int
    """The record's size, attributes, and the deltas of timestamp and offset."""

    @property
    def total_bytes(self) -> int:
        """The whole record."""
        return sum(self)

    @property
    def content_bytes(self) -> int:
        """Key, value and headers: what the sender has put in."""
        return self.key_bytes + self.value_bytes + self.headers_bytes

    @property
    def fixed_lengths_bytes(self) -> int:
        """What the two length fields would cost at a fixed size of four bytes each, as in v0 and v1."""
        return 2 * SIZE_FIELD_BYTES

    @property
    def saved_bytes(self) -> int:
        """What varints save of that: 6 for a key and a value below 64 bytes, -2 for two of 128 MiB."""
        return self.fixed_lengths_bytes - self.lengths_bytes

    def message_bytes(self, magic: int) -> int:
        """Return what key and value would cost as a message v0 or v1 (`magic`), which drops the headers.

        Raises ValueError if magic is neither 0 nor 1.
        """
        if magic not in OVERHEAD_BYTES:
            raise ValueError(f"the magic of a message without headers is 0 or 1, got {magic}")
        return OVERHEAD_BYTES[magic] + self.key_bytes + self.value_bytes


def content_bytes(key: bytes | None, value: bytes | None, header_bytes: bytes) -> int:
    """Return what `RecordSize.content_bytes` is of a record of these parts, without encoding it."""
    return len(key or b"") + len(value or b"") + (len(header_bytes) or 1)


def size_of(record: RecordV2) -> RecordSize:
    """Return what the record costs. Raises what `encode_record` raises."""
    parts = (record.key, record.value)
    key_bytes, value_bytes = (0 if part is None else len(part) for part in parts)
    lengths_bytes = sum(len(encode_varint(-1 if part is None else len(part))) for part in parts)
    headers_bytes = len(encode_headers(record.headers)) or 1
    total_bytes = len(encode_record(record))
    overhead_bytes = total_bytes - key_bytes - value_bytes - lengths_bytes - headers_bytes
    return RecordSize(key_bytes, value_bytes, lengths_bytes, headers_bytes, overhead_bytes)
