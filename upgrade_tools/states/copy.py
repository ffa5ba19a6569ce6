"""The local copy of one shard, read through a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from statestore.bytestore.directory_view import view_of
from statestore.bytestore.families import DEFAULT_FAMILY
from statestore.bytestore.opening import open_store, refuse_downgrade
from statestore.bytestore.rocksdb import RocksDBDatabase, list_families
from statestore.bytestore.shard_layout import column_family
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.recovery.local_marker import LocalMarker
from upgrade_tools.states.families import kinds_by_families
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions
from upgrade_tools.states.task import accessible


class CopyState(State):
    """The stores of the shard that a local copy in the directory `path` holds, as `marker` says."""

    def __init__(self, path: Path, marker: LocalMarker, options: StateOptions) -> None:
        super().__init__(str(path), Layout.LOCAL_COPY, [marker.shard], options)
        self._path = path
        self._recorded = {spec.name: spec for spec in marker.stores or ()}

    def found_stores(self) -> list[FoundStore]:
        """Return what there is, in the order of names."""
        with accessible(self.path):
            present = [family for family in list_families(self.path) if family != DEFAULT_FAMILY]
        found: dict[str, set[str]] = {}
        for family in present:
            store, _, name = family.partition(":")
            found.setdefault(store, set()).add(name)
        return [self._found(store, families) for store, families in sorted(found.items())]

    def _found(self, store: str, families: set[str]) -> FoundStore:
        recorded = self._recorded.get(store)
        kinds = tuple(StoreKind) if recorded is None else (recorded.kind,)
        # Unlike in Kafka Streams' databases, a family that is not there holds nothing.
        return FoundStore(store, kinds_by_families(kinds, families, recorded), recorded, tuple(sorted(families)))

    @contextmanager
    def open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of the shard."""
        with ExitStack() as opened:
            with accessible(self.path):
                view = opened.enter_context(view_of(self._path, work_dir=self.options.work_dir))
            present = list_families(str(view))
            for spec in specs:
                refuse_downgrade(present, spec, partial(column_family, spec), self.path, spec.name)
            database = RocksDBDatabase(str(view), [column_family(spec) for spec in specs], compacting=False)
            opened.callback(database.close)
            yield {
                spec.name: OpenStore(
                    spec, open_store(database, spec, partial(column_family, spec), spec.name), -1, None, {}
                )
                for spec in specs
            }
