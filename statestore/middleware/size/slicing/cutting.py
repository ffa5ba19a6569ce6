"""Cuts a record into slices: records to the same topic, with the same key and time, none of them too large.

The first keeps all headers, the others have their own alone. The same record of the same shard and micro-batch is cut
in the same way into slices of the same message id, also when the batch is retried; two equal records in one batch are
two messages.
"""

from __future__ import annotations

import zlib
from collections import Counter
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from statestore.errors.middleware import SliceError
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord
from statestore.middleware.size.slicing.slice import (
    CHUNK_HEADER,
    CHUNK_HEADER_BYTES,
    MESSAGE_ID_BYTES,
    MOST_SLICES,
    Slice,
)

_MOST_COUNT_BYTES: Final = 5  # a varint: how many headers there are
_MOST_REMEMBERED: Final = 65_536


class Cutting:
    """Cuts the records that one shard emits in one micro-batch."""

    def __init__(self, max_bytes: int, shard: int, batch_ms: int) -> None:
        """`batch_ms` is a time that this micro-batch has, also when it is retried, and those after it do not."""
        self._max_bytes = max_bytes
        self._salt = b"%d %d %d" % (max_bytes, shard, batch_ms)
        self._equal: Counter[bytes] = Counter()

    def slices(self, record: EmittedRecord) -> list[EmittedRecord]:
        """Return the slices of a record whose value is larger than `max_bytes` allows.

        Raises SliceError if key and headers leave no room for a value, or it would take too many slices.
        """
        value = record.value or b""
        key_bytes = len(record.key or b"")
        first_bytes = self._max_bytes - key_bytes - len(record.headers.to_bytes()) - CHUNK_HEADER_BYTES
        first_bytes -= _MOST_COUNT_BYTES
        next_bytes = self._max_bytes - key_bytes - CHUNK_HEADER_BYTES - _MOST_COUNT_BYTES
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
