"""Slices in state until the last one of their message has come, as entries below their record's key.

    chunks     map_entry(key, topic_size:u32_be topic message_id index:u32_be)
               -> has_key:u8 partition:i32_be offset:i64_be value, with the slice's timestamp and headers
    messages   map_entry(key, topic_size:u32_be topic message_id)
               -> version:u8 is_delivered:u8 count:u32_be message_size:u32_be crc32:u32_be
                  received:u32_be received_size:u32_be stored_size:u64_be changed_ms:i64_be

A delivered message stays known for as long as a message may stay open: so slices that a retry sends once more are not
reported as an incomplete message. If all of them come again, it is delivered again, as a record that is sent twice is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from statestore.errors import FormatError, RecordRefusedError
from statestore.errors.middleware import SliceError, SlicesIncompleteError
from statestore.format.keys.entry_key import key_at_front, map_entry_key, map_key_of, sized
from statestore.headers.records import ConsumerRecord
from statestore.interception.interceptor import IngestedRecord
from statestore.middleware.size.slicing.slice import CHUNK_HEADER, MESSAGE_ID_BYTES, MOST_SLICES, Slice
from statestore.stores.holders import ValueTimestampHeaders

Refuse = Callable[[IngestedRecord, RecordRefusedError], None]

_VERSION: Final = 1
_MESSAGE: Final = struct.Struct(">B?IIIIIQq")
_INDEX: Final = struct.Struct(">I")
_POSITION: Final = struct.Struct(">?iq")


@dataclass(frozen=True)
class Limits:
    """How much may be open in a shard, and for how long."""

    message_bytes: int
    messages: int
    bytes: int
    timeout_ms: int


@dataclass
class _Message:
    """What is known of a message whose slices are, or were, in state."""

    is_delivered: bool
    count: int
    size_bytes: int
    crc32: int
    received: int
    received_bytes: int
    stored_bytes: int
    changed_ms: int

    def to_bytes(self) -> bytes:
        return _MESSAGE.pack(_VERSION, *vars(self).values())

    @classmethod
    def from_bytes(cls, data: bytes) -> _Message:
        if len(data) != _MESSAGE.size or data[0] != _VERSION:
            raise FormatError("message in slices", f"no {_MESSAGE.size} bytes of version {_VERSION}")
        return cls(*_MESSAGE.unpack(data)[1:])


class OpenMessages:
    """The messages of a shard that are known, the one that changed longest ago first."""

    def __init__(self, messages: Any, chunks: Any, limits: Limits, refuse: Refuse) -> None:
        self._messages = messages
        self._chunks = chunks
        self._limits = limits
        self._refuse = refuse
        found = [(place, _Message.from_bytes(entry)) for place, entry in messages.all()]
        self._known: dict[bytes, _Message] = dict(sorted(found, key=lambda each: each[1].changed_ms))
        self._stored_bytes = sum(message.stored_bytes for message in self._known.values())

    def add(self, record: IngestedRecord, slice_: Slice, now_ms: int) -> IngestedRecord | None:
        """Take a slice, and return its whole message if that was the last one missing.

        Raises SliceError if the slice does not fit the others, or the message is too large or not what was sliced.
        """
        value = record.value
        if not value:
            raise SliceError("it is a slice without a value")
        if slice_.size_bytes > self._limits.message_bytes:
            raise SliceError(
                f"it is a slice of a message of {slice_.size_bytes} bytes, {self._limits.message_bytes} are allowed: "
                "raise max_message_bytes"
            )
        place = map_entry_key(record.key or b"", sized(record.topic.encode()) + slice_.message_id)
        message = self._known.get(place) or _Message(False, *slice_.of_message, 0, 0, 0, now_ms)
        if not message.received:
            message.count, message.size_bytes, message.crc32 = slice_.of_message
        if (message.count, message.size_bytes, message.crc32) != slice_.of_message:
            raise SliceError(
                f"it is slice {slice_.index} of {slice_.count} of message {slice_.message_id.hex()} of "
                f"{slice_.size_bytes} bytes, but others of that message say {message.count} slices and "
                f"{message.size_bytes} bytes, or another checksum"
            )
        if (known := self._chunks.get(place + _INDEX.pack(slice_.index))) is not None:
            if _position_and_value(known)[1] == value:
                return None
            raise SliceError(
                f"slice {slice_.index} of message {slice_.message_id.hex()} came before with another value"
            )
        if message.received_bytes + len(value) > message.size_bytes:
            raise SliceError(f"the slices of message {slice_.message_id.hex()} are larger than the message")
        if message.received + 1 == message.count:
            return self._glued(place, message, record, slice_, now_ms)
        self._keep(place, message, record, slice_.index, now_ms)
        return None

    def give_up_overdue(self, now_ms: int) -> None:
        """Forget the messages that have not changed for too long; those that were not delivered are refused."""
        oldest_ms = now_ms - self._limits.timeout_ms
        overdue = [place for place, message in self._known.items() if message.changed_ms <= oldest_ms]
        for place in overdue:
            self._give_up(place, f"none has come for {self._limits.timeout_ms} ms (timeout)")

    def _keep(self, place: bytes, message: _Message, record: IngestedRecord, index: int, now_ms: int) -> None:
        assert record.value is not None
        position = _POSITION.pack(record.key is not None, record.partition, record.offset)
        held = ValueTimestampHeaders(position + record.value, record.timestamp_ms, record.headers)
        self._chunks.put(place + _INDEX.pack(index), held)
        stored_bytes = len(place) + len(held.value) + len(record.headers.to_bytes())
        message.received += 1
        message.received_bytes += len(record.value)
        message.stored_bytes += stored_bytes
        self._stored_bytes += stored_bytes
        self._set(place, message, now_ms)
        self._make_room(place)

    def _make_room(self, newest: bytes) -> None:
        """Forget messages until no more are known than may be."""
        limits = self._limits
        while len(self._known) > limits.messages or self._stored_bytes > limits.bytes:
            why = f"more than {limits.messages} messages, or {limits.bytes} bytes of slices, were in state"
            self._give_up(self._least_needed(newest), why)

    def _least_needed(self, newest: bytes) -> bytes:
        """Return the message to forget first: the oldest delivered one, else the oldest, else the newest."""
        if self._stored_bytes <= self._limits.bytes:
            for place, message in self._known.items():
                if message.is_delivered and place != newest:
                    return place
        with_slices = (place for place, message in self._known.items() if message.received and place != newest)
        return next(with_slices, newest)

    def _glued(
        self, place: bytes, message: _Message, record: IngestedRecord, slice_: Slice, now_ms: int
    ) -> IngestedRecord:
        """Return the whole message of which `record` is the last slice to come, and forget its slices."""
        assert record.value is not None
        values = {slice_.index: record.value}
        headers, timestamp_ms = record.headers, record.timestamp_ms
        for index, held in self._chunks_of(place):
            values[index] = _position_and_value(held)[1]
            if index == 0:
                headers, timestamp_ms = held.headers, held.timestamp_ms
        self._empty(place, message)
        value = b"".join(values[index] for index in sorted(values))
        if (len(value), zlib.crc32(value)) != (message.size_bytes, message.crc32):
            self._forget(place)
            raise SliceError(
                f"message {slice_.message_id.hex()} is not what was sliced: its size or its checksum differs"
            )
        message.is_delivered = True
        self._set(place, message, now_ms)
        self._make_room(place)
        return record.copy(value=value, timestamp_ms=timestamp_ms, headers=headers.copy().remove(CHUNK_HEADER))

    def _give_up(self, place: bytes, why: str) -> None:
        """Forget a message, and refuse its first slice unless all of it was delivered before."""
        message = self._known[place]
        first, missing = None, set(range(message.count))
        if message.received and not message.is_delivered:
            for index, held in self._chunks_of(place):
                first = held if first is None else first
                missing.discard(index)
        self._empty(place, message)
        self._forget(place)
        if first is not None:
            message_id, shown = place[-MESSAGE_ID_BYTES:].hex(), _ranges(sorted(missing))
            error = SlicesIncompleteError(message_id=message_id, count=message.count, missing=shown, cause=why)
            self._refuse(_record(place, first), error)

    def _empty(self, place: bytes, message: _Message) -> None:
        if message.received:
            self._chunks.put_all([(place + _INDEX.pack(index), None) for index, _ in self._chunks_of(place)])
        self._stored_bytes -= message.stored_bytes
        message.received = message.received_bytes = message.stored_bytes = 0

    def _chunks_of(self, place: bytes) -> Iterable[tuple[int, Any]]:
        with self._chunks.range(place + _INDEX.pack(0), place + _INDEX.pack(MOST_SLICES)) as entries:
            yield from ((*_INDEX.unpack(chunk_place[-_INDEX.size :]), held) for chunk_place, held in entries)

    def _forget(self, place: bytes) -> None:
        self._known.pop(place, None)
        self._messages.put(place, None)

    def _set(self, place: bytes, message: _Message, now_ms: int) -> None:
        message.changed_ms = now_ms
        self._known.pop(place, None)
        self._known[place] = message
        self._messages.put(place, message.to_bytes())


def _position_and_value(held: Any) -> tuple[tuple[bool, int, int], bytes]:
    """Return whether a slice's record has a key, its partition and its offset; and its value."""
    has_key, partition, offset = _POSITION.unpack_from(held.value)
    value: bytes = held.value[_POSITION.size :]
    return (has_key, partition, offset), value


def _record(place: bytes, held: Any) -> IngestedRecord:
    """Return a slice as the record that it came as."""
    own = key_at_front(place)
    topic = key_at_front(map_key_of(own, place)).decode()
    (has_key, partition, offset), value = _position_and_value(held)
    key = own if has_key else None
    return ConsumerRecord.adopt(topic, partition, offset, held.timestamp_ms, key, value, held.headers)


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as text, those that follow each other as a range."""
    starts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    ends = [number for number, after in pairwise([*numbers, -2]) if after != number + 1]
    shown = [str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    return ", ".join(shown if len(shown) <= 10 else [*shown[:10], "..."])
