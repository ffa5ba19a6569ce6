"""Compares two states entry by entry, whatever their layouts, formats and numbers of parts.

Entries are matched by key, whichever part they are in. First both states are read part by part, and their entries are
counted and summed up. Only parts whose sums differ are then compared entry by entry, merged in the order of keys: so
memory does not grow with the state, but these parts are all open at the same time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import Any, Final, NamedTuple

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.bytestore.kinds.versioned_rows import intervals_by_key
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.errors import StoreFormatError
from statestore.format.records.header_bytes import decode_headers
from statestore.format.values.stored_value import split_stored
from statestore.recovery.making.logical_writes import LogicalWrite, Tally
from upgrade_tools.errors import UnknownKindError
from upgrade_tools.states.state import OpenStore, State

_STEP: Final = 1_000
_TIME: Final = struct.Struct(">q")
_UNENDED: Final = -1
OnEntries = Callable[[int], None]


@dataclass(frozen=True)
class Ignored:
    """What is not compared."""

    headers: bool = False
    timestamps: bool = False


class EntryDifference(NamedTuple):
    """An entry of `store` that differs between the states; None if a state does not have it."""

    store: str
    first: StoredEntry | None
    second: StoredEntry | None
    changed: tuple[str, ...] = ()
    """What differs if both states have it: value, timestamp, headers, end."""

    @property
    def entry(self) -> StoredEntry:
        """The entry of the first state, or else that of the second."""
        found = self.first or self.second
        assert found is not None
        return found


@dataclass
class StoreComparison:
    """The result for one store."""

    name: str
    entries: tuple[int, int] = (0, 0)
    """How many entries the first and the second state have; in versioned stores versions."""
    is_same: bool = True
    """As far as is known: after counting, whether the sums are equal; then, whether a difference was found."""


@dataclass
class _Side:
    """One of the two states, with the sums of its stores."""

    state: State
    specs: Mapping[str, StoreSpec]
    totals: dict[str, Tally] = field(default_factory=dict)
    by_part: dict[tuple[str, int], Tally] = field(default_factory=dict)


class Comparison:
    """Compares the stores of two states that have the same name.

    Raises UnknownKindError if only one store's format has headers or timestamps and they are not ignored, and
    StoreFormatError for stores of different kinds, or with windows of different sizes.
    """

    def __init__(self, first: State, second: State, ignored: Ignored, on_entries: OnEntries) -> None:
        specs = {spec.name: spec for spec in first.specs()}
        # What the files of the second do not say is taken from the first.
        like = {spec.name: spec for spec in second.specs(specs)}
        self._sides = (_Side(first, specs), _Side(second, like))
        self._ignored = ignored
        self._on_entries = on_entries
        names = [set(side.specs) for side in self._sides]
        self.only_in = (sorted(names[0] - names[1]), sorted(names[1] - names[0]))
        """Stores that the other state does not have."""
        self._names = sorted(names[0] & names[1])
        # A state that a tool made does not say yet that each shard has all of a store.
        self._global_stores = first.global_stores | second.global_stores
        for name in self._names:
            self._refuse_incomparable(name)
        self.stores = [StoreComparison(name) for name in self._names]

    @property
    def is_same(self) -> bool:
        """Whether both have the same stores with the same entries; known once `differences` has ended."""
        return not any(self.only_in) and all(store.is_same for store in self.stores)

    def _refuse_incomparable(self, name: str) -> None:
        first, second = (side.specs[name] for side in self._sides)
        where = self._sides[0].state.path
        if (first.kind, first.window_size_ms) != (second.kind, second.window_size_ms):
            raise StoreFormatError(
                name, recorded=first.describe(), asked=second.describe(), where=where, remedy="They can't be compared"
            )
        for what, ignored, has in (
            ("headers", self._ignored.headers, (first.format.has_headers, second.format.has_headers)),
            ("timestamps", self._ignored.timestamps, (first.format.has_timestamp, second.format.has_timestamp)),
        ):
            if has[0] != has[1] and not ignored:
                without, newer = (1, first) if has[0] else (0, second)
                raise UnknownKindError(
                    self._sides[without].state.path,
                    problem=f"the {what} of store {name!r}, which the other state has",
                    remedy=f"ignore them with --ignore-{what}, or read it as an upgrade to "
                    f"{StoreType.of(newer).value}, with {'--other-kind' if without else '--kind'}",
                )

    def spec_of(self, found: EntryDifference) -> StoreSpec:
        """Return the spec of a difference's store, in the state that its entry is from."""
        return self._sides[found.first is None].specs[found.store]

    def count(self) -> None:
        """Read both states, and find out how many entries there are and whether they are the same."""
        for side in self._sides:
            for part in side.state.parts:
                specs = [side.specs[name] for name in self._names if part in self._parts(side, name)]
                if not specs:
                    continue
                with side.state.open(part, specs) as stores:
                    for spec in specs:
                        self._tally(side, part, stores[spec.name])
        for store in self.stores:
            first, second = (side.totals.get(store.name, Tally()) for side in self._sides)
            store.entries = (first.entries, second.entries)
            store.is_same = first == second

    def _tally(self, side: _Side, part: int, store: OpenStore) -> None:
        name = store.spec.name
        total = side.totals.setdefault(name, Tally())
        tally = side.by_part.setdefault((name, part), Tally())
        plain = self._is_plain(name)
        writes = (_as_write(store.spec, keyed, None if plain else self._ignored) for keyed in _keyed(store))
        for chunk in chunks(writes, max_rows=_STEP):
            total.add(chunk)
            tally.add(chunk)
            self._on_entries(len(chunk))

    def _parts(self, side: _Side, store: str) -> Sequence[int]:
        """Return the parts to read for a store."""
        return side.state.parts[:1] if store in self._global_stores else side.state.parts

    def _is_plain(self, name: str) -> bool:
        """Whether stored values can be compared as they are."""
        first, second = (side.specs[name] for side in self._sides)
        return first.format is second.format and not (self._ignored.headers or self._ignored.timestamps)

    def differences(self) -> Iterator[EntryDifference]:
        """Yield the entries that differ, store by store, in the order of keys. Call `count` first."""
        for store in self.stores:
            if store.is_same:
                continue
            # Sums may differ though entries do not: the same headers can be encoded in several ways.
            store.is_same = True
            for difference in self._differences_of(store.name):
                store.is_same = False
                yield difference

    def _differences_of(self, name: str) -> Iterator[EntryDifference]:
        with ExitStack() as opened:
            sides = [self._merged(side, name, opened) for side in self._sides]
            yield from self._compare(name, *sides)

    def _merged(self, side: _Side, name: str, opened: ExitStack) -> Iterator[_Keyed]:
        spec = side.specs[name]
        parts = [part for part in self._parts(side, name) if self._differs(name, part)]
        stores = [opened.enter_context(side.state.open(part, [spec]))[name] for part in parts]
        return merge(*(_keyed(store) for store in stores), key=itemgetter(0, 1))

    def _differs(self, name: str, part: int) -> bool:
        """Return whether a part differs from the other state's part of the same number."""
        first, second = (side.by_part.get((name, part)) for side in self._sides)
        return first != second

    def _compare(self, name: str, first: Iterator[_Keyed], second: Iterator[_Keyed]) -> Iterator[EntryDifference]:
        specs = [side.specs[name] for side in self._sides]
        one, other = next(first, None), next(second, None)
        while one is not None or other is not None:
            if other is None or (one is not None and one[:2] < other[:2]):
                assert one is not None
                yield EntryDifference(name, one.entry(specs[0]), None)
                one = next(first, None)
            elif one is None or other[:2] < one[:2]:
                yield EntryDifference(name, None, other.entry(specs[1]))
                other = next(second, None)
            else:
                if one.raw != other.raw or specs[0].format is not specs[1].format:
                    found = EntryDifference(name, one.entry(specs[0]), other.entry(specs[1]))
                    changed = _changed(found, self._ignored)
                    if changed:
                        yield found._replace(changed=changed)
                one, other = next(first, None), next(second, None)


class _Keyed(NamedTuple):
    """An entry, ordered alike in all layouts: by key without segment, and time of the version."""

    key: bytes
    valid_from_ms: int
    stored: bytes
    valid_to_ms: int

    @property
    def raw(self) -> tuple[bytes, int]:
        return self.stored, self.valid_to_ms

    def entry(self, spec: StoreSpec) -> StoredEntry:
        layout, parts = layout_of(spec), split_stored(spec.format, self.stored)
        if layout.keeps_versions:
            valid_to_ms = None if self.valid_to_ms == _UNENDED else self.valid_to_ms
            return StoredEntry(self.key, self.valid_from_ms, valid_to_ms, *parts)
        key, start_ms, end_ms, _ = layout.split(self.key)
        return StoredEntry(key, start_ms, end_ms, *parts)


def _keyed(store: OpenStore) -> Iterator[_Keyed]:
    spec = store.spec
    if LAYOUTS[spec.kind].keeps_versions:
        for key, intervals in intervals_by_key(spec, store.bytes):
            for valid_from_ms, valid_to_ms, stored in intervals:
                if stored is not None:
                    yield _Keyed(key, valid_from_ms, stored, _UNENDED if valid_to_ms is None else valid_to_ms)
        return
    pairs = store.bytes.range(None, None) if not spec.kind.is_segmented else _unsegmented(spec, store.bytes)
    for key, stored in pairs:
        yield _Keyed(key, 0, stored, _UNENDED)


def _unsegmented(spec: StoreSpec, store: ByteStore) -> Iterator[Pair]:
    """Yield the entries of all segments in the order of their keys, as the other state's segments may differ."""
    ids = Segments(store, *spec.retention).ids()
    return merge(*(_segment(store, segment_prefix(segment_id)) for segment_id in ids), key=itemgetter(0))


def _segment(store: ByteStore, prefix: bytes) -> Iterator[Pair]:
    for key, stored in pairs_with_prefix(store, prefix):
        yield key[SEGMENT_ID_SIZE:], stored


def _as_write(spec: StoreSpec, keyed: _Keyed, ignored: Ignored | None) -> LogicalWrite:
    """Return an entry as it is summed up; if `ignored` is None, its stored value counts as it is."""
    stored = keyed.stored
    if ignored is not None:
        parts = split_stored(spec.format, stored)
        headers = b"" if ignored.headers else parts.header_bytes or b""
        timestamp_ms = 0 if ignored.timestamps else parts.timestamp_ms or 0
        stored = b"".join((_TIME.pack(timestamp_ms), _TIME.pack(len(headers)), headers, parts.value))
    return LogicalWrite(keyed.key, _TIME.pack(keyed.valid_to_ms) + stored, keyed.valid_from_ms)


def _changed(found: EntryDifference, ignored: Ignored) -> tuple[str, ...]:
    one, other = found.first, found.second
    assert one is not None
    assert other is not None
    headers = (one.header_bytes or b"", other.header_bytes or b"")
    changes: Iterable[tuple[str, Any]] = (
        ("value", one.value != other.value),
        ("timestamp", not ignored.timestamps and one.timestamp_ms != other.timestamp_ms),
        ("end", one.end_ms != other.end_ms),
        (
            "headers",
            not ignored.headers
            and headers[0] != headers[1]
            and decode_headers(headers[0]) != decode_headers(headers[1]),
        ),
    )
    return tuple(what for what, is_changed in changes if is_changed)
