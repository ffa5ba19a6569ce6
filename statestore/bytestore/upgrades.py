"""Stores whose database holds an older format: opened as a lazy upgrade, or refused.

In an upgrade, a read that finds its key in the older family converts the value and moves it; writes go to the new one
only. Iterators merge both and move nothing. The older family is dropped with its last entry; then the upgrade is free.
Source: KIP-1271, DualColumnFamilyAccessor of Kafka Streams, which drops the older family at the next open only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, Protocol, runtime_checkable

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase
from statestore.bytestore.engines.scans import ScannedStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind, StoreSpec, older_formats, skips_a_step
from statestore.bytestore.protocol import ByteStore, Change, Pair, Range
from statestore.errors import FormatError, StoreError, StoreFormatError
from statestore.errors.readable import key_digest
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import upgrade_between

_MOVED_AT_ONCE = 500  # how many entries `finish_upgrade` moves in one write at most: a slice of about a millisecond

Convert = Callable[[bytes, bytes], bytes]  # turns the value of a key in the older format into one in the newer


@dataclass(frozen=True)
class UpgradeProgress:
    """How far an upgrade is. `entries_left` is RocksDB's estimate, at least 1 before it is finished."""

    entries_moved: int
    entries_left: int

    @property
    def is_finished(self) -> bool:
        """Whether no entry is left in the older format."""
        return self.entries_left == 0


def sum_of(progresses: Iterable[UpgradeProgress]) -> UpgradeProgress:
    """Return the progress of several upgrades together."""
    found = list(progresses)
    return UpgradeProgress(sum(one.entries_moved for one in found), sum(one.entries_left for one in found))


@runtime_checkable
class Upgradable(Protocol):
    """A byte store that may have entries in an older format."""

    def upgrade_progress(self) -> UpgradeProgress:
        """Return how many entries were moved since the store was opened, and about how many are left."""

    def finish_upgrade(self, budget_ms: float | None = None) -> UpgradeProgress:
        """Move entries until none is left or `budget_ms` is used up; None means no limit."""


def upgradable(store: ByteStore) -> Upgradable | None:
    """Return the upgrading store below the layers of `store`, None if there is none."""
    below: object = store
    while not isinstance(below, Upgradable):
        below = getattr(below, "inner", None)
        if below is None:
            return None
    return below


class UpgradingByteStore(ScannedStore):
    """A ByteStore over the column family of a new format, while that of an older one still has entries."""

    def __init__(self, database: RocksDBDatabase, newer: str, older: str, convert: Convert, name: str) -> None:
        super().__init__(name)
        self.entries_moved = 0
        """How many entries were moved since the store was opened, by reads and by `finish_upgrade`."""
        self._database = database
        self._newer_name = newer
        self._older_name = older
        self._newer = database.family(newer, name)
        self._older: ByteStore | None = database.family(older, name)
        self._convert = convert
        self._first_older: bytes = b""
        """No entry of the older family is below this key: the search for the first one skips deleted ones."""
        self._drop_older_if_empty()

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return self._newer.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none; one that was found in the older family is moved."""
        value = self._newer.get(key)
        if value is not None or self._older is None:
            return value
        legacy = self._older.get(key)
        if legacy is None:
            return None
        value = self._upgrade_value(key, legacy)
        self._database.write({self._older_name: [(key, None)], self._newer_name: [(key, value)]})
        self.entries_moved += 1
        self._note_gone([key])
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none; those found in the older family are moved."""
        return self._newer.get_many(keys) if self._older is None else super().get_many(keys)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order as one atomic write, a value of None deleting its key."""
        if self._older is None:
            self._newer.write(changes)
            return
        self._require_open()
        pairs = list(changes)
        self._database.write({self._older_name: [(key, None) for key, _ in pairs], self._newer_name: pairs})
        self._note_gone(key for key, _ in pairs)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        if self._older is None:
            self._newer.delete_below(end)
            return
        self._require_open()
        self._database.delete_below([self._older_name, self._newer_name], end)
        if end > self._first_older:
            self._drop_older_if_empty()

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        newer = self._newer.range(start, end, reverse=reverse)
        if self._older is None:
            return newer
        return self._hand_out(self._merge(newer, self._older.range(start, end, reverse=reverse), reverse))

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        return self._newer.range_many(ranges) if self._older is None else super().range_many(ranges)

    def approximate_num_entries(self) -> int:
        """Return the sum of both families' estimates."""
        return self._newer.approximate_num_entries() + (self._older.approximate_num_entries() if self._older else 0)

    def approximate_size_bytes(self) -> int:
        """Return the sum of both families' sizes."""
        return self._newer.approximate_size_bytes() + (self._older.approximate_size_bytes() if self._older else 0)

    def upgrade_progress(self) -> UpgradeProgress:
        """Return how many entries were moved since the store was opened, and about how many are left."""
        left = 0 if self._older is None else max(1, self._older.approximate_num_entries())
        return UpgradeProgress(self.entries_moved, left)

    def finish_upgrade(
        self, budget_ms: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> UpgradeProgress:
        """Move entries in key order, one slice at least, until none is left or `budget_ms`, if any, is used up."""
        self._require_open()
        deadline = None if budget_ms is None else clock() + budget_ms / 1000
        while self._older is not None:
            found = next(chunks(self._older.range(self._first_older, None), max_rows=_MOVED_AT_ONCE), [])
            moved = [(key, self._upgrade_value(key, value)) for key, value in found if self._newer.get(key) is None]
            self._database.write({self._older_name: [(key, None) for key, _ in found], self._newer_name: moved})
            self.entries_moved += len(moved)
            self._note_gone(key for key, _ in found)
            if deadline is not None and clock() >= deadline:
                break
        return self.upgrade_progress()

    def close(self) -> None:
        """Close the store and its iterators; the database itself stays open."""
        super().close()
        self._newer.close()
        if self._older is not None:
            self._older.close()

    def _merge(self, newer: Iterator[Pair], older: Iterator[Pair], reverse: bool) -> Generator[Pair, None, None]:
        tagged = (((key, value), True) for key, value in older)
        last: bytes | None = None
        for (key, value), is_legacy in merge(
            ((pair, False) for pair in newer), tagged, key=lambda entry: entry[0][0], reverse=reverse
        ):
            if key != last:
                last = key
                yield (key, self._upgrade_value(key, value)) if is_legacy else (key, value)

    def _upgrade_value(self, key: bytes, legacy: bytes) -> bytes:
        try:
            return self._convert(key, legacy)
        except FormatError as cause:
            raise StoreError(
                self.name,
                f"the entry of the key of digest {key_digest(key)} in column family {self._older_name!r} is not in its "
                f"format ({cause}): the local state is damaged. Delete it, and restore the store from its "
                "changelog",
            ) from cause

    def _note_gone(self, keys: Iterable[bytes]) -> None:
        if self._first_older in keys:
            self._drop_older_if_empty()

    def _drop_older_if_empty(self) -> None:
        """Find the first entry left in the older family; without one, drop the family and be the new one alone."""
        assert self._older is not None
        first = next(self._older.range(self._first_older, None), None)
        if first is not None:
            self._first_older = first[0]
            return
        self._older = None
        if self._older_name != DEFAULT_FAMILY:
            self._database.drop_family(self._older_name)
        # A finished upgrade costs not even a call.
        for operation in ("get", "put", "write", "range", "delete_below"):
            setattr(self, operation, getattr(self._newer, operation))


_TAKE_BOTH_STEPS: Final = (
    "KIP-1271 has no upgrade from plain values to headers, as their timestamps are unknown. Give the store its "
    "timestamped builder first, start once, finish the upgrade (`finish_upgrade`, or `upgrade-tools finish-upgrade`), "
    "and then take the builder with headers; or do both steps at once, with the builder's "
    "`with_upgrade_through_timestamped()` or `upgrade-tools migrate --to headers --through-timestamped`. Either way "
    "such values have the timestamp -1 until they are written again, unless `upgrade-tools migrate --timestamp-ms MS` "
    "gives them one"
)

FamilyName = Callable[[StoreFormat], str]  # names the column family of a store in a format: a layout's


def open_store(
    database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName, name: str, *, begins_upgrade: bool = False
) -> ByteStore:
    """Return the byte store of `spec` in a database that has its family, as an upgrade if there is an older format.

    `name` is the store's, or its segment's, in errors. Raises StoreFormatError if it has entries in two older formats,
    or if `begins_upgrade` and the upgrade skips a step without the permission of `spec`.
    """
    wanted = family_name(spec.format)
    older, nonempty = _older_families(database, spec, family_name)
    if len(nonempty) > 1:
        raise StoreFormatError(
            name,
            recorded=" and ".join(known.describe() for known in nonempty) + " at the same time",
            asked=spec.format.describe(),
            where=database.path,
            remedy=f"Finish the upgrade to {nonempty[0].describe()} first, with a store of that format, or delete the "
            "local state and restore the store from its changelog",
        )
    for known in older:
        if known not in nonempty and family_name(known) != DEFAULT_FAMILY:
            database.drop_family(family_name(known))
    if not nonempty:
        return database.family(wanted, name)
    if begins_upgrade:
        refuse_skipped_step(nonempty[0], spec, database.path, name)
    convert = conversion(spec.kind, nonempty[0], spec.format)
    return UpgradingByteStore(database, wanted, family_name(nonempty[0]), convert, name)


def finish_older_upgrades(database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName, name: str) -> None:
    """Move entries in several older formats, which `open_store` would refuse, through the formats into one."""
    _, nonempty = _older_families(database, spec, family_name)
    while len(nonempty) > 1:
        oldest, newer = nonempty.pop(), nonempty[-1]
        convert = conversion(spec.kind, oldest, newer)
        UpgradingByteStore(database, family_name(newer), family_name(oldest), convert, name).finish_upgrade()


def _older_families(
    database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName
) -> tuple[list[StoreFormat], list[StoreFormat]]:
    """Return the older formats that a store has families of, the newest first, and those of them with entries."""
    older = [known for known in older_formats(spec.kind, spec.format) if family_name(known) in database.families]
    nonempty = [known for known in older if next(database.family(family_name(known)).range(None, None), None)]
    return older, nonempty


def refuse_downgrade(
    present: Collection[str], spec: StoreSpec, family_name: FamilyName, where: str, name: str, remedy: str | None = None
) -> None:
    """Raise StoreFormatError if one of the families in `present` is that of a newer format than `spec` has."""
    for newer in FAMILIES[spec.kind]:
        if spec.format in older_formats(spec.kind, newer) and family_name(newer) in present:
            raise _refusal(newer, spec, where, name, remedy or downgrade_remedy(spec))


def is_downgrade(recorded: StoreSpec, asked: StoreSpec) -> bool:
    """Return whether a store is asked for in an older format than is recorded."""
    return recorded.kind is asked.kind and asked.format in older_formats(asked.kind, recorded.format)


def downgrade_remedy(spec: StoreSpec) -> str:
    """Return what to do if a store of a directory is asked for as `spec`, in an older format than it has."""
    return (
        "A downgrade in place is not supported, as it would lose what the older format has no room for. Open it in "
        "the recorded format; or rebuild it in a new place, with `upgrade-tools downgrade DIR TARGET --to "
        f"{spec.format.describe()} --store {spec.name}`; or delete the local state and restore the store from its "
        "changelog"
    )


def refuse_skipped_step(recorded: StoreFormat, spec: StoreSpec, where: str, name: str) -> None:
    """Raise StoreFormatError if `spec` would give plain values headers at once, without permission."""
    if skips_a_step(recorded, spec.format) and not spec.through_timestamped:
        raise _refusal(recorded, spec, where, name, _TAKE_BOTH_STEPS)


def _refusal(found: StoreFormat, spec: StoreSpec, where: str, name: str, remedy: str) -> StoreFormatError:
    recorded = f"{spec.kind.value} store, {found.describe()}"
    return StoreFormatError(name, recorded=recorded, asked=spec.describe(), where=where, remedy=remedy)


def conversion(kind: StoreKind, older: StoreFormat, newer: StoreFormat) -> Convert:
    """Return the function that converts an entry of a store of this kind from one format to a newer one."""
    convert_value = upgrade_between(older, newer)
    assert convert_value is not None  # `older` is one of older_formats()
    return LAYOUTS[kind].conversion(convert_value)
