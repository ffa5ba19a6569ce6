"""What a migration will do, planned before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.errors import StoreFormatError
from statestore.format.keys.due_key import ENDS_SUFFIX, TIMER_KEYS, WINDOW_END_KEYS
from statestore.format.values.buffered_record import BUFFERED_KEYS, TIMES_SUFFIX
from upgrade_tools.errors import MigrationRefusedError, StoreNotFoundError, UnknownKindError
from upgrade_tools.migration.planning.formats import target_kind
from upgrade_tools.migration.planning.request import MigrationRequest, TargetLayout
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import (
    READING_INTERVAL_MS,
    FoundStore,
    Layout,
    State,
    StateOptions,
    durable_spec,
    spec_as,
)

_OF_KAFKA_STREAMS = (Layout.TASK, Layout.APPLICATION)


@dataclass(frozen=True)
class StorePlan:
    """What becomes of one store."""

    kind: StoreType
    """Its present kind, in the newest format that it has."""
    migrated: StoreType
    reading: StoreSpec
    """How the source is read; entries of an older format than `kind` are converted as a store would."""
    written: StoreSpec | None
    """The spec to record for it; None if its retention or segment interval is unknown, and not needed."""

    @property
    def name(self) -> str:
        """The store's name."""
        return self.reading.name

    @property
    def making(self) -> StoreSpec:
        """The spec of the store in its new format."""
        return replace(self.reading, format=self.migrated.store_format)


@dataclass(frozen=True)
class Plan:
    """One migration."""

    request: MigrationRequest
    state: State
    layout: TargetLayout
    """Of the target."""
    stores: tuple[StorePlan, ...]
    left_out: tuple[str, ...]
    """The stores that were not asked for."""

    @property
    def in_place(self) -> bool:
        """Whether the source is what is changed."""
        return self.request.target is None

    @property
    def reading(self) -> list[StoreSpec]:
        """How all stores are read."""
        return [store.reading for store in self.stores]


def plan_migration(request: MigrationRequest) -> Plan:
    """Return what `request` asks for.

    Raises MigrationRefusedError, and what opening the source raises: StateDirectoryError, StoreError, RecoveryError.
    """
    state = open_state(request.source, _reading_options(request, request.options_for(None)))
    from_kafka_streams = state.layout in _OF_KAFKA_STREAMS
    layout = request.layout or (TargetLayout.KAFKA_STREAMS if from_kafka_streams else TargetLayout.LOCATION)
    if request.target is None and not (from_kafka_streams and layout is TargetLayout.KAFKA_STREAMS):
        raise MigrationRefusedError(
            state.path,
            problem=f"is a {state.layout.value}, and only directories of Kafka Streams are migrated in place",
            remedy="name a TARGET, which is an empty directory or location",
        )
    if request.expiry_headers and layout is not TargetLayout.LOCATION:
        raise MigrationRefusedError(
            state.path,
            problem="would become directories of Kafka Streams, which do not record when an entry expires",
            remedy="leave out --expiry-header, or make a location",
        )
    found = {store.name: store for store in state.found_stores()}
    for name in (*request.stores, *(name for name in request.store_options if name is not None)):
        if name not in found:
            raise StoreNotFoundError(state.path, store=name, known=list(found))
    if not found:
        raise StoreNotFoundError(state.path, store=None, known=[])
    asked = list(request.stores) or list(found)
    if layout is TargetLayout.KAFKA_STREAMS and isinstance(state, LocationState):
        _refuse_other_files(state, asked)
    # A query is to go on with what a downgrade makes of its state: the other stores go along as they are.
    is_whole = request.downgrade and layout is TargetLayout.LOCATION and isinstance(state, LocationState)
    chosen, unchanged = list(found) if is_whole else asked, replace(request, to=None)
    stores = tuple(
        _plan_store(request if name in asked else unchanged, layout, found[name], named=name in request.stores)
        for name in chosen
    )
    return Plan(request, state, layout, stores, tuple(name for name in found if name not in chosen))


def _refuse_other_files(state: LocationState, stores: Iterable[str]) -> None:
    """Raise MigrationRefusedError for a store that Kafka Streams keeps in order of time, or not in files."""
    made_of = state.metadata.entry_keys
    for store in stores:
        waits = made_of.get(store, "").startswith(BUFFERED_KEYS)
        waits |= made_of.get(f"{store}{ENDS_SUFFIX}", "").startswith(WINDOW_END_KEYS)
        waits |= made_of.get(f"{store}{TIMES_SUFFIX}", "").startswith(TIMER_KEYS)
        if waits:
            raise MigrationRefusedError(
                state.path,
                problem=f"has store {store!r}, of what is held back or put out once, which Kafka Streams has in other "
                "files, or in none",
                remedy="write it to its changelog with `changelog emit`, and name the other stores with --store",
            )


def _plan_store(request: MigrationRequest, layout: TargetLayout, found: FoundStore, *, named: bool) -> StorePlan:
    said = _options_after_earlier_run(request, layout, found, request.options_for(found.name), named=named)
    options = _reading_options(request, said)
    of_store = open_state(request.source, replace(options, store=found.name))
    kind = StoreType.of(of_store.the_spec())
    if not _is_found(kind, found):
        raise StoreFormatError(
            found.name,
            recorded=" or ".join(candidate.value for candidate in found.kinds),
            asked=kind.value,
            where=of_store.path,
            remedy="Give its present kind with --kind, and its new format with --to",
        )
    migrated = target_kind(found.name, kind, request, layout, named=named)
    plan = StorePlan(kind, migrated, spec_as(found, kind, options, of_store.path), None)
    if layout is TargetLayout.KAFKA_STREAMS and plan.reading.segment_interval_ms == READING_INTERVAL_MS:
        return plan  # its segments may differ from Kafka's default, and could not be opened with that
    try:
        return replace(plan, written=durable_spec(plan.making, options, of_store.path))
    except UnknownKindError:
        if layout is TargetLayout.LOCATION:
            raise
        return plan


def _options_after_earlier_run(
    request: MigrationRequest, layout: TargetLayout, found: FoundStore, said: StateOptions, *, named: bool
) -> StateOptions:
    """Return the options of a store, with its new kind if an earlier run has put some of it in its place."""
    if said.kind is None or request.target is not None or _is_found(said.kind, found):
        return said
    migrated = target_kind(found.name, said.kind, replace(request, through_timestamped=True), layout, named=named)
    return replace(said, kind=migrated) if _is_found(migrated, found) else said


def _is_found(kind: StoreType, found: FoundStore) -> bool:
    return kind in found.kinds or _without_duplicates(kind) in found.kinds


def _without_duplicates(kind: StoreType) -> StoreType:
    return StoreType.with_parts(kind.store_kind, kind.store_format)


def _reading_options(request: MigrationRequest, said: StateOptions) -> StateOptions:
    return replace(
        said,
        subtopology=request.subtopology,
        application_id=request.application_id,
        pointers=request.pointers,
        work_dir=request.work_dir,
    )
