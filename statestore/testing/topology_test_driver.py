"""`TopologyTestDriver`: runs a topology in a test, without Spark and without a broker. Source: Kafka's (KIP-247, 470).

Every record goes through the task that Spark runs, on the stores that Spark opens: RocksDB for persistent builders. It
is committed before the next one: caches are flushed, changelog and output records become readable, and those in topics
that the topology reads are piped in again. Time only passes as the test says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from statestore.bytestore.kinds.store_spec import StoreSpec, check_store_name, require_milliseconds
from statestore.errors.harness import DriverClosedError, DriverFailedError
from statestore.format.serde import Serde
from statestore.interception.chain import Interceptors, chain_of
from statestore.interception.failures import FailureHandling
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.stores.typed_store import TypedStore
from statestore.testing.driver_run import DriverRun
from statestore.testing.driver_state import DriverState
from statestore.testing.store_access import StoreAccess
from statestore.testing.topic_logs import ReadableTopic
from statestore.testing.topics import PipedRecord, TestInputTopic, TestOutputTopic, TestRecord

K = TypeVar("K")
V = TypeVar("V")


class TopologyTestDriver(StoreAccess):
    """Runs a topology. Use it in a `with`, or close it.

    `state_dir` is a state directory of Kafka Streams: the driver continues from the application's state in it, and
    leaves there the state of the last commit before `close`. None is a temporary directory, which `close` deletes.
    `changelogs` are what the changelog topics of stores held before: key and value as bytes, with the timestamp. Stores
    are restored from the part that they lack. `interceptors` see each record, and `failures` says what to do about
    records that fail, as in `stateful`. Dead letters can be read like any topic that was written to.

    After an error in the topology, nothing of the record that caused it is committed, and only `restart` continues.
    After `close` every call raises DriverClosedError, except `close`.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str = "test-application",
        initial_wall_clock_time_ms: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        changelogs: Mapping[str, Iterable[TestRecord[bytes, bytes | None]]] | None = None,
        interceptors: Interceptors = None,
        failures: FailureHandling | None = None,
    ) -> None:
        topology.validate()
        chain = chain_of(interceptors).complete()
        check_store_name(application_id)
        require_milliseconds("initial_wall_clock_time_ms", initial_wall_clock_time_ms)
        handling = (failures or FailureHandling()).around(chain)
        given = {
            name: [_changelog_record(record) for record in records] for name, records in (changelogs or {}).items()
        }
        unknown = given.keys() - topology.with_interceptors(chain).store_builders.keys()
        if unknown:
            raise ValueError(f"changelogs: the topology has no store {sorted(unknown)[0]!r}")
        home = Path(tempfile.mkdtemp(prefix="statestore-test-") if state_dir is None else state_dir)
        self._delete_home = weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        if state_dir is not None:
            self._delete_home.detach()
        self._closed = False
        try:
            self._state = DriverState(
                application_id, home, given, wall_clock_ms=initial_wall_clock_time_ms, is_kept=state_dir is not None
            )
            self._run = DriverRun(self._state, handling, chain)
            self._run.start(topology)
        except BaseException:
            self._closed = True
            self._delete_home()
            raise

    def create_input_topic(
        self,
        topic: str,
        *,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp_ms: int | None = None,
        auto_advance_ms: int = 0,
    ) -> TestInputTopic[K, V]:
        """Return an input that pipes records into `topic`; its time starts at the driver's wall clock or as given."""
        self._require_open()
        _require_topic(topic)
        start_ms = self._state.context.system_time_ms if start_timestamp_ms is None else start_timestamp_ms
        return TestInputTopic(self, topic, key_serde, value_serde, start_ms, auto_advance_ms)

    def create_output_topic(self, topic: str, *, key_serde: Serde[K], value_serde: Serde[V]) -> TestOutputTopic[K, V]:
        """Return an output that reads what was written to `topic`: by sinks, or to `APPLICATION_ID-STORE-changelog`.

        All outputs of one topic share its records: each is read once.
        """
        self._require_open()
        _require_topic(topic)
        return TestOutputTopic(self, topic, key_serde, value_serde)

    def advance_wall_clock_time(self, advance_ms: int) -> None:
        """Advance the wall clock and run the punctuators that become due. Raises ValueError for a negative step."""
        require_milliseconds("advance_ms", advance_ms)
        self._require_open()
        self._run.advance_wall_clock(advance_ms)

    @property
    def wall_clock_time_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch."""
        self._require_open()
        return self._state.context.system_time_ms

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp that was processed, in milliseconds since the epoch; -1 before the first record."""
        self._require_open()
        return self._state.context.stream_time_ms

    def produced_topic_names(self) -> set[str]:
        """Return the names of the topics that were written to so far, changelogs included."""
        self._require_open()
        return self._run.produced_topics()

    def get_all_state_stores(self) -> dict[str, TypedStore]:
        """Return all stores by name, global ones included."""
        self._require_open()
        return dict(self._state.stores)

    def metrics(self) -> dict[str, float]:
        """Return counts since the last start by Kafka's names.

        Also `STORE/METRIC` of stores that are measured, and what processors counted, as `NODE.WHAT`.
        """
        self._require_open()
        return self._run.metrics()

    def restart(self, topology: Topology | None = None, *, restore_from: Literal["disk", "changelog"] = "disk") -> None:
        """Stop, and start again on the same state, with `topology` or, if it is None, the one before.

        "disk" opens the local stores again; those in memory are restored from their changelogs. "changelog" deletes
        them, and restores all stores from their changelogs and global ones from their topics: what was not logged is
        gone. Clocks, input offsets, schedules, outputs and records that wait to be piped again stay.

        Raises StoreFormatError for a store that can't be opened as the topology has it, and IncompleteChangelogError,
        before anything is deleted, where the driver does not have a whole changelog.
        """
        self._require_open()
        if restore_from not in ("disk", "changelog"):
            raise ValueError(f'restore_from must be "disk" or "changelog", got {restore_from!r}')
        topology = self._run.declared if topology is None else topology
        topology.validate()
        anew = restore_from == "changelog"
        if anew:
            self._state.check_changelogs(topology)
        self._run.stop()
        if anew:
            self._state.delete_local()
        self._run.start(topology, anew=anew)

    def close(self) -> None:
        """Close processors and stores; twice is harmless. Raises ProcessorError if a processor can't be closed."""
        if self._closed:
            return
        try:
            self._run.stop()
        finally:
            self._closed = True
            self._delete_home()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pipe(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic and what they lead to, one by one. TestInputTopic calls this."""
        self._require_open()
        self._run.pipe(topic, records)

    def pipe_micro_batch(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic, and commit them together. TestInputTopic calls this."""
        self._require_open()
        self._run.pipe_micro_batch(topic, records)

    def readable(self, topic: str) -> ReadableTopic | None:
        """Return the records of a topic, None if there never were any. TestOutputTopic calls this."""
        self._require_open()
        return self._run.readable(topic)

    def _store(self, name: str) -> tuple[TypedStore, StoreSpec] | None:
        self._require_open()
        store = self._state.stores.get(name)
        if store is not None:
            return store, self._run.topology.store_builders[name].spec
        if self._run.failure is not None and not self._state.stores:
            raise DriverFailedError(self._run.failure)
        return None

    def _require_open(self) -> None:
        if self._closed:
            raise DriverClosedError


def _changelog_record(record: TestRecord[bytes, bytes | None]) -> ChangelogRecord:
    if not isinstance(record.key, bytes) or not isinstance(record.value, bytes | None):
        raise TypeError(f"a changelog record has a key and a value of bytes, or a value of None, not {record!r}")
    if record.timestamp_ms is None:
        raise ValueError(f"a changelog record must have a timestamp, not {record!r}")
    return ChangelogRecord(record.key, record.value, record.timestamp_ms, record.headers.to_bytes())


def _require_topic(topic: Any) -> None:
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"topic must be a name, not {topic!r}")
