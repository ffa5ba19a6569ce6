"""Writes states to changelog topics: an application that restores from them has what the state has.

What is there already stays. Records are added for what is different, and tombstones for what the state has no more; so
it can be run again after it was killed, and local state that the application has kept is brought up to date as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.steps import steps
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.bytestore.task_directory import TaskDirectory
from statestore.errors import (
    ChangelogNotEmptyError,
    ChangelogPartitionsError,
    ChangelogWriteError,
    UnknownKindError,
)
from statestore.recovery.changelog import ChangelogRecord, record_bytes
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.in_order_of_time import in_order_of_time
from upgrade_tools.changelogs.reading import changelog_topic, read_log_ends, read_records
from upgrade_tools.changelogs.restoring import OnRecords, Restorer, restore_store
from upgrade_tools.changelogs.state_records import StoreRecords, differences, missing_records
from upgrade_tools.changelogs.writing import ChangelogWriter, refuse_unfit, topic_config
from upgrade_tools.states import Layout, State
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import READING_INTERVAL_MS, READING_RETENTION_MS

_ONE_OF_SEVERAL = (Layout.TASK, Layout.LOCAL_COPY)
"""What is one partition, and does not tell how many there are."""


def logged_specs(state: State) -> list[StoreSpec]:
    """Return those of the stores that are to be read that have changelogs: a global store has its topic instead."""
    without = state.metadata.global_stores if isinstance(state, LocationState) else frozenset()
    return [spec for spec in state.specs() if spec.name not in without]


@dataclass
class EmittedStore:
    """What was written of a store."""

    topic: str
    created: bool
    """Whether the topic was made."""
    entries: int = 0
    """How many the state has; of versioned stores versions and tombstones."""
    written: int = 0
    """How many records were written, tombstones among them."""


@dataclass(frozen=True)
class Emission:
    """One state on its way to the changelogs of an application.

    `partitions` is how many a topic gets that has to be made; None is as many as the state has parts. `append` says
    that topics may have records, and `transactional` that gaps in those that are not compacted are left by
    transactions. `work_dir` has room for one partition's stores, in a temporary directory.
    """

    state: State
    cluster: Cluster
    application_id: str
    partitions: int | None = None
    append: bool = False
    transactional: bool = False
    work_dir: str | None = None
    on_records: OnRecords | None = None

    def run(self, specs: Sequence[StoreSpec]) -> dict[str, EmittedStore]:
        """Write these stores, and read back what was written. Nobody may be in the application's group.

        Returns what was written of each, by name. Raises ChangelogError, UnknownKindError if how long a store keeps
        what is in it is not known, and what reading the state raises. What is refused is refused before anything is
        written.
        """
        for spec in specs:
            self._refuse_unknown_retention(spec)
        self.cluster.refuse_running(self.application_id)
        topics = self.cluster.topics()
        for spec in specs:
            self._check_topic(spec, topics)
        self._refuse_lasting_versions(specs, topics)
        emitted = {spec.name: self._topic_of(spec, topics) for spec in specs}
        for spec, part, wanted in self._parts(specs):
            self._write(spec, emitted[spec.name], part, wanted)
        return emitted

    def _parts(self, specs: Sequence[StoreSpec]) -> Iterator[tuple[StoreSpec, int, StoreRecords]]:
        """Yield each store of each part with its records."""
        for part in self.state.parts if specs else ():
            with self.state.open(part, specs) as stores:
                for spec in specs:
                    opened = stores[spec.name]
                    yield spec, part, StoreRecords(spec, opened.bytes, opened.stream_time_ms)

    def _refuse_unknown_retention(self, spec: StoreSpec) -> None:
        if not spec.kind.is_segmented:
            return
        # Either one alone would have all that is in a store expire but its last segment.
        if spec.retention_ms == READING_RETENTION_MS or spec.segment_interval_ms == READING_INTERVAL_MS:
            raise UnknownKindError(
                self.state.path,
                problem=f"how long store {spec.name!r} keeps what is in it",
                remedy="say it with --retention-ms and --segment-interval-ms, as the application has set them",
            )

    def _check_topic(self, spec: StoreSpec, topics: Mapping[str, int]) -> None:
        """See that the topic of a store can take it, or can be made."""
        topic, parts = changelog_topic(self.application_id, spec.name), self.state.parts
        if topic not in topics and self.partitions is None and self.state.layout in _ONE_OF_SEVERAL:
            raise UnknownKindError(
                self.state.path,
                problem=f"how many partitions {topic} must have, which is not there",
                remedy="say with --partitions how many the application's input has",
            )
        partitions = topics.get(topic, self.partitions or len(parts))
        # The tasks of an application may be on several machines; a state location has all shards.
        expected = len(parts) if self.state.layout is Layout.LOCATION else max(partitions, max(parts) + 1)
        if partitions != expected:
            raise ChangelogPartitionsError(topic, found=partitions, expected=expected, of=self.state.path)
        if topic not in topics:
            return
        refuse_unfit(spec, topic, self.cluster.settings(topic))
        offsets = sum(ends.end_offset - ends.first_offset for ends in self.cluster.log_ends(topic, partitions))
        if offsets and not self.append:
            raise ChangelogNotEmptyError(
                topic,
                problem=f"has records, in {offsets} offsets",
                remedy="With --append, what is different in the state is added behind them, and tombstones for what "
                "it has no more",
            )

    def _topic_of(self, spec: StoreSpec, topics: Mapping[str, int]) -> EmittedStore:
        topic = changelog_topic(self.application_id, spec.name)
        if topic not in topics:
            self.cluster.create_topic(topic, self.partitions or len(self.state.parts), topic_config(spec))
        return EmittedStore(topic, created=topic not in topics)

    def _refuse_lasting_versions(self, specs: Sequence[StoreSpec], topics: Mapping[str, int]) -> None:
        """Refuse to write versions behind others, if these would still be there beside those of the state."""
        versioned = [
            spec
            for spec in specs
            if spec.kind is StoreKind.VERSIONED and changelog_topic(self.application_id, spec.name) in topics
        ]
        for spec, part, wanted in self._parts(versioned):
            topic = changelog_topic(self.application_id, spec.name)
            with self._log(spec, topic, part) as log:
                with in_order_of_time(log.lacks(wanted), self.work_dir) as missing:
                    log.restore(missing)
                for found in differences(spec, wanted, log.records()):
                    raise ChangelogNotEmptyError(
                        topic,
                        problem=f"has versions of key 0x{found.key.hex()} in partition {part} that the state has not, "
                        "and versions can't be deleted",
                        remedy="Delete the topic, and the application's local state, and run this again",
                    )

    def _write(self, spec: StoreSpec, target: EmittedStore, part: int, wanted: StoreRecords) -> None:
        with self._log(spec, target.topic, part) as log, ExitStack() as sorting:
            missing = log.lacks(self._counted(target, wanted))
            if spec.kind is StoreKind.VERSIONED:
                missing = sorting.enter_context(in_order_of_time(missing, self.work_dir))
            with ChangelogWriter(self.cluster, target.topic) as writer:
                written = writer.write(part, missing)
        if written:
            target.written += written
            self._check(spec, target.topic, part, wanted)

    def _check(self, spec: StoreSpec, topic: str, part: int, wanted: StoreRecords) -> None:
        """Read back what was written."""
        with self._log(spec, topic, part) as log:
            for found in differences(spec, wanted, log.records()):
                problem = f"key 0x{found.key.hex()} in partition {part} does not restore to what it is in the state"
                if not found.in_log and spec.kind in (StoreKind.WINDOW, StoreKind.SESSION):
                    problem += (
                        ": the broker has deleted it as older than retention.ms, by its own clock; make that longer"
                    )
                raise ChangelogWriteError(topic, problem=problem)

    def _counted(self, target: EmittedStore, wanted: StoreRecords) -> Iterator[ChangelogRecord]:
        for step in steps(wanted, record_bytes):
            yield from step
            target.entries += len(step)
            if self.on_records is not None:
                self.on_records(len(step))

    @contextmanager
    def _log(self, spec: StoreSpec, topic: str, partition: int) -> Iterator[_RestoredLog]:
        """Hand out what the log of a partition restores to, in a temporary directory."""
        partitions = self.cluster.partitions(topic)
        changelog = read_log_ends(self.cluster, spec, topic, partitions, transactional=self.transactional)
        log = changelog.logs[partition]
        with (
            TemporaryDirectory(prefix="statestore-emit-", dir=self.work_dir) as directory,
            TaskDirectory(Path(directory), self.application_id, partition) as task,
        ):
            store = task.open_store(spec)
            restored = restore_store(spec, store, log, read_records(self.cluster, log))
            yield _RestoredLog(spec, store, restored.stream_time_ms)


class _RestoredLog:
    """A store that was restored from a log, and lets itself be compared with the one of the state."""

    def __init__(self, spec: StoreSpec, store: ByteStore, stream_time_ms: int) -> None:
        self._spec = spec
        self._store = store
        self._restorer = Restorer(spec, store, stream_time_ms)

    def records(self) -> StoreRecords:
        """Return what it holds."""
        return StoreRecords(self._spec, self._store, self._restorer.stream_time_ms)

    def lacks(self, wanted: Iterable[ChangelogRecord]) -> Iterator[ChangelogRecord]:
        """Yield the records that must follow in the log for it to restore to what is wanted."""
        return missing_records(self._spec, differences(self._spec, wanted, self.records()))

    def restore(self, records: Iterator[ChangelogRecord]) -> None:
        """Restore further records."""
        for step in steps(records, record_bytes):
            self._restorer.apply(step)
