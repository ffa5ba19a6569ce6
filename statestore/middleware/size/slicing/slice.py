"""Slice: what the header of a slice says, of it and of its message; and how a record is cut into slices.

    CHUNK := version:u8  message_id:u8[16]  index:u32_be  count:u32_be  message_size:u32_be  crc32:u32_be

The version is 1. The index counts from 0. Size and checksum (CRC-32 as of gzip and zip) are those of the whole value.
The page docs/formats/slices.md has an example.

Slices are records to the same topic, with the same key and time, none of them too large. The first keeps all headers,
the others have their own alone. The same record of the same shard and micro-batch is cut in the same way into slices of
the same message id, also when the batch is retried; two equal records in one batch are two messages.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import astuple, dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from statestore.errors.middleware import SliceError
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord
from statestore.middleware.application import value_of

CHUNK_HEADER: Final = "CHUNK"
"""The header that says which slice of which message a record is."""
MOST_SLICES: Final = 65_536
"""How many slices a message may have at most."""
MESSAGE_ID_BYTES: Final = 16

_VERSION: Final = 1
_MOST_COUNT_BYTES: Final = 5  # a varint: how many headers there are
_MOST_REMEMBERED: Final = 65_536
_LAYOUT: Final = struct.Struct(f">B{MESSAGE_ID_BYTES}sIIII")


@dataclass(frozen=True)
class Slice:
    """One slice of a message."""

    message_id: bytes
    index: int
    count: int
    size_bytes: int
    crc32: int
    """Of the whole message, as its size."""

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
        if (value := value_of(headers, CHUNK_HEADER)) is None:
            return None
        if len(value) != _LAYOUT.size or value[0] != _VERSION:
            raise SliceError(f"its header {CHUNK_HEADER} is not {_LAYOUT.size} bytes of version {_VERSION}")
        made = cls(*_LAYOUT.unpack(value)[1:])
        if not (made.index < made.count <= min(made.size_bytes, MOST_SLICES)):
            raise SliceError(
                f"its header {CHUNK_HEADER} says slice {made.index} of {made.count}, of {made.size_bytes} bytes, "
                f"which can't be; at most {MOST_SLICES} are glued"
            )
        return made


CHUNK_HEADER_BYTES: Final = len(Headers([(CHUNK_HEADER, bytes(_LAYOUT.size))]).to_bytes()) - 1
"""What the header adds to a record's headers."""


class Cutting:
    """Cuts the records that one shard emits in one micro-batch."""

    def __init__(self, max_bytes: int, shard: int, batch_ms: int) -> None:
        """`batch_ms` is the time of this micro-batch: the same when it is retried, another in every other one."""
        self._max_bytes = max_bytes
        self._salt = b"%d %d %d" % (max_bytes, shard, batch_ms)
        self._equal: Counter[bytes] = Counter()

    def slices(self, record: EmittedRecord) -> list[EmittedRecord]:
        """Return the slices of a record whose value is larger than `max_bytes` allows.

        Raises SliceError if key and headers leave no room for a value, or it would take too many slices.
        """
        value = record.value or b""
        next_bytes = self._max_bytes - len(record.key or b"") - CHUNK_HEADER_BYTES - _MOST_COUNT_BYTES
        first_bytes = next_bytes - len(record.headers.to_bytes())
        if first_bytes < 1:
            raise SliceError(
                f"it can't be sliced: its key and headers leave no room for a value in {self._max_bytes} bytes"
            )
        cuts = [0, *range(first_bytes, len(value), next_bytes), len(value)]
        count = len(cuts) - 1
        if count > MOST_SLICES:
            raise SliceError(f"it would take {count} slices, {MOST_SLICES} are allowed: raise max_bytes")
        message_id, crc32 = self._message_id(record), zlib.crc32(value)
        made = []
        for index, (start, end) in enumerate(pairwise(cuts)):
            header = CHUNK_HEADER, Slice(message_id, index, count, len(value), crc32).to_bytes()
            headers = record.headers.copy().add(*header) if index == 0 else Headers([header])
            made.append(record.copy(value=value[start:end], headers=headers))
        return made

    def _message_id(self, record: EmittedRecord) -> bytes:
        hashed = blake2b(self._salt, digest_size=MESSAGE_ID_BYTES)
        header_bytes = record.headers.to_bytes()
        for part in (record.topic.encode(), record.key, b"%d" % (record.timestamp_ms or 0), header_bytes, record.value):
            hashed.update(b"-" if part is None else b"%d:" % len(part))
            hashed.update(part or b"")
        alike = hashed.digest()
        if len(self._equal) >= _MOST_REMEMBERED:
            self._equal.clear()
        self._equal[alike] += 1
        if self._equal[alike] == 1:
            return alike
        return blake2b(b"%d" % self._equal[alike], key=alike, digest_size=MESSAGE_ID_BYTES).digest()
