"""What the log of a partition restores to, for comparison with a state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.recovery.commit.changelog import ChangelogRecord, record_sizes
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import ChangelogTopic, read_records
from upgrade_tools.changelogs.restoring import Restorer, restore_store
from upgrade_tools.changelogs.state_records import StoreRecords, differences, missing_records

_APPLICATION = "application"
"""Application id of the temporary task directory."""


class RestoredLog:
    """A store that was restored from a log, for comparison with the one in a state."""

    def __init__(self, spec: StoreSpec, store: ByteStore, stream_time_ms: int) -> None:
        self._spec = spec
        self._store = store
        self._restorer = Restorer(spec, store, stream_time_ms)

    def records(self) -> StoreRecords:
        """Return what it holds."""
        return StoreRecords(self._spec, [self._store], self._restorer.stream_time_ms)

    def lacks(self, wanted: Iterable[ChangelogRecord]) -> Iterator[ChangelogRecord]:
        """Yield the records that the log needs to restore to what is wanted."""
        return missing_records(self._spec, differences(self._spec, wanted, self.records()))

    def restore(self, records: Iterable[ChangelogRecord]) -> None:
        """Restore further records."""
        for chunk in chunks(records, record_sizes):
            self._restorer.apply(chunk)


@contextmanager
def restored_log(
    cluster: Cluster, changelog: ChangelogTopic, partition: int, work_dir: str | None
) -> Iterator[RestoredLog]:
    """Hand out what the log of a partition restores to, in a temporary directory.

    Raises ChangelogDamagedError, KafkaUnavailableError.
    """
    spec, log = changelog.spec, changelog.logs[partition]
    with (
        TemporaryDirectory(prefix="statestore-emit-", dir=work_dir) as directory,
        TaskDirectory(Path(directory), _APPLICATION, partition) as task,
    ):
        store = task.open_store(spec)
        restored = restore_store(spec, store, log, read_records(cluster, log))
        yield RestoredLog(spec, store, restored.stream_time_ms)
