"""Makes one task's directory of Kafka Streams: fills each database in key order, reads it back, compares, and notes it.

A run that was cut off continues: databases in the journal are not made again, and a partly filled one continues after
its last key, since entries are written in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.engines.table_files import SortedFill
from statestore.bytestore.kafka_streams.layout import (
    OFFSETS_FAMILY,
    POSITION_KEY,
    STATUS_CLOSED,
    STATUS_KEY,
    STATUS_OPEN,
    changelog_partition,
    column_family,
    offset_key,
)
from statestore.bytestore.kafka_streams.store_database import write_record
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.protocol import Pair
from statestore.format.position import OFFSET_UNKNOWN, Position, encode_long, encode_position
from upgrade_tools.errors import MigrationCheckError
from upgrade_tools.migration.databases import DatabaseSource, databases_of
from upgrade_tools.migration.journal import TaskJournal
from upgrade_tools.migration.planning.plan import Plan, StorePlan
from upgrade_tools.migration.publishing import sync_entry, sync_tree, write_errors
from upgrade_tools.migration.report import StepMeter, Tallies
from upgrade_tools.states.state import OpenStore

_TOLD_EVERY: Final = 10_000


@dataclass(frozen=True)
class StoreOffsets:
    """What the databases of a store record beside its entries."""

    application_id: str
    partition: int
    changelog_offset: int | None
    position: Position
    closed_cleanly: bool

    def entries(self, plan: StorePlan) -> list[Pair]:
        """Return the entries of the family `offsets`, in order."""
        changelog = changelog_partition(self.application_id, plan.name, self.partition)
        offset = OFFSET_UNKNOWN if self.changelog_offset is None else self.changelog_offset
        # Kafka Streams keeps no position of a versioned store.
        position = {} if LAYOUTS[plan.reading.kind].keeps_versions else self.position
        return sorted(
            [
                (STATUS_KEY, encode_long(STATUS_CLOSED if self.closed_cleanly else STATUS_OPEN)),
                (offset_key(changelog), encode_long(offset)),
                (POSITION_KEY, encode_position(position)),
            ]
        )


class TaskBuild:
    """Makes the task of a partition in `directory`, which no other process uses meanwhile."""

    def __init__(self, plan: Plan, partition: int, directory: Path, journal: TaskJournal, meter: StepMeter) -> None:
        self._plan = plan
        self._partition = partition
        self._directory = directory
        self._journal = journal
        self._meter = meter

    def build(self, plan: StorePlan, store: OpenStore, application_id: str, tallies: Tallies) -> None:
        """Make the databases of a store that are not made yet.

        Raises MigrationCheckError, StoreError, UnknownKindError.
        """
        offsets = StoreOffsets(
            store.application_id or application_id,
            self._partition,
            self._changelog_offset(plan, store, application_id),
            store.position,
            store.closed_cleanly,
        )
        made = self._journal.databases.setdefault(plan.name, {})
        for source in databases_of(self._plan, plan, store):
            place = source.place.as_posix()
            entries = made.get(place)
            if entries is None:
                entries = self._make(plan, source, offsets.entries(plan))
                made[place] = entries
                with write_errors(self._directory):
                    _sync_database(self._directory / source.place)
                    self._journal.write(self._directory)
            else:
                self._meter.advance(2 * entries)
            tallies.add(plan.name, entries)

    def _changelog_offset(self, plan: StorePlan, store: OpenStore, application_id: str) -> int | None:
        if store.changelog_offset is not None:
            return store.changelog_offset
        changelog = changelog_partition(store.application_id or application_id, plan.name, self._partition)
        return self._plan.request.changelog_offsets.get(changelog.topic, {}).get(changelog.partition)

    def _make(self, plan: StorePlan, source: DatabaseSource, offsets: list[Pair]) -> int:
        """Fill one database and compare it with its source; return how many entries it has."""
        path = self._directory / source.place
        family = column_family(plan.making)
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        database = RocksDBDatabase(str(path), [family, OFFSETS_FAMILY], compacting=False)
        try:
            fill = SortedFill(database, family)
            last = fill.last_key
            left = source.entries(last)
            if last is not None and next(left, (None,))[0] != last:
                raise MigrationCheckError(
                    self._plan.state.path, database=source.name, problem="it has a key that the source does not have"
                )
            fill.put_all(left, self._meter.advance)
            database.family(OFFSETS_FAMILY).write(offsets)
        finally:
            database.close()
        with write_errors(path):
            if plan.written is not None:
                write_record(path, plan.written)
        return self._verify(source, path, family, offsets)

    def _verify(self, source: DatabaseSource, path: Path, family: str, offsets: list[Pair]) -> int:
        """Compare a database on disk with what it was made from; return how many entries it has."""
        database = RocksDBDatabase(str(path), [], compacting=False)
        try:
            if list(database.family(OFFSETS_FAMILY).range(None, None)) != offsets:
                raise MigrationCheckError(self._plan.state.path, database=source.name, problem="its offsets differ")
            return self._compare(source, source.entries(None), database.family(family).range(None, None))
        finally:
            database.close()

    def _compare(self, source: DatabaseSource, expected: Iterator[Pair], found: Iterator[Pair]) -> int:
        """Compare all entries one by one, as values may be large; return how many there are."""
        entries = told = 0
        for one, other in zip_longest(expected, found):
            if one != other:
                raise MigrationCheckError(self._plan.state.path, database=source.name, problem=_difference(one, other))
            entries += 1
            if entries - told == _TOLD_EVERY:
                self._meter.advance(_TOLD_EVERY)
                told = entries
        self._meter.advance(entries - told)
        return entries


def _sync_database(path: Path) -> None:
    """Sync a database and its directory entries to disk, before the journal records it."""
    sync_tree(path)
    sync_entry(path)
    sync_entry(path.parent)


def _difference(expected: Pair | None, found: Pair | None) -> str:
    if expected is not None and found is not None and expected[0] == found[0]:
        return f"the value of 0x{expected[0].hex()} differs"
    should = "no entry" if expected is None else f"the entry 0x{expected[0].hex()}"
    does = "none" if found is None else f"0x{found[0].hex()}"
    return f"expected {should}, found {does}"
