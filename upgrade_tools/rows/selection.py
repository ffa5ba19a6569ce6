"""Selects entries of a store, reading as little as the layout allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from statestore.bytestore.header_index import found_pairs
from statestore.bytestore.kinds.entry_scan import (
    ALL_TIMES,
    EntryBounds,
    StoredEntry,
)
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout, Times, layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.bytestore.kinds.versioned_rows import Interval, intervals_in
from statestore.bytestore.protocol import Pair
from statestore.format.records.header_bytes import decode_headers
from statestore.format.values.stored_value import split_stored
from upgrade_tools.states.state import OpenStore

_REPLACEMENT: Final = "\ufffd"


class HeaderCondition(NamedTuple):
    """A header that an entry must have: with this key, and with this value unless that is None."""

    key: str
    value: bytes | None = None

    def holds(self, headers: Iterable[tuple[str, bytes | None]]) -> bool:
        """Return whether one of the headers is as asked for."""
        return any(key == self.key and self.value in (None, value) for key, value in headers)

    def may_hold(self, header_bytes: bytes) -> bool:
        """Return whether unparsed headers may have it: its key and value are somewhere in their bytes."""
        # A key that is not UTF-8 is read with replacement characters, which are not in its bytes.
        has_key = _REPLACEMENT in self.key or self.key.encode(errors="surrogatepass") in header_bytes
        return has_key and (self.value is None or self.value in header_bytes)


@dataclass(frozen=True)
class Selection:
    """Conditions that an entry must meet; None and () set none. Times are milliseconds since the epoch, inclusive.

    The time of an entry is the start of its window, the end of its session, the time from which its version is valid,
    or in a key-value store the timestamp of its value.
    """

    key: bytes | None = None
    prefix: bytes | None = None
    """What the key begins with."""
    time_from_ms: int | None = None
    time_to_ms: int | None = None
    window_start_ms: int | None = None
    version_at_ms: int | None = None
    """A time at which the version is valid."""
    headers: Sequence[HeaderCondition] = ()
    limit: int | None = None
    """How many entries; in versioned stores how many keys, with all their versions."""

    def reads_all_of(self, spec: StoreSpec) -> bool:
        """Return whether all entries of a store of `spec` must be read to find those that match."""
        narrows = self.key is not None or self.prefix is not None or self.limit is not None
        by_segments = self.asks_for_time or self.window_start_ms is not None
        return not narrows and not (by_segments and LAYOUTS[spec.kind].has_timed_keys)

    def check(self, spec: StoreSpec) -> None:
        """Raise ValueError if no entry of a store of `spec` can match."""
        kind = StoreType.of(spec).value
        if self.window_start_ms is not None and not spec.kind.has_windows:
            raise ValueError(f"store {spec.name!r} has no windows: it is {kind}")
        if self.version_at_ms is not None and not LAYOUTS[spec.kind].keeps_versions:
            raise ValueError(f"store {spec.name!r} has no versions: it is {kind}")
        if self.headers and not spec.format.has_headers:
            raise ValueError(f"store {spec.name!r} has no headers: it is {kind}")
        if self.asks_for_time and not spec.kind.is_segmented and not spec.format.has_timestamp:
            raise ValueError(f"store {spec.name!r} has no times: it is {kind}")

    @property
    def asks_for_time(self) -> bool:
        """Whether there is a condition on times."""
        return self.time_from_ms is not None or self.time_to_ms is not None

    def matches(self, spec: StoreSpec, entry: StoredEntry) -> bool:
        """Return whether an entry matches; its headers are decoded last. Raises FormatError for them."""
        return (
            self.matches_key(entry.key)
            and self._matches_times(spec, entry)
            and (not self.headers or self._matches_headers(entry.header_bytes or b""))
        )

    def matches_key(self, key: bytes) -> bool:
        """Return whether a key matches `key` and `prefix`."""
        return (self.key is None or key == self.key) and (self.prefix is None or key.startswith(self.prefix))

    def _matches_times(self, spec: StoreSpec, entry: StoredEntry) -> bool:
        if self.window_start_ms is not None and entry.start_ms != self.window_start_ms:
            return False
        at_ms = self.version_at_ms
        if at_ms is not None:
            assert entry.start_ms is not None  # `check` was called: these are versions
            if not entry.start_ms <= at_ms or (entry.end_ms is not None and at_ms >= entry.end_ms):
                return False
        if not self.asks_for_time:
            return True
        time_ms = _time_of(spec, entry)
        return (self.time_from_ms is None or self.time_from_ms <= time_ms) and (
            self.time_to_ms is None or time_ms <= self.time_to_ms
        )

    def _matches_headers(self, header_bytes: bytes) -> bool:
        if not all(condition.may_hold(header_bytes) for condition in self.headers):
            return False
        found = decode_headers(header_bytes)
        return all(condition.holds(found) for condition in self.headers)

    def bounds(self, layout: KindLayout) -> EntryBounds:
        """Return the bounds within which all matching entries of a store are."""
        times = {"start_ms": ALL_TIMES, "end_ms": ALL_TIMES}
        if layout.put_time_column is not None:
            times[layout.put_time_column] = _bounded(self.time_from_ms, self.time_to_ms)
        if self.window_start_ms is not None:
            first_ms, last_ms = times["start_ms"]
            times["start_ms"] = max(first_ms, self.window_start_ms), min(last_ms, self.window_start_ms)
        keys = None if self.key is None else (self.key,)
        return EntryBounds(keys, self.prefix or b"", starts_ms=times["start_ms"], ends_ms=times["end_ms"])


EVERYTHING: Final = Selection()
OnEntries: TypeAlias = Callable[[int], object]
"""Is told how many entries were read."""


def _nobody_asks(entries: int) -> None:
    """Is told, and does nothing."""


class Found(NamedTuple):
    """What was found for a key: one entry, or in a versioned store its versions, oldest first."""

    key: bytes
    entries: list[StoredEntry]


def select_entries(
    store: OpenStore, selection: Selection = EVERYTHING, on_entries: OnEntries = _nobody_asks
) -> Iterator[Found]:
    """Yield what matches, in the order of the store's bytes; in a versioned store in the order of its keys.

    A key without a matching version is left out, unless all conditions are on keys. `on_entries` is told of all entries
    that are read. Raises FormatError for bytes that are not of the store's kind and format.
    """
    find = _versions if LAYOUTS[store.spec.kind].keeps_versions else _entries
    return islice(find(store, selection, on_entries), selection.limit)


def _entries(store: OpenStore, selection: Selection, on_entries: OnEntries) -> Iterator[Found]:
    spec, layout = store.spec, layout_of(store.spec)
    pairs = _counted(chain.from_iterable(_found(store, selection)), on_entries)
    for key, start_ms, end_ms, stored in layout.entries(pairs):
        entry = StoredEntry(key, start_ms, end_ms, *split_stored(spec.format, stored))
        if selection.matches(spec, entry):
            yield Found(key, [entry])


def _found(store: OpenStore, selection: Selection) -> Iterator[Iterable[Pair]]:
    layout = layout_of(store.spec)
    return found_pairs(layout, store.bytes, selection.bounds(layout), selection.headers, store.segment_end)


def _counted(pairs: Iterable[Pair], on_entries: OnEntries) -> Iterator[Pair]:
    for pair in pairs:
        on_entries(1)
        yield pair


def _versions(store: OpenStore, selection: Selection, on_entries: OnEntries) -> Iterator[Found]:
    asks_for_versions = selection.version_at_ms is not None or bool(selection.headers) or selection.asks_for_time
    for key, intervals in intervals_in(_found(store, selection)):
        on_entries(len(intervals))
        if not selection.matches_key(key):
            continue
        all_versions = (_version(store.spec, key, interval) for interval in intervals if interval.stored is not None)
        versions = [version for version in all_versions if selection.matches(store.spec, version)]
        if versions or not asks_for_versions:
            yield Found(key, versions)


def _version(spec: StoreSpec, key: bytes, interval: Interval) -> StoredEntry:
    assert interval.stored is not None  # no tombstone
    return StoredEntry(key, interval.valid_from_ms, interval.valid_to_ms, *split_stored(spec.format, interval.stored))


def _bounded(first_ms: int | None, last_ms: int | None) -> Times:
    return ALL_TIMES[0] if first_ms is None else first_ms, ALL_TIMES[1] if last_ms is None else last_ms


def _time_of(spec: StoreSpec, entry: StoredEntry) -> int:
    time_ms: int | None = getattr(entry, LAYOUTS[spec.kind].put_time_column or "timestamp_ms")
    assert time_ms is not None  # `check` was called
    return time_ms
