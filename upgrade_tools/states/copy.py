"""The local copy of one shard, read through a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase, list_families
from statestore.bytestore.kafka_streams.directory_view import accessible, families_in, tables_in, view_of
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, column_family, split_column_family
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import open_store, refuse_downgrade
from statestore.recovery.local.marker import LocalMarker
from statestore.recovery.location.shard_files import parse_delta_name
from upgrade_tools.states.database import Database, OpenFamilies, kinds_by_families
from upgrade_tools.states.state import (
    READ_AS_IT_IS,
    FoundStore,
    Layout,
    OpenStore,
    State,
    StateOptions,
    refuse_other_than_recorded,
)


class CopyState(State):
    """The stores of the shard that a local copy in the directory `path` holds, as `marker` says."""

    def __init__(self, path: Path, marker: LocalMarker, options: StateOptions) -> None:
        super().__init__(str(path), Layout.LOCAL_COPY, [marker.shard], options)
        self.marker = marker
        self._path = path
        self._recorded = {spec.name: spec for spec in marker.stores or ()}

    @property
    def version(self) -> int | None:
        """The version that the copy holds; None if its last delta's name does not say it."""
        written = parse_delta_name(self.marker.delta)
        return 0 if not self.marker.delta else None if written is None else written.version

    def found_stores(self) -> list[FoundStore]:
        """Return what there is, in the order of names."""
        with accessible(self.path):
            present = [family for family in families_in(self._path) if family != DEFAULT_FAMILY]
        found: dict[str, set[str]] = {}
        for family in present:
            store, name = split_column_family(family)
            if store:
                found.setdefault(store, set()).add(name)
        return [self._found(store, families) for store, families in sorted(found.items())]

    def _found(self, store: str, families: set[str]) -> FoundStore:
        recorded = self._recorded.get(store)
        kinds = tuple(StoreKind) if recorded is None else (recorded.kind,)
        # Unlike in Kafka Streams' databases, a missing family is an empty one.
        kinds_left = kinds_by_families(kinds, families, recorded)
        return FoundStore(store, kinds_left, recorded, tuple(sorted(families)))

    @contextmanager
    def _open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of the shard."""
        for spec in specs:
            if spec.name in self._recorded:
                refuse_other_than_recorded(self._recorded[spec.name], spec, self.path)
        with view_of(self._path, work_dir=self.options.work_dir) as view:
            present = list_families(str(view))
            for spec in specs:
                refuse_downgrade(present, spec, partial(column_family, spec), self.path, spec.name, READ_AS_IT_IS)
            with _opened(view, [column_family(spec) for spec in specs]) as database:
                yield {spec.name: self._store(database, spec) for spec in specs}

    def _store(self, database: RocksDBDatabase, spec: StoreSpec) -> OpenStore:
        store = open_store(database, spec, partial(column_family, spec), spec.name)
        knows_segments = spec.name in self._recorded or self.options.segment_interval_ms is not None
        return OpenStore(spec, store, -1, None, {}, knows_segments)

    def databases(self, part: int) -> list[Database]:
        """Return the one database."""
        with accessible(self.path):
            return [Database(".", self._families, tables=tables_in(self._path))]

    @contextmanager
    def _families(self) -> Iterator[OpenFamilies]:
        with view_of(self._path, work_dir=self.options.work_dir) as view, _opened(view, []) as database:
            yield families_by_store(database)


def families_by_store(database: RocksDBDatabase) -> OpenFamilies:
    """Return the column families of a shard's database by their stores, and its indexes."""
    found: dict[str, dict[str, ByteStore]] = {}
    indexes: dict[str, ByteStore] = {}
    for family in database.families:
        store, name = split_column_family(family)
        if not store:
            indexes[family] = database.family(family)
        elif family != DEFAULT_FAMILY:
            found.setdefault(store, {})[name] = database.family(family, store)
    return OpenFamilies(found, indexes)


@contextmanager
def _opened(view: Path, families: Sequence[str]) -> Iterator[RocksDBDatabase]:
    database = RocksDBDatabase(str(view), families, compacting=False)
    try:
        yield database
    finally:
        database.close()
