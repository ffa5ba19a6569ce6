"""Writes states to changelog topics: an application that restores from them has what the state has.

Records in the topics stay. New ones are added for what differs, and tombstones for what the state does not have. So a
killed run can be repeated, and local state that the application has kept is brought up to date as well. Everything is
read before the first record is written, so a refusal leaves every topic unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.keys.due_key import TIMER_KEYS
from statestore.format.values.buffered_record import LOGGED_HEADERS, TIMES_SUFFIX
from statestore.recovery.commit.changelog import ChangelogRecord, record_sizes
from statestore.recovery.metadata.state_metadata import ShardBy
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.in_order_of_time import in_order_of_time
from upgrade_tools.changelogs.reading import changelog_topic, read_log_ends, wrong_partitions
from upgrade_tools.changelogs.restored_log import RestoredLog, restored_log
from upgrade_tools.changelogs.restoring import OnRecords
from upgrade_tools.changelogs.state_records import StoreRecords, differences
from upgrade_tools.changelogs.survey import Survey
from upgrade_tools.changelogs.topic_setup import StoreTopic, existing_topic, topic_config
from upgrade_tools.changelogs.writing import WRITE_AGAIN, ChangelogWriter
from upgrade_tools.errors import ChangelogError, UnknownKindError
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import READING_INTERVAL_MS, READING_RETENTION_MS, Layout, OpenStore, State


class LoggedStores(NamedTuple):
    """The stores of a state that have changelogs."""

    state: State
    specs: Sequence[StoreSpec]


def logged_stores(states: Iterable[State]) -> list[LoggedStores]:
    """Return the stores to read of the states of a query's stages that have changelogs, each once.

    A global store has its topic instead, and what a later stage has once more is a copy.
    """
    found: list[LoggedStores] = []
    for state in states:
        known = {spec.name for stores in found for spec in stores.specs}
        if isinstance(state, LocationState):
            known.update(state.metadata.global_stores)
        found.append(LoggedStores(state, [spec for spec in state.specs() if spec.name not in known]))
    return found


@dataclass
class EmittedStore:
    """What was written of a store."""

    topic: str
    created: bool
    """Whether the topic was made."""
    entries: int = 0
    """How many entries the state has; versions and tombstones in versioned stores."""
    written: int = 0
    """How many records were written, including tombstones."""


@dataclass(frozen=True)
class Emitted:
    """What was written."""

    stores: dict[str, EmittedStore]
    """By name."""
    notes: tuple[str, ...]
    """What the user should know, one sentence each."""


@dataclass(frozen=True)
class Emission:
    """The states of a query's stages, or the only one, on their way to the changelogs of an application.

    New topics get `partitions`; None is as many as the state has parts. `append` says that topics may have records,
    and `transactional` that transactions have left the gaps in topics that are not compacted. `work_dir` has
    room for one partition's stores, in a temporary directory. All is read twice: `on_checked` counts what was
    read before anything is written, `on_records` what was compared and written.
    """

    stores: Sequence[LoggedStores]
    cluster: Cluster
    application_id: str
    partitions: int | None = None
    append: bool = False
    transactional: bool = False
    work_dir: str | None = None
    on_checked: OnRecords | None = None
    on_records: OnRecords | None = None

    def run(self) -> Emitted:
        """Write the stores, and read back what was written. Nobody may be in the application's group.

        Raises ChangelogError, UnknownKindError if how long a store keeps what is in it is not known, and what reading
        the state raises. What is refused is refused before anything is written, or a topic made.
        """
        for state, specs in self.stores:
            for spec in specs:
                _refuse_unknown_retention(state, spec)
        self.cluster.refuse_running(self.application_id)
        found = self.cluster.topics()
        topics = {
            spec.name: replace(self._topic(state, spec, found), header_bytes=_logged_headers(state, spec))
            for state, specs in self.stores
            for spec in specs
        }
        survey, notes = Survey(self._log, self.work_dir), []
        for topic, part, opened in self._parts(topics):
            wanted = _records_of(opened)
            survey.see(topic, part, wanted, _counted(wanted, self.on_checked))
            if not all(store.closed_cleanly for store in opened):
                notes.append(
                    f"store {topic.spec.name} of task {part} was not closed cleanly, so what was written may include "
                    "changes that the application has not committed, and processes again: if it processes exactly "
                    "once, do not start it on this, but emit a directory that was closed cleanly"
                )
        for topic in topics.values():
            if not topic.is_there:
                config = topic_config(topic.spec, survey.oldest_ms.get(topic.spec.name))
                self.cluster.create_topic(topic.name, topic.partitions, config)
        stores = {name: EmittedStore(topic.name, created=not topic.is_there) for name, topic in topics.items()}
        for topic, part, opened in self._parts(topics):
            self._write(topic, stores[topic.spec.name], part, _records_of(opened))
        return Emitted(stores, tuple(notes))

    def _parts(self, topics: Mapping[str, StoreTopic]) -> Iterator[tuple[StoreTopic, int, list[OpenStore]]]:
        """Yield each partition of each topic, with the parts of the state that its store is in."""
        for state, specs in self.stores:
            # A task has one partition of each topic; a shard may have keys of a partition with others.
            by_partitions: dict[int, list[StoreSpec]] = {}
            for spec in specs:
                by_partitions.setdefault(min(topics[spec.name].partitions, len(state.parts)), []).append(spec)
            for partitions, together in by_partitions.items():
                for number, partition in enumerate(state.parts[:partitions]):
                    with ExitStack() as opening:
                        opened = [
                            opening.enter_context(state.open(part, together))
                            for part in state.parts[number::partitions]
                        ]
                        for spec in together:
                            yield topics[spec.name], partition, [stores[spec.name] for stores in opened]

    def _topic(self, state: State, spec: StoreSpec, found: Mapping[str, int]) -> StoreTopic:
        """Return the topic of a store, which exists and fits, or can be created."""
        topic, parts = changelog_topic(self.application_id, spec.name), state.parts
        # A state location has all shards. The tasks of an application may be on several machines.
        has_all = state.layout is Layout.LOCATION
        if topic not in found and self.partitions is None and not has_all:
            raise UnknownKindError(
                state.path,
                problem=f"how many partitions the new topic {topic} must have",
                remedy="give with --partitions how many the application's input has",
            )
        partitions = found.get(topic, self.partitions or len(parts))
        expected = len(parts) if has_all else max(partitions, max(parts) + 1)
        by_key = isinstance(state, LocationState) and state.metadata.shard_by == ShardBy.KEY.value
        if partitions != expected and not (by_key and len(parts) % partitions == 0):
            raise wrong_partitions(topic, partitions, expected, state.path)
        if topic not in found:
            return StoreTopic(spec, topic, partitions)
        offsets = sum(ends.end_offset - ends.first_offset for ends in self.cluster.log_ends(topic, partitions))
        there = existing_topic(self.cluster, spec, topic, partitions)
        if offsets and not self.append:
            raise ChangelogError(
                topic,
                f"it has records already, in {offsets} offsets. With --append, records are added for what differs in "
                "the state, and tombstones for what the state does not have; nothing was written to it",
            )
        return there

    def _write(self, topic: StoreTopic, target: EmittedStore, part: int, wanted: StoreRecords) -> None:
        def count(entries: int) -> None:
            target.entries += entries
            if self.on_records is not None:
                self.on_records(entries)

        with self._log(topic, part) as log, ExitStack() as sorting:
            missing = log.lacks(_counted(wanted, count))
            if wanted.layout.keeps_versions:
                missing = sorting.enter_context(in_order_of_time(missing, self.work_dir))
            with ChangelogWriter(self.cluster, topic.name) as writer:
                written = writer.write(part, map(topic.sent, missing))
        if written:
            target.written += written
            self._check(topic, part, wanted)

    def _check(self, topic: StoreTopic, part: int, wanted: StoreRecords) -> None:
        """Read back what was written."""
        timed = wanted.layout.has_timed_keys
        with self._log(topic, part) as log:
            for found in differences(topic.spec, wanted, log.records()):
                if timed and not found.in_log and not any(map(wanted.shows, found.in_state)):
                    continue  # reads do not show it, and the broker may have deleted it
                problem = f"key 0x{found.key.hex()} in partition {part} does not restore to what it is in the state"
                if timed and not found.in_log:
                    problem += (
                        ": the broker has deleted it as older than retention.ms, by its own clock; raise that setting"
                    )
                raise ChangelogError(topic.name, f"{problem}. {WRITE_AGAIN}")

    @contextmanager
    def _log(self, topic: StoreTopic, part: int) -> Iterator[RestoredLog]:
        """Hand out what a partition restores to."""
        changelog = read_log_ends(
            self.cluster, topic.spec, topic.name, topic.partitions, transactional=self.transactional
        )
        with restored_log(self.cluster, changelog, part, self.work_dir) as log:
            yield log


def _logged_headers(state: State, spec: StoreSpec) -> bytes:
    """Return the headers of records in a store's changelog that belong to no value: a suppressed table's."""
    made_of = state.metadata.entry_keys if isinstance(state, LocationState) else {}
    return LOGGED_HEADERS if made_of.get(f"{spec.name}{TIMES_SUFFIX}", "").startswith(TIMER_KEYS) else b""


def _refuse_unknown_retention(state: State, spec: StoreSpec) -> None:
    if not spec.kind.is_segmented:
        return
    # With a placeholder for either, all but the last segment would expire.
    if spec.retention_ms == READING_RETENTION_MS or spec.segment_interval_ms == READING_INTERVAL_MS:
        raise UnknownKindError(
            state.path,
            problem=f"how long store {spec.name!r} keeps its entries",
            remedy="give --retention-ms and --segment-interval-ms as in the application",
        )


def _records_of(opened: Sequence[OpenStore]) -> StoreRecords:
    stream_time_ms = max(store.stream_time_ms for store in opened)
    return StoreRecords(opened[0].spec, [store.bytes for store in opened], stream_time_ms)


def _counted(records: Iterable[ChangelogRecord], on_records: OnRecords | None) -> Iterator[ChangelogRecord]:
    for chunk in chunks(records, record_sizes):
        yield from chunk
        if on_records is not None:
            on_records(len(chunk))
