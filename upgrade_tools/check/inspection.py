"""What a state has, as its files say it; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kafka_streams.store_database import RecordedOffsets, recorded_offsets
from statestore.bytestore.kinds.segments import is_latest_key
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.errors import FormatError
from statestore.errors.new_state import DirectoryDamagedError
from statestore.format.position import Position, merge_positions
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.format.values.versioned_row import decode_latest_row, decode_segment_row
from statestore.recovery.local.marker import LocalMarker
from statestore.recovery.metadata.state_metadata import StateMetadata
from upgrade_tools.errors import StoreNotFoundError, StoreUndecodableError
from upgrade_tools.location.files import ShardFiles, shard_files
from upgrade_tools.states.copy import CopyState
from upgrade_tools.states.database import Database
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import FoundStore, Layout, State
from upgrade_tools.states.task import TaskState

DEFAULT_SAMPLE_ENTRIES: Final = 10_000
_FORMATS: Final = {family: known for families in FAMILIES.values() for known, family in families.items()}
_OF_VERSIONS: Final = FAMILIES[StoreKind.VERSIONED][StoreFormat.WITH_HEADERS]
_STEP: Final = 1_000


@dataclass
class FamilyFigures:
    """What a column family holds in all databases that were opened. Only what was read is added up."""

    format: StoreFormat | None
    is_of_versions: bool = False
    """Whether its entries are rows of versions; those without headers can't be told apart, and count as values."""
    entries: int = 0
    """How many entries there are; RocksDB's estimate where not all were read."""
    is_exact: bool = True
    entries_read: int = 0
    value_bytes: int = 0
    """Size of the values that were read, without headers and timestamps."""
    header_bytes: int = 0
    """Size of the headers of these values, including their length fields."""
    values_read: int = 0
    """One for each entry that was read; in a versioned store with headers, one for each version."""
    values_with_headers: int = 0

    def read(self, store: ByteStore, at_most: int | None, on_entries: Callable[[int], None]) -> None:
        """Add the family of a database, reading at most this many entries; None reads all. Raises FormatError."""
        pairs = store.range(None, None)
        read = 0
        for chunk in chunks(islice(pairs, at_most), max_rows=_STEP):
            self._add(chunk)
            read += len(chunk)
            on_entries(len(chunk))
        self.entries_read += read
        if at_most is None or read < at_most or next(pairs, None) is None:
            self.entries += read
        else:
            self.is_exact = False
            self.entries += max(store.approximate_num_entries(), read + 1)

    def _add(self, pairs: Iterable[Pair]) -> None:
        if self.format in (None, StoreFormat.PLAIN):
            sizes = [len(value) for _, value in pairs]
            self.value_bytes += sum(sizes)
            self.values_read += len(sizes)
            return
        assert self.format is not None
        for stored in self._values(pairs):
            parts = split_stored(self.format, stored)
            self.values_read += 1
            self.value_bytes += len(parts.value)
            if parts.header_bytes is not None:
                timestamp_bytes = 0 if parts.timestamp_ms is None else 8
                self.header_bytes += len(stored) - len(parts.value) - timestamp_bytes
                self.values_with_headers += bool(parts.header_bytes)

    def _values(self, pairs: Iterable[Pair]) -> Iterator[bytes]:
        """Yield the values of entries; for rows of versions, the value of each version."""
        if not self.is_of_versions:
            yield from (value for _, value in pairs)
            return
        for key, row in pairs:
            if is_latest_key(key):
                yield decode_latest_row(row)[1]
            else:
                yield from (version.value for version in decode_segment_row(row).versions if version.value is not None)

    @classmethod
    def of(cls, family: str) -> FamilyFigures:
        """Return empty figures for a family of this name."""
        return cls(_FORMATS.get(family), family == _OF_VERSIONS)


@dataclass
class PartOffsets:
    """The offsets that a store of Kafka Streams has reached, in one part."""

    changelogs: dict[str, int | None] = field(default_factory=dict)
    """By topic and partition, the offset of the last record that it holds; None if it is not known."""
    position: Position = field(default_factory=dict)
    is_closed: bool | None = None

    def add(self, found: RecordedOffsets) -> None:
        """Add what another database or file records: its offsets replace earlier ones, positions are merged."""
        self.changelogs.update((str(topic), offset) for topic, offset in found.changelogs.items())
        self.position = merge_positions(self.position, found.position)
        if found.is_closed is not None:
            self.is_closed = found.is_closed and self.is_closed is not False


@dataclass
class StoreInspection:
    """What there is of a store."""

    found: FoundStore
    families: dict[str, FamilyFigures]
    """By name; empty if nothing was read."""
    offsets: dict[int, PartOffsets] = field(default_factory=dict)
    """By part; in Kafka Streams' layout alone."""

    @property
    def newest_family(self) -> str | None:
        """The family of the newest format, into which an upgrade moves the entries of all others."""
        known = [name for name, figures in self.families.items() if figures.format is not None]
        return max(known, key=lambda name: self.families[name].format or 0, default=None)

    @property
    def legacy_entries(self) -> int:
        """How many entries a lazy upgrade has not moved yet."""
        newest = self.newest_family
        return sum(figures.entries for name, figures in self.families.items() if name != newest)


@dataclass
class StateInspection:
    """What there is of a state."""

    path: str
    layout: Layout
    parts: tuple[int, ...]
    stores: list[StoreInspection]
    shards: list[ShardFiles] = field(default_factory=list)
    """Of a state location."""
    marker: LocalMarker | None = None
    """Of a local copy."""
    version: int | None = None
    """That a local copy holds; None if that is not known."""
    metadata: StateMetadata | None = None
    """Of a state location."""


def inspect_state(state: State, sample: int | None, on_entries: Callable[[int], None]) -> StateInspection:
    """Return what there is, having read about `sample` entries of each store; None is all, 0 none.

    Entries of a state location are read only if it is known what is committed. `on_entries` is told of entries as they
    are read. Raises StateDirectoryError, RecoveryError.
    """
    all_stores = state.found_stores()
    chosen = [found for found in all_stores if state.options.store in (None, found.name)]
    if state.options.store is not None and not chosen:
        raise StoreNotFoundError(state.path, store=state.options.store, known=[found.name for found in all_stores])
    stores = {found.name: StoreInspection(found, {}) for found in chosen}
    report = StateInspection(state.path, state.layout, state.parts, list(stores.values()))
    if isinstance(state, CopyState):
        report.marker, report.version = state.marker, state.version
    if isinstance(state, LocationState):
        report.metadata = state.metadata
        report.shards = shard_files(state)
        if not state.knows_pointers:
            return report
    if sample != 0:
        for part, database in databases_to_read(state):
            with database.open() as opened:
                _read_families(state, opened.families, stores, sample, on_entries)
                if opened.offsets is not None and database.store is not None:
                    offsets = stores[database.store].offsets.setdefault(part, PartOffsets())
                    offsets.add(_recorded(opened.offsets, f"{state.path}/{database.name}"))
        if isinstance(state, TaskState):
            for part, name in product(state.parts, stores):
                stores[name].offsets.setdefault(part, PartOffsets()).add(state.offset_files(part, name))
    return report


def databases_to_read(state: State) -> list[tuple[int, Database]]:
    """Return the databases of the stores to inspect, each with its part."""
    asked = state.options.store
    return [
        (part, database)
        for part in state.parts
        for database in state.databases(part)
        if asked is None or database.store in (None, asked)
    ]


def _read_families(
    state: State,
    found: Mapping[str, Mapping[str, ByteStore]],
    stores: Mapping[str, StoreInspection],
    sample: int | None,
    on_entries: Callable[[int], None],
) -> None:
    """Add the column families of an open database to the figures of their stores."""
    # An equal share from each database, as their contents may differ.
    reading = [
        (name, family, store, _share(stores[name].found, state, sample))
        for name, families in found.items()
        if name in stores
        for family, store in families.items()
    ]
    if state.on_open is not None:
        sizes = [(store.approximate_num_entries(), share) for _, _, store, share in reading]
        state.on_open(sum(entries if share is None else min(entries, share) for entries, share in sizes))
    for name, family, store, share in reading:
        figures = stores[name].families.setdefault(family, FamilyFigures.of(family))
        try:
            figures.read(store, share, on_entries)
        except FormatError as cause:
            read_as = [f"{name} ({family})"]
            raise StoreUndecodableError(state.path, stores=read_as, cause=str(cause)) from cause


def _recorded(offsets: ByteStore, where: str) -> RecordedOffsets:
    try:
        return recorded_offsets(offsets)
    except FormatError as cause:
        raise DirectoryDamagedError(where, cause=str(cause)) from cause


def _share(found: FoundStore, state: State, sample: int | None) -> int | None:
    return None if sample is None else max(1, sample // max(1, found.databases or len(state.parts)))
