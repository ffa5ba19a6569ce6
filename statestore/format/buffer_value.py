"""What a buffer of suppressed changes holds of a key. Source: Kafka Streams' BufferValue and ProcessorRecordContext.

    timestamp_ms:i64_be  offset:i64_be  topic_size:i32_be  topic  partition:i32_be
    header_count:i32_be  (key_size:i32_be  key  value_size:i32_be  value)*
    prior_size:i32_be  prior  old_size:i32_be  old  new_size:i32_be  new  time_ms:i64_be

It is version 3 of what Kafka's buffer logs. Texts are UTF-8. A size of -1 is a null, an old size of -2 means that the
old value is the prior one; a header count of -1 means none. The value that was there before the buffer got the key is
the prior one, the one before the last change the old one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from statestore.errors import FormatError, NegativeLengthError, TruncatedError

Pairs: TypeAlias = "list[tuple[str, bytes | None]]"

_TIMES: Final = struct.Struct(">qqi")
_SIZE: Final = struct.Struct(">i")
_TIME: Final = struct.Struct(">q")
_NULL: Final = _SIZE.pack(-1)
_AS_PRIOR: Final = -2
_FIXED_BYTES: Final = 28
"""What Kafka counts of a change beside texts and values: two times, an offset and a partition."""
_WHAT: Final = "buffered change"


class BufferedChange(NamedTuple):
    """A change of a key that is held back, with the record that it was made for."""

    new: bytes | None
    old: bytes | None
    prior: bytes | None
    time_ms: int
    """By which it is due."""
    timestamp_ms: int
    headers: Pairs
    topic: str
    partition: int
    offset: int

    def size_bytes(self, key: bytes) -> int:
        """Return what Kafka counts for a key with this change against the bound of a buffer; texts by their UTF-16."""
        old = None if self.old == self.prior else self.old
        values = (key, self.prior, old, self.new, *(value for _, value in self.headers))
        texts = (self.topic, *(name for name, _ in self.headers))
        return _FIXED_BYTES + sum(len(value) for value in values if value is not None) + sum(map(_utf16_units, texts))

    def to_bytes(self) -> bytes:
        """Return it as it is stored."""
        topic = self.topic.encode()
        parts = [_TIMES.pack(self.timestamp_ms, self.offset, len(topic)), topic, _SIZE.pack(self.partition)]
        parts.append(_SIZE.pack(len(self.headers)))
        for name, value in self.headers:
            parts += (_sized(name.encode()), _sized(value))
        is_as_prior = self.old is not None and self.old == self.prior
        parts += (_sized(self.prior), _SIZE.pack(_AS_PRIOR) if is_as_prior else _sized(self.old), _sized(self.new))
        return b"".join((*parts, _TIME.pack(self.time_ms)))

    @classmethod
    def from_bytes(cls, data: bytes) -> BufferedChange:
        """Return the change that is stored. Raises TruncatedError, NegativeLengthError or FormatError."""
        reader = _Reader(data)
        timestamp_ms, offset = reader.time(), reader.time()
        topic = reader.text()
        partition = reader.size()
        headers = [(reader.text(), reader.value()) for _ in range(reader.count())]
        prior = reader.value()
        old_size = reader.size()
        old = prior if old_size == _AS_PRIOR else reader.of_size(old_size)
        new = reader.value()
        time_ms = reader.time()
        if reader.left:
            raise FormatError(_WHAT, f"{reader.left} bytes behind its end")
        return cls(new, old, prior, time_ms, timestamp_ms, headers, topic, partition, offset)


class _Reader:
    """Reads part after part."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def time(self) -> int:
        (time,) = _TIME.unpack(self._take(_TIME.size))
        return int(time)

    def size(self) -> int:
        (size,) = _SIZE.unpack(self._take(_SIZE.size))
        return int(size)

    def count(self) -> int:
        """Return how many headers there are; bytes for so many have to be there."""
        count = max(self.size(), 0)
        if 2 * _SIZE.size * count > self.left:
            raise TruncatedError(_WHAT, wanted=2 * _SIZE.size * count, got=self.left)
        return count

    def value(self) -> bytes | None:
        return self.of_size(self.size())

    def of_size(self, size: int) -> bytes | None:
        if size < -1:
            raise NegativeLengthError(_WHAT, length=size)
        return None if size < 0 else self._take(size)

    def text(self) -> str:
        size = self.size()
        if size < 0:
            raise NegativeLengthError(_WHAT, length=size)
        return self._take(size).decode("utf-8", "replace")

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise TruncatedError(_WHAT, wanted=size, got=self.left)
        self._at += size
        return self._data[self._at - size : self._at]


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else _SIZE.pack(len(value)) + value


def _utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
