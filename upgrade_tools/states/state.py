"""What the tools can do with state of every layout, and the options for what its files do not say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from statestore.bytestore.kinds.entry_scan import SegmentEnd
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreSpec, StoreType, expiry_spec, older_formats
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import refuse_downgrade
from statestore.errors import FormatError, StoreFormatError
from statestore.format.position import Position
from statestore.recovery.commit.pointer import CommitPointer
from statestore.stores.builder import live_at
from statestore.stores.supplier import default_segment_interval_ms
from upgrade_tools.errors import NothingExpiresError, StoreNotFoundError, StoreUndecodableError, UnknownKindError
from upgrade_tools.states.database import Database


class Layout(Enum):
    """How the files of a state lie; the values are what people read."""

    TASK = "Kafka Streams task directory"
    APPLICATION = "Kafka Streams application directory"
    LOCAL_COPY = "local copy of a shard"
    LOCATION = "state location"


@dataclass(frozen=True)
class StateOptions:
    """What a user says about a state. It never changes what is recorded; contradictions are refused."""

    store: str | None = None
    kind: StoreType | None = None
    """Kind of the one store that is read; a newer format than that of its files reads it as an upgrade would."""
    window_size_ms: int | None = None
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    subtopology: int | None = None
    """Whose tasks to read in an application's directory: the first number of their names."""
    application_id: str | None = None
    """Of Kafka Streams; None is what the changelog offsets in the directory say, or else the directory's name."""
    pointers: Sequence[CommitPointer] | None = None
    """What is committed of a state location."""
    live_at_ms: int | None = None
    """Entries that have expired by this time are left out; None shows all that is stored."""
    work_dir: str | None = None
    """Where temporary directories for views and restored shards are made; None is the machine's."""


class OpenStore(NamedTuple):
    """A store of one part, open for reading: what is written to it is lost."""

    spec: StoreSpec
    bytes: ByteStore
    """Keys as in a shard: they begin with their segment's id if the store is segmented."""
    stream_time_ms: int
    """The latest time put into it; -1 if that is not recorded."""
    changelog_offset: int | None
    position: Position
    knows_segments: bool = True
    """Whether the segments' ids say their times: id times the spec's segment interval."""
    application_id: str | None = None
    """Of Kafka Streams, by which the store's changelog topic is named; None outside of its directories."""
    closed_cleanly: bool = True
    """Whether it holds nothing but what its changelog offset says."""

    @property
    def segment_end(self) -> SegmentEnd:
        """Where its segments end."""
        return SegmentEnd.UNTIL_NEXT if self.knows_segments else SegmentEnd.UNKNOWN


@dataclass(frozen=True)
class FoundStore:
    """A store as its files show it."""

    name: str
    kinds: tuple[StoreType, ...]
    """What it may be; one if its files tell."""
    recorded: StoreSpec | None = None
    """The spec that its files record; None if they record none."""
    families: tuple[str, ...] = ()
    """Its column families."""
    size_bytes: int = 0
    """Size of its files; 0 where stores share files."""
    databases: int = 0
    """How many databases it has in all parts; 0 where it shares them."""


READING_RETENTION_MS: Final = 0
READING_INTERVAL_MS: Final = 1
"""Placeholders in the spec of a store that is only read, which does not depend on them."""
READ_AS_IT_IS: Final = "Give its present kind with --kind; the command downgrade rebuilds it as an older one"


class State(ABC):
    """A state that was found. Parts are numbered as partitions and shards are."""

    def __init__(self, path: str, layout: Layout, parts: Sequence[int], options: StateOptions) -> None:
        self.path = path
        self.layout = layout
        self.parts = tuple(parts)
        self.options = options
        self.on_open: Callable[[int], None] | None = None
        """Is told about how many entries each opened part has, and about how many will be read of each inspected
        database."""

    @property
    def global_stores(self) -> frozenset[str]:
        """The names of the stores that are known to be whole in each part."""
        return frozenset()

    @abstractmethod
    def found_stores(self) -> list[FoundStore]:
        """Return what there is, in the order of names. Raises StateDirectoryError for what can't be read."""

    @contextmanager
    def open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of a part, in these formats; entries of an older format are converted.

        A FormatError while they are read becomes a StoreUndecodableError. Raises StoreError for a store that
        is something else, StateDirectoryError, RecoveryError.
        """
        times = {} if self.options.live_at_ms is None else self._expiry_stores(specs)
        try:
            with self._open(part, [*dict.fromkeys([*specs, *times.values()])]) as opened:
                stores = {spec.name: self._live(opened, spec, times.get(spec.name)) for spec in specs}
                if self.on_open is not None:
                    self.on_open(sum(store.bytes.approximate_num_entries() for store in stores.values()))
                yield stores
        except FormatError as cause:
            read_as = [f"{spec.name} ({StoreType.of(spec).value})" for spec in specs]
            raise StoreUndecodableError(self.path, stores=read_as, cause=str(cause)) from cause

    def _expiry_stores(self, specs: Sequence[StoreSpec]) -> dict[str, StoreSpec]:
        """Return, by store, the spec of the store that says when its entries expire. Raises NothingExpiresError."""
        times, known = {spec.name: expiry_spec(spec) for spec in specs}, self.store_names()
        for name, beside in times.items():
            if beside.name not in known:
                raise NothingExpiresError(self.path, store=name, beside=beside.name)
        return times

    def _live(self, opened: Mapping[str, OpenStore], spec: StoreSpec, times: StoreSpec | None) -> OpenStore:
        """Return an opened store, without what has expired if the options ask for that."""
        store = opened[spec.name]
        if times is None or self.options.live_at_ms is None:
            return store
        return store._replace(bytes=live_at(store.bytes, opened[times.name].bytes, self.options.live_at_ms))

    @abstractmethod
    def _open(self, part: int, specs: Sequence[StoreSpec]) -> AbstractContextManager[Mapping[str, OpenStore]]:
        """Do what `open` does, but let FormatErrors through."""

    @abstractmethod
    def databases(self, part: int) -> list[Database]:
        """Return the databases of a part, in order, none of them open. Raises StateDirectoryError."""

    def parts_of(self, spec: StoreSpec, key: bytes | None = None) -> tuple[int, ...]:
        """Return the parts that have all of a store; with a key, if it tells the part, those that can hold it."""
        return self.parts

    def store_names(self) -> list[str]:
        """Return the names of all stores, in order."""
        return [found.name for found in self.found_stores()]

    def specs(self, like: Mapping[str, StoreSpec] | None = None) -> list[StoreSpec]:
        """Return the specs to read: of the store that the options name, in the kind that they say, or of all stores.

        If neither options nor files say it, a store is read with its spec in `like`, if its files allow that. Raises
        StoreNotFoundError, UnknownKindError for what neither the files nor the options tell, and StoreFormatError for
        what the options say and the files deny.
        """
        found = {store.name: store for store in self.found_stores()}
        if self.options.store is not None:
            if self.options.store not in found:
                raise StoreNotFoundError(self.path, store=self.options.store, known=list(found))
            chosen = [found[self.options.store]]
        elif self.options.kind is not None and len(found) > 1:
            raise StoreNotFoundError(self.path, store=None, known=list(found))
        else:
            chosen = list(found.values())
        return [self._spec_of(store, (like or {}).get(store.name)) for store in chosen]

    def the_spec(self) -> StoreSpec:
        """Return the spec of the one store to read. Raises StoreNotFoundError if there are several, or none."""
        specs = self.specs()
        if len(specs) != 1:
            raise StoreNotFoundError(self.path, store=None, known=[spec.name for spec in specs])
        return specs[0]

    def _spec_of(self, found: FoundStore, like: StoreSpec | None) -> StoreSpec:
        kind, options = self.options.kind, self.options
        if like is not None and found.recorded is None:
            if kind is None and any(_is_or_becomes(known, like) for known in found.kinds):
                kind = StoreType.of(like)
            options = replace(options, window_size_ms=_first(options.window_size_ms, like.window_size_ms))
        if kind is None and len(found.kinds) != 1:
            kinds = ", ".join(candidate.value for candidate in found.kinds)
            raise UnknownKindError(
                self.path,
                problem=f"the kind of store {found.name!r}",
                remedy=f"it may be {kinds}; choose one with --kind",
            )
        spec = spec_as(found, kind or found.kinds[0], options, self.path)
        self._refuse_other_kind(found, spec)
        return spec

    def _refuse_other_kind(self, found: FoundStore, spec: StoreSpec) -> None:
        """Raise StoreFormatError if a store can't be what `spec` says, by what is recorded or found of it."""
        if found.recorded is not None:
            same_retention = replace(spec, retention_ms=found.recorded.retention_ms or spec.retention_ms)
            refuse_other_than_recorded(found.recorded, same_retention, self.path)
        if spec.kind not in {known.store_kind for known in found.kinds}:
            raise StoreFormatError(
                found.name,
                recorded=" or ".join(known.value for known in found.kinds),
                asked=spec.describe(),
                where=self.path,
                remedy="Give its kind with --kind",
            )
        refuse_downgrade(
            found.families, spec, lambda known: FAMILIES[spec.kind][known], self.path, spec.name, READ_AS_IT_IS
        )


def spec_as(found: FoundStore, kind: StoreType, options: StateOptions, path: str) -> StoreSpec:
    """Return the spec for reading a store as `kind`: options come first, then what is recorded.

    Raises UnknownKindError if neither says how large windows are. Retention and segment interval may be READING_* then.
    """
    store_kind, store_format = kind.store_kind, kind.store_format
    window_size_ms, retention_ms, interval_ms = (
        options.window_size_ms,
        options.retention_ms,
        options.segment_interval_ms,
    )
    if found.recorded is not None and found.recorded.kind is store_kind:
        window_size_ms = _first(window_size_ms, found.recorded.window_size_ms)
        retention_ms = _first(retention_ms, found.recorded.retention_ms)
        interval_ms = _first(interval_ms, found.recorded.segment_interval_ms)
    if store_kind.has_windows and window_size_ms is None:
        raise UnknownKindError(
            path, problem=f"how large the windows of {found.name!r} are", remedy="give their size with --window-size-ms"
        )
    indexed = () if found.recorded is None else found.recorded.indexed_headers
    if not store_kind.is_segmented:
        return StoreSpec(found.name, store_kind, store_format, indexed_headers=indexed)
    return StoreSpec(
        found.name,
        store_kind,
        store_format,
        _first(retention_ms, READING_RETENTION_MS),
        _first(interval_ms, READING_INTERVAL_MS),
        window_size_ms if store_kind.has_windows else None,
        kind.retain_duplicates,
        indexed,
    )


def _is_or_becomes(kind: StoreType, spec: StoreSpec) -> bool:
    """Return whether a store of this kind is what `spec` says, or can be read as that by an upgrade."""
    return kind.store_kind is spec.kind and kind.store_format in (spec.format, *older_formats(spec.kind, spec.format))


def refuse_other_than_recorded(recorded: StoreSpec, asked: StoreSpec, path: str) -> None:
    """Raise StoreFormatError if `asked` is neither what is recorded nor a newer format of it."""
    same = replace(asked, format=recorded.format) == recorded
    if same and recorded.format in (asked.format, *older_formats(asked.kind, asked.format)):
        return
    raise StoreFormatError(
        asked.name,
        recorded=recorded.describe(),
        asked=asked.describe(),
        where=path,
        remedy="Leave out --kind, --window-size-ms and the like to read it as recorded",
    )


def durable_spec(spec: StoreSpec, options: StateOptions, path: str) -> StoreSpec:
    """Return the spec for writing a store to a place where entries expire.

    An unknown segment interval becomes Kafka's default. Raises UnknownKindError for an unknown retention.
    """
    if not spec.kind.is_segmented:
        return spec
    retention_ms = spec.retention_ms
    if retention_ms == READING_RETENTION_MS:
        retention_ms = options.retention_ms
    if retention_ms is None:
        raise UnknownKindError(
            path,
            problem=f"how long store {spec.name!r} keeps its entries",
            remedy="give its retention with --retention-ms, as in the application that made it",
        )
    interval_ms = options.segment_interval_ms
    if interval_ms is None and spec.segment_interval_ms != READING_INTERVAL_MS:
        interval_ms = spec.segment_interval_ms
    if interval_ms is None:
        interval_ms = default_segment_interval_ms(spec.kind, retention_ms)
    return replace(spec, retention_ms=retention_ms, segment_interval_ms=interval_ms)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
