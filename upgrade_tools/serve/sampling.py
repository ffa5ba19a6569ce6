"""Figures of a store, from a sample that is read in bounded time at places spread over its keys."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import count, islice
from typing import Final

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.bytestore.upgrades import upgradable
from statestore.format.records.header_bytes import decode_headers
from statestore.format.values.stored_value import split_stored
from statestore.recovery.commit.figures import SizeFigures
from statestore.recovery.restore.restore import CommittedStore
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.serve.content import Document, content, key_content
from upgrade_tools.serve.following import ServedStage

_SAMPLED_PAIRS: Final = 10_000
"""Of a store, in all its shards."""
_SAMPLED_BYTES: Final = 32 << 20
"""Of a shard, as values may be large."""
_SAMPLE_AGE_S: Final = 15.0
SAMPLE_S: Final = 1.5
_PLACES: Final = 50
_LARGEST: Final = 15
_SHOWN_HEADERS: Final = 50
_SHOWN_VALUES: Final = 8
_COUNTED_VALUES: Final = 2_000
_COUNTED_BYTES: Final = 256
_PLACE_SIZE: Final = 8
_LEARNT_KEYS: Final = 200


@dataclass
class HeaderFigures:
    """How often a header was found, with which values."""

    count: int = 0
    size_bytes: int = 0
    values: Counter[bytes | None] = field(default_factory=Counter)

    def add(self, key: str, value: bytes | None) -> None:
        """Count a header."""
        self.count += 1
        self.size_bytes += len(key.encode(errors="replace")) + len(value or b"")
        is_counted = value in self.values or len(self.values) < _COUNTED_VALUES
        if is_counted and len(value or b"") <= _COUNTED_BYTES:
            self.values[value] += 1


@dataclass
class Sample:
    """What was read of a store, in the shards that were open or were opened for it."""

    spec: StoreSpec
    shards: int
    entries: dict[int, int] = field(default_factory=dict)
    """By shard, how many entries it has: counted if all were read, else RocksDB's estimate."""
    size_bytes: dict[int, int] = field(default_factory=dict)
    is_counted: bool = True
    """Whether all entries of the shards that were looked into were read."""
    entries_read: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    with_headers: int = 0
    upgrade_left: int = 0
    told: Mapping[int, SizeFigures] = field(default_factory=dict)
    """By shard, what the query has told of the store's size after the shard's last call."""
    headers: dict[str, HeaderFigures] = field(default_factory=dict)
    largest: list[tuple[int, int, int, StoredEntry]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    @property
    def has_all_shards(self) -> bool:
        """Whether all shards were looked into."""
        return len(self.entries) == self.shards

    def read(self, shard: int, store: CommittedStore, at_most: int) -> None:
        """Add a shard, reading about `at_most` pairs. Raises FormatError."""
        layout, before = layout_of(self.spec), self.entries_read
        self.size_bytes[shard] = store.bytes.approximate_size_bytes()
        found = list(_bounded(islice(store.bytes.range(None, None), at_most)))
        is_whole = not found or next(store.bytes.range(found[-1][0] + b"\x00", None), None) is None
        for pair in found if is_whole else _bounded(spread_pairs(store.bytes, at_most)):
            for key, start_ms, end_ms, stored in layout.entries([pair]):
                self._add(shard, StoredEntry(key, start_ms, end_ms, *split_stored(self.spec.format, stored)))
        self.is_counted &= is_whole
        estimated = max(store.bytes.approximate_num_entries(), len(found))
        self.entries[shard] = self.entries_read - before if is_whole else estimated
        upgrading = upgradable(store.bytes)
        if upgrading is not None:
            self.upgrade_left += upgrading.upgrade_progress().entries_left

    def _add(self, shard: int, entry: StoredEntry) -> None:
        header_size = len(entry.header_bytes or b"")
        self.entries_read += 1
        self.key_bytes += len(entry.key)
        self.value_bytes += len(entry.value)
        self.header_bytes += header_size
        self.with_headers += bool(header_size)
        size = len(entry.key) + len(entry.value) + header_size
        item = (size, next(self._numbers), shard, entry)
        if len(self.largest) < _LARGEST:
            heappush(self.largest, item)
        elif size > self.largest[0][0]:
            heappushpop(self.largest, item)
        if header_size:
            for key, value in decode_headers(entry.header_bytes or b""):
                figures = self.headers.get(key)
                if figures is None:
                    if len(self.headers) >= _COUNTED_VALUES:
                        continue
                    figures = self.headers[key] = HeaderFigures()
                figures.add(key, value)

    def document(self, encoding: EntryEncoding) -> Document:
        """Return the figures, with what was read to get them."""
        entries = {**{shard: sizes.entries for shard, sizes in self.told.items()}, **self.entries}
        size_bytes = {**{shard: sizes.size_bytes for shard, sizes in self.told.items()}, **self.size_bytes}
        return {
            "entries": sum(entries.values()),
            "counted": self.is_counted and self.has_all_shards,
            "shardsRead": len(self.entries),
            "shards": self.shards,
            "sampled": {
                "entries": self.entries_read,
                "keyBytes": self.key_bytes,
                "valueBytes": self.value_bytes,
                "headerBytes": self.header_bytes,
                "withHeaders": self.with_headers,
            },
            "upgradeLeft": self.upgrade_left,
            "byShard": [
                {"shard": shard, "entries": entries.get(shard), "sizeBytes": size_bytes.get(shard)}
                for shard in range(self.shards)
            ],
            "headers": self._headers(),
            "largest": [self._large(*item, encoding) for item in sorted(self.largest, reverse=True)],
        }

    def _headers(self) -> list[Document]:
        found = sorted(self.headers.items(), key=lambda item: (-item[1].count, item[0]))[:_SHOWN_HEADERS]
        return [
            {
                "name": name[:512],
                "count": figures.count,
                "sizeBytes": figures.size_bytes,
                "values": [
                    {"value": content(value, None, 128), "count": times}
                    for value, times in figures.values.most_common(_SHOWN_VALUES)
                ],
            }
            for name, figures in found
        ]

    def _large(self, size: int, _: int, shard: int, entry: StoredEntry, encoding: EntryEncoding) -> Document:
        sizes = {"keyBytes": len(entry.key), "valueBytes": len(entry.value), "sizeBytes": size}
        header_bytes = len(entry.header_bytes or b"")
        return {"shard": shard, "key": key_content(entry.key, encoding.key, 128), "headerBytes": header_bytes, **sizes}


def _bounded(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs until they have too many bytes."""
    left = _SAMPLED_BYTES
    for pair in pairs:
        yield pair
        left -= len(pair[0]) + len(pair[1])
        if left < 0:
            return


def spread_pairs(store: ByteStore, at_most: int) -> Iterator[Pair]:
    """Yield about `at_most` pairs of a store, in order, from places that are spread over its keys."""
    each, last = max(1, at_most // _PLACES), b""
    for place in _places(store):
        for pair in islice(store.range(place, None), each):
            if pair[0] > last or not last:
                yield pair
                last = pair[0]


def _places(store: ByteStore) -> Iterator[bytes]:
    """Yield keys between the first and the last one, whether they are there or not, in order.

    They are made of the bytes that keys have: between 1 and 2 in digits are ten keys, not 256.
    """
    known = [key for key, _ in islice(store.range(None, None), _LEARNT_KEYS)]
    known += [key for key, _ in islice(store.range(None, None, reverse=True), _LEARNT_KEYS)]
    if not known:
        return
    low, high = min(known), max(known)
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    ends = [key[same : same + _PLACE_SIZE] for key in known]
    letters = sorted({*b"".join(ends)}) or [0]
    base = len(letters)

    def number(end: bytes) -> int:
        digits = end.ljust(_PLACE_SIZE, bytes(letters[:1]))
        return sum(letters.index(digit) * base**place for place, digit in enumerate(reversed(digits)))

    first, last = number(min(ends)), number(max(ends))
    yield low
    for step in range(1, _PLACES):
        at = first + (last - first) * step // _PLACES
        yield low[:same] + bytes(letters[at // base**place % base] for place in reversed(range(_PLACE_SIZE)))


class Samples:
    """Samples of the stores of what is served. Each question looks into more shards, until all are read.

    Counts of all entries are of the batch that is served. A sample may be some seconds old: to open shards for each
    batch would take more than the query itself.
    """

    def __init__(self) -> None:
        self._samples: dict[str, tuple[str, float, Sample]] = {}

    def sample(self, stage: ServedStage, spec: StoreSpec, seconds: float = SAMPLE_S) -> Sample:
        """Return a store's figures, after reading for about `seconds`; open shards come first."""
        now = time.monotonic()
        at, made, sample = self._samples.get(spec.name, ("", now, None))
        if sample is None or (at != stage.at and (sample.is_counted or now - made > _SAMPLE_AGE_S)):
            shards = len(stage.state.parts_of(spec))
            told = {} if stage.head is None else stage.head.figures.sizes().get(spec.name, {})
            sample = Sample(spec, shards, told={shard: sizes for shard, sizes in told.items() if shard < shards})
            self._samples[spec.name] = stage.at, now, sample
        is_open = {*stage.open_shards}
        left = {*range(sample.shards)} - {*sample.entries}
        for shard in sorted(left, key=lambda shard: (shard not in is_open, shard)):
            if sample.entries and time.monotonic() > now + seconds:
                break
            sample.read(shard, stage.shard(shard)[spec.name], max(1, _SAMPLED_PAIRS // sample.shards))
        return sample
