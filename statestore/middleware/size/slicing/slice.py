"""Slice: what the header of a slice says, of it and of its message.

    CHUNK := version:u8  message_id:u8[16]  index:u32_be  count:u32_be  message_size:u32_be  crc32:u32_be

The version is 1. The index counts from 0. Size and checksum (CRC-32 as of gzip and zip) are those of the whole value.
The page docs/formats/slices.md has an example.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Final

from statestore.errors.middleware import SliceError
from statestore.headers.record_headers import Headers
from statestore.middleware.marks import value_of

CHUNK_HEADER: Final = "CHUNK"
"""The header that says which slice of which message a record is."""
MOST_SLICES: Final = 65_536
"""How many slices a message may have at most."""
MESSAGE_ID_BYTES: Final = 16

_VERSION: Final = 1
_LAYOUT: Final = struct.Struct(f">B{MESSAGE_ID_BYTES}sIIII")


@dataclass(frozen=True)
class Slice:
    """One slice of a message."""

    message_id: bytes
    index: int
    count: int
    size_bytes: int
    """Of the whole message."""
    crc32: int
    """Of the whole message."""

    @property
    def of_message(self) -> tuple[int, int, int]:
        """What all slices of a message say alike."""
        return self.count, self.size_bytes, self.crc32

    def to_bytes(self) -> bytes:
        """Return the value of the header."""
        return _LAYOUT.pack(_VERSION, *astuple(self))

    @classmethod
    def of(cls, headers: Headers) -> Slice | None:
        """Return what the header of a record says; None if there is none, or it has no value.

        Raises SliceError if it is malformed.
        """
        value = value_of(headers, CHUNK_HEADER)
        if value is None:
            return None
        if len(value) != _LAYOUT.size or value[0] != _VERSION:
            raise SliceError(f"its header {CHUNK_HEADER} is none of version {_VERSION}, of {_LAYOUT.size} bytes")
        made = cls(*_LAYOUT.unpack(value)[1:])
        if not (made.index < made.count <= min(made.size_bytes, MOST_SLICES)):
            raise SliceError(
                f"its header {CHUNK_HEADER} speaks of slice {made.index} of {made.count}, of {made.size_bytes} bytes "
                f"together: there is none such; at most {MOST_SLICES} are glued"
            )
        return made


CHUNK_HEADER_BYTES: Final = len(Headers([(CHUNK_HEADER, bytes(_LAYOUT.size))]).to_bytes()) - 1
"""What the header adds to a record's headers."""
