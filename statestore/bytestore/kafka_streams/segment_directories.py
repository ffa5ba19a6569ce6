"""A store in a database per segment, as one ordered map: Kafka Streams' layout of windows and sessions.

A key begins with the id of its segment (see `segments`); the rest is the key in that segment's database. The order is
that of whole keys, so scans go through the segments one after the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from statestore.bytestore.engines.scans import ScannedStore
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, segment_of, segment_prefix
from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.bytestore.upgrades import Upgradable, UpgradeProgress, sum_of


class SegmentDirectories(ScannedStore):
    """A ByteStore over one for each segment, made by `create`, deleted by `remove`; a write is atomic in each."""

    def __init__(
        self,
        name: str,
        existing: Mapping[int, ByteStore],
        create: Callable[[int], ByteStore],
        remove: Callable[[int], None],
    ) -> None:
        super().__init__(name)
        self._segments = dict(sorted(existing.items()))
        self._create = create
        self._remove = remove

    @property
    def segment_ids(self) -> list[int]:
        """The ids of the segments that have a database, in order."""
        return list(self._segments)

    def segment(self, segment_id: int) -> ByteStore:
        """Return the byte store of one segment, whose keys are without its id. Raises KeyError if it has none."""
        return self._segments[segment_id]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        self._require_open()
        segment = self._segments.get(segment_of(key)) if len(key) >= SEGMENT_ID_SIZE else None
        return None if segment is None else segment.get(key[SEGMENT_ID_SIZE:])

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key; those of one segment as one atomic write.

        A segment's database is made for its first value. Raises ValueError before anything is changed, if a key does
        not begin with a segment's id.
        """
        self._require_open()
        changes_of: dict[int, list[Change]] = {}
        for key, value in changes:
            segment_id = segment_of(key) if len(key) >= SEGMENT_ID_SIZE else -1
            if segment_id < 0:
                raise ValueError(f"store {self.name!r}: key {key.hex()} does not begin with a segment's id")
            changes_of.setdefault(segment_id, []).append((key[SEGMENT_ID_SIZE:], value))
        for segment_id, pairs in changes_of.items():
            segment = self._segments.get(segment_id)
            if segment is None:
                if all(value is None for _, value in pairs):
                    continue
                segment = self._create(segment_id)
                self._segments = dict(sorted([*self._segments.items(), (segment_id, segment)]))
            segment.write(pairs)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`: segments that are wholly below it go with their directories."""
        self._require_open()
        last, rest = _split_bound(end)
        for segment_id in [known for known in self._segments if known < last]:
            for scan in list(self._scans):
                scan.read_ahead(segment_id)
            del self._segments[segment_id]
            self._remove(segment_id)
        if rest and last in self._segments:
            self._segments[last].delete_below(rest)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        self._require_open()
        first, lower = _split_bound(start or b"")
        last, upper = (None, None) if end is None else _split_bound(end)
        if end is not None and last is not None and len(end) < SEGMENT_ID_SIZE:
            # No key is that short: all keys of that segment are beyond it, and all keys of earlier ones are before it.
            last, upper = last - 1, None
        parts: deque[tuple[bytes, Iterator[Pair]]] = deque()
        for segment_id, segment in reversed(self._segments.items()) if reverse else self._segments.items():
            if first <= segment_id and (last is None or segment_id <= last):
                bounds = (lower if segment_id == first else None, upper if segment_id == last else None)
                parts.append((segment_prefix(segment_id), segment.range(*bounds, reverse=reverse)))
        scan = _Scan(parts)
        self._scans.add(scan)
        return iter(scan)

    def approximate_num_entries(self) -> int:
        """Return the sum of the segments' estimates."""
        self._require_open()
        return sum(segment.approximate_num_entries() for segment in self._segments.values())

    def approximate_size_bytes(self) -> int:
        """Return the sum of the segments' sizes."""
        self._require_open()
        return sum(segment.approximate_size_bytes() for segment in self._segments.values())

    def upgrade_progress(self) -> UpgradeProgress:
        """Return how many entries were moved since the segments were opened, and about how many are left, in all."""
        return sum_of(segment.upgrade_progress() for segment in self._upgradable_segments())

    def finish_upgrade(
        self, budget_ms: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> UpgradeProgress:
        """Move entries segment by segment, one slice at least, until none is left or any `budget_ms` is used up."""
        self._require_open()
        deadline = None if budget_ms is None else clock() + budget_ms / 1000
        for segment in self._upgradable_segments():
            if segment.upgrade_progress().is_finished:
                continue
            segment.finish_upgrade(None if deadline is None else max(0.0, (deadline - clock()) * 1000))
            if deadline is not None and clock() >= deadline:
                break
        return self.upgrade_progress()

    def _upgradable_segments(self) -> list[Upgradable]:
        return [segment for segment in self._segments.values() if isinstance(segment, Upgradable)]

    def close(self) -> None:
        """Close the store and its iterators; the databases themselves stay open."""
        super().close()
        for segment in self._segments.values():
            segment.close()


class _Scan(Iterable[Pair]):
    """The scans of segments, one after the other: snapshots already, each with the prefix of its segment's keys."""

    def __init__(self, parts: deque[tuple[bytes, Iterator[Pair]]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Pair]:
        while self._parts:
            prefix, pairs = self._parts[0]
            for key, value in pairs:
                yield prefix + key, value
                if not self._parts:
                    return  # this scan was closed, though `pairs` may have been read ahead
            if self._parts and self._parts[0][1] is pairs:  # otherwise the rest of them was read ahead
                self._parts.popleft()

    def read_ahead(self, removed: int) -> None:
        """Keep what is left to scan of a segment, before it is removed."""
        for place, (prefix, pairs) in enumerate(self._parts):
            if prefix == segment_prefix(removed):
                self._parts[place] = prefix, iter(list(pairs))

    def close(self) -> None:
        """End the scan."""
        self._parts.clear()


def _split_bound(bound: bytes) -> tuple[int, bytes]:
    """Return the segment's id that a key begins with, as its place in the order of keys, and the rest of the key."""
    return int.from_bytes(bound[:SEGMENT_ID_SIZE].ljust(SEGMENT_ID_SIZE, b"\0"), "big"), bound[SEGMENT_ID_SIZE:]
