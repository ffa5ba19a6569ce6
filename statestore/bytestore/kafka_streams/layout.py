"""Names and placement in a task's directory of Kafka Streams. The one owner of them.

    rocksdb/STORE/              the database of a key-value or versioned store
    STORE/STORE.START_MS/       the database of one segment of a window or session store
    .checkpoint                 changelog offsets of all stores, before Kafka Streams 4.3 (`offset_checkpoint`)
    STORE.position              input offsets of one store, likewise

START_MS is the time at which the segment begins: its id times the segment interval. Two older forms are read,
`STORE:START_MS` and `STORE-yyyyMMddHHmm` in UTC. Kafka Streams does not open a store with anything else beside its
segments. A database has the column families of `store_spec.FAMILIES`, and `offsets`:

    status                      i64: 1 while open, 0 after it was closed
    CHANGELOG_TOPIC-PARTITION   i64: offset of the last changelog record that is in the database, -4 = unknown
    position                    `format.position`
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from math import gcd
from pathlib import Path
from typing import Final, NamedTuple

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind, StoreSpec, older_formats
from statestore.bytestore.protocol import Pair
from statestore.errors import FormatError, StoreFormatError
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.offset_checkpoint import TopicPartition
from statestore.format.values.store_format import StoreFormat

CHECKPOINT_FILE: Final = ".checkpoint"
RECORD_FILE: Final = "statestore.store.json"

OFFSETS_FAMILY: Final = "offsets"
STATUS_KEY: Final = b"status"
POSITION_KEY: Final = b"position"
STATUS_OPEN: Final = 1
STATUS_CLOSED: Final = 0

_HAS_SEGMENT_DIRECTORIES: Final = {
    StoreKind.KEY_VALUE: False,
    StoreKind.VERSIONED: False,
    StoreKind.WINDOW: True,
    StoreKind.SESSION: True,
}
_TIME_FIRST: Final = slice(1, 9)
_BUFFER: Final = "-Buffer"  # what Kafka Streams calls buffers of joins, which have one segment for all times
_SEGMENT: Final = re.compile(r"[.:](?P<start_ms>0|[1-9][0-9]{0,18})|-(?P<minute>[0-9]{12})")


def has_segment_directories(kind: StoreKind) -> bool:
    """Return whether stores of this kind have a database for each segment; others have a single one."""
    return _HAS_SEGMENT_DIRECTORIES[kind]


def database_directory(task: Path, store: str) -> Path:
    """Return where the database of a store without segment directories is."""
    return task / "rocksdb" / store


def segments_directory(task: Path, store: str) -> Path:
    """Return where the directories of a store's segments are, and nothing else may be."""
    return task / store


def segment_name(store: str, start_ms: int) -> str:
    """Return the name of a segment's directory, which Kafka Streams also uses in its errors."""
    return f"{store}.{start_ms}"


def segment_start_ms(store: str, name: str) -> int | None:
    """Return when the segment of a directory begins, None if `name` is not a segment's name."""
    found = _SEGMENT.fullmatch(name.removeprefix(store)) if name.startswith(store) else None
    if found is None:
        return None
    if found["start_ms"]:
        start_ms = int(found["start_ms"])
        return start_ms if start_ms <= MAX_TIME_MS else None
    try:
        minute = datetime.strptime(found["minute"], "%Y%m%d%H%M").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(minute.timestamp()) * 1000 if minute.year >= 1970 else None


class SegmentSpan(NamedTuple):
    """The times that belong in a segment: `start_ms` up to, without, `end_ms`; None is no end."""

    start_ms: int
    end_ms: int | None

    def holds(self, time_ms: int) -> bool:
        """Return whether a time belongs in it."""
        return self.start_ms <= time_ms and (self.end_ms is None or time_ms < self.end_ms)


def segment_spans(starts_ms: Collection[int]) -> list[SegmentSpan]:
    """Return the span of each of a store's segments, as far as their beginnings tell: the interval divides them."""
    longest_ms = gcd(*starts_ms)
    return [SegmentSpan(start_ms, start_ms + longest_ms if longest_ms else None) for start_ms in starts_ms]


def refuse_time_order(spec: StoreSpec, span: SegmentSpan, pairs: Iterable[Pair], where: str) -> None:
    """Raise StoreFormatError if the keys of a segment begin with 00 and the time, as in what is emitted when it closes.

    `pairs` are those of the segment, of which one is read. Source: Kafka's PrefixedWindowKeySchemas.
    """
    for key, _ in pairs:
        try:
            is_by_key = span.holds(layout_of(spec).put_time_ms(key))
            is_by_key &= span.end_ms is not None or not spec.name.endswith(_BUFFER)
        except FormatError:
            is_by_key = False
        if not is_by_key and key[:1] == b"\0" and span.holds(int.from_bytes(key[_TIME_FIRST], "big")):
            raise StoreFormatError(
                spec.name,
                recorded="a store in order of time (of EmitStrategy.onWindowClose, or a join's buffer)",
                asked=f"a {spec.kind.value} store",
                where=where,
                remedy="Only its changelog can be read: use `changelog to-state`",
            )
        return


def position_file(task: Path, store: str) -> Path:
    """Return the file in which Kafka Streams before 4.3 kept the position of a store."""
    return task / f"{store}.position"


def column_family(spec: StoreSpec, store_format: StoreFormat | None = None) -> str:
    """Return the name of the column family that holds the entries of `spec`, in another format if one is given."""
    return FAMILIES[spec.kind][spec.format if store_format is None else store_format]


def known_families(spec: StoreSpec) -> list[str]:
    """Return the column families that a database of `spec` may have, with those of formats that it can upgrade."""
    formats = (spec.format, *older_formats(spec.kind, spec.format))
    return sorted({DEFAULT_FAMILY, OFFSETS_FAMILY, *(column_family(spec, known) for known in formats)})


def changelog_partition(application_id: str, store: str, partition: int) -> TopicPartition:
    """Return the partition of the changelog topic that a task's store is restored from."""
    return TopicPartition(f"{application_id}-{store}-changelog", partition)


def offset_key(changelog: TopicPartition) -> bytes:
    """Return the key of the changelog's offset in the family `offsets`."""
    return str(changelog).encode()


def changelog_of(key: bytes) -> TopicPartition | None:
    """Return the changelog whose offset is under a key in the family `offsets`, None for other keys."""
    topic, dash, partition = key.decode(errors="replace").rpartition("-")
    return TopicPartition(topic, int(partition)) if dash and partition.isascii() and partition.isdigit() else None
