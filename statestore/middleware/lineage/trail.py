"""PaperTrail: where a record has been, one entry a hop, in one header; mirrors add theirs.

    trail := version:01 dropped:uvarint count:uvarint entry*     count 1 to 64; dropped: older entries that are gone
    entry := by_whom:text produced_into_cluster:text produced_into_topic:text
             when_ms:varlong read_from_cluster:text read_from_topic:text
    text  := size:uvarint utf8                                   size 1 more than the bytes, at most 255 of them; 0 null

Varints are Kafka's. Source: the routing trail of the proposal for an architecture of metadata.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.errors import FormatError
from statestore.errors.middleware import TrailRefusedError
from statestore.format.binary_columns import row_objects
from statestore.format.varint import decode_uvarint, decode_varlong, encode_uvarint, encode_varlong
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.application import TRAIL_HEADER, Application, options, value_of

__all__ = ["Entry", "PaperTrail", "read_trail"]

MAX_ENTRIES: Final = 64
"""How many entries a trail can have."""

_VERSION: Final = 1
_MAX_TEXT_BYTES: Final = 255
_MAX_DROPPED: Final = 2**31 - 1
_MAX_WRITTEN: Final = 1000
_LONG: Final = "a number is not written in the shortest way"


class Entry(NamedTuple):
    """One hop of a record: who took it from where, and put it where."""

    by_whom: str
    produced_into_cluster: str | None = None
    produced_into_topic: str | None = None
    """None until the record is written to a topic."""
    when_ms: int = 0
    """When the entry was made: milliseconds since the epoch."""
    read_from_cluster: str | None = None
    read_from_topic: str | None = None
    """None if the record was written without being read from a topic."""


@dataclass(frozen=True)
class Trail:
    """The hops of a record, the latest last."""

    entries: tuple[Entry, ...] = ()
    dropped_entries: int = 0
    """How many older ones there were, which had no room."""

    def to_bytes(self) -> bytes:
        """Return the header's value. Raises ValueError for texts that are too long."""
        return _head(self.dropped_entries, len(self.entries)) + b"".join(map(_encode_entry, self.entries))

    @classmethod
    def from_bytes(cls, data: bytes) -> Trail:
        """Return the trail of a header's value. Raises TrailRefusedError for a malformed one."""
        walk = _Walk(data)
        return cls(tuple(Entry(*fields) for fields in walk.entries), walk.dropped)

    @classmethod
    def of_header(cls, value: bytes | None) -> Trail:
        """Return the trail of a header's value, an empty one for null. Raises TrailRefusedError."""
        return cls() if value is None else cls.from_bytes(value)


def read_trail(headers: Headers) -> Trail:
    """Return the trail of a record; an empty one if there is none. Raises TrailRefusedError for a malformed one."""
    return Trail.of_header(value_of(headers, TRAIL_HEADER))


class PaperTrail(Application):
    """Notes each hop of a record in its header `paper-trail`: see `docs/middleware/trail.md`.

    A record that is read gets one entry. When it is written, that entry says where to; a record that was not read gets
    an entry then. Beyond `max_entries` the oldest go, and the trail says how many.
    """

    kind = "trail"
    _options = options(STRING="by.whom read.from.cluster produced.into.cluster", INT="max.entries")
    goes_by = (TRAIL_HEADER,)
    changes = (TRAIL_HEADER,)

    def __init__(
        self,
        by_whom: str | None = None,
        *,
        read_from_cluster: str | None = None,
        produced_into_cluster: str | None = None,
        max_entries: int = 32,
    ) -> None:
        """Take what entries say; a `by_whom` of None is the host's name, where it runs.

        Raises ValueError for texts that are empty or of more than 255 bytes, and for `max_entries` that is not 1 to 64.
        """
        for text in (by_whom, read_from_cluster, produced_into_cluster):
            if text is not None and not 0 < len(text.encode()) <= _MAX_TEXT_BYTES:
                raise ValueError(f"a text of an entry has 1 to {_MAX_TEXT_BYTES} bytes, got {text!r}")
        if not 1 <= max_entries <= MAX_ENTRIES:
            raise ValueError(f"max_entries must be 1 to {MAX_ENTRIES}, got {max_entries}")
        self._by_whom: Final = by_whom
        self._read_from_cluster: Final = read_from_cluster
        self._produced_into_cluster: Final = produced_into_cluster
        self._max_entries: Final = max_entries
        self._written: dict[tuple[str, int, bool], bytes] = {}

    def init(self, context: InterceptorContext) -> None:
        """Take the clock."""
        super().init(context)
        self._written = {}

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Add an entry that says where the record was read. Raises TrailRefusedError for a malformed trail."""
        self._note(record, self._read)
        return (record,)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Say in the last entry where the record goes, or in a new one. Raises TrailRefusedError."""
        self._note(record, self._produced)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `on_ingest` does; of trails that are equal one is read."""
        return self._note_columns(records, self._read)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `on_emit` does; of trails that are equal one is read."""
        return self._note_columns(records, self._produced)

    def __repr__(self) -> str:
        return f"PaperTrail({self._by_whom!r})"

    def _read(self, value: bytes | None, topic: str) -> bytes:
        return self._with_entry(None if value is None else _Walk(value), topic, is_read=True)

    def _produced(self, value: bytes | None, topic: str) -> bytes:
        walk = None if value is None else _Walk(value)
        last = Entry(*walk.entries[-1]) if walk is not None else None
        if walk is None or last is None or last.produced_into_topic is not None:
            return self._with_entry(walk, topic, is_read=False)
        last = last._replace(produced_into_cluster=self._produced_into_cluster, produced_into_topic=topic)
        return walk.data[: walk.starts[-1]] + _encode_entry(last)

    def _with_entry(self, walk: _Walk | None, topic: str, *, is_read: bool) -> bytes:
        """Return a trail with one more entry; the bytes of the others are copied."""
        entry = self._entry_bytes(topic, self._now_ms(), is_read)
        if walk is None:
            return _head(0, 1) + entry
        count = len(walk.entries) + 1
        excess = max(0, count - self._max_entries)
        kept = walk.data[walk.starts[excess] :] if excess < count - 1 else b""
        return _head(min(walk.dropped + excess, _MAX_DROPPED), count - excess) + kept + entry

    def _entry_bytes(self, topic: str, when_ms: int, is_read: bool) -> bytes:
        """Return the bytes of an entry. Kept: entries of a batch differ only by their topics."""
        if (found := self._written.get((topic, when_ms, is_read))) is None:
            name = socket.gethostname() if self._by_whom is None else self._by_whom
            entry = Entry(name, self._produced_into_cluster, topic, when_ms)
            if is_read:
                entry = Entry(name, None, None, when_ms, self._read_from_cluster, topic)
            if len(self._written) >= _MAX_WRITTEN:
                self._written.clear()
            found = self._written[topic, when_ms, is_read] = _encode_entry(entry)
        return found

    def _note(self, record: IngestedRecord | EmittedRecord, note: Callable[[bytes | None, str], bytes]) -> None:
        value = note(value_of(record.headers, TRAIL_HEADER), record.topic)
        record.headers.remove(TRAIL_HEADER).add(TRAIL_HEADER, value)

    def _note_columns(self, records: RecordColumns, note: Callable[[bytes | None, str], bytes]) -> RecordColumns:
        if not len(records):
            return records
        topics: Any = records.topic
        trails = records.header(TRAIL_HEADER).dictionary_encode(null_encoding="encode")
        width = len(topics.dictionary)
        numbers = np.asarray(trails.indices) * width + np.asarray(topics.indices).astype(np.int64)
        pairs, rows = np.unique(numbers, return_inverse=True)
        values, names = row_objects(trails.dictionary), row_objects(topics.dictionary)
        made = pa.array([note(values[pair // width], names[pair % width]) for pair in pairs.tolist()], pa.binary())
        return records.without_header(TRAIL_HEADER).with_header(TRAIL_HEADER, made.take(pa.array(rows)))


def _encode_entry(entry: Entry) -> bytes:
    by_whom, into_cluster, into_topic, when_ms, from_cluster, from_topic = entry
    before, behind = (by_whom, into_cluster, into_topic), (from_cluster, from_topic)
    return b"".join((*map(_encode_text, before), encode_varlong(when_ms), *map(_encode_text, behind)))


def _encode_text(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    data = text.encode()
    if len(data) > _MAX_TEXT_BYTES:
        raise ValueError(f"a text of an entry has at most {_MAX_TEXT_BYTES} bytes, got {len(data)}")
    return encode_uvarint(len(data) + 1) + data


def _head(dropped: int, count: int) -> bytes:
    return bytes((_VERSION,)) + encode_uvarint(dropped) + encode_uvarint(count)


class _Walk:
    """The entries in the value of a header. Raises TrailRefusedError for a malformed one."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.entries: list[tuple[Any, ...]] = []
        """The fields of each entry."""
        self.starts: list[int] = []
        """Where each entry begins."""
        try:
            if data[0] != _VERSION:
                raise FormatError("trail", f"its version is not {_VERSION}")
            self.dropped, position = decode_uvarint(data, 1, "dropped entries of a trail")
            count, position = decode_uvarint(data, position, "entries of a trail")
            if not 1 <= count <= MAX_ENTRIES or self.dropped > _MAX_DROPPED:
                raise FormatError("trail", f"it has {count} entries, and {self.dropped} dropped ones")
            if data[:position] != _head(self.dropped, count):
                raise FormatError("trail", _LONG)
            for _ in range(count):
                self.starts.append(position)
                by_whom, position = _decode_text(data, position)
                into_cluster, position = _decode_text(data, position)
                into_topic, position = _decode_text(data, position)
                when_ms, position = _decode_time(data, position)
                from_cluster, position = _decode_text(data, position)
                from_topic, position = _decode_text(data, position)
                if by_whom is None:
                    raise FormatError("trail", "an entry has no by_whom")
                self.entries.append((by_whom, into_cluster, into_topic, when_ms, from_cluster, from_topic))
            if position != len(data):
                raise FormatError("trail", f"{len(data) - position} bytes stand behind its entries")
        except FormatError as cause:
            raise TrailRefusedError(header=TRAIL_HEADER, reason=cause.problem) from cause
        except UnicodeDecodeError:
            raise TrailRefusedError(header=TRAIL_HEADER, reason="a text is not UTF-8") from None
        except IndexError:
            raise TrailRefusedError(header=TRAIL_HEADER, reason="it is cut") from None


def _decode_text(data: bytes, position: int) -> tuple[str | None, int]:
    # One byte is enough for most sizes, and two are for all: this is called five times an entry.
    size = data[position]
    position += 1
    if size >= 0x80:
        size = size & 0x7F | data[position] << 7
        position += 1
        if not 0x80 <= size <= _MAX_TEXT_BYTES + 1:
            raise FormatError("trail", f"a text is longer than {_MAX_TEXT_BYTES} bytes, or {_LONG}")
    if size == 0:
        return None, position
    end = position + size - 1
    if end > len(data):
        raise IndexError
    return data[position:end].decode(), end


def _decode_time(data: bytes, position: int) -> tuple[int, int]:
    when_ms, end = decode_varlong(data, position, "time of an entry")
    if when_ms < 0:
        raise FormatError("trail", "a time is negative")
    if end > position + 1 and data[end - 1] == 0:
        raise FormatError("trail", _LONG)
    return when_ms, end
