"""`headerstate`: the Spark data source. Each class says where Spark runs it.

Spark makes a HeaderStateDataSource in a process on the driver's machine, pickles it, and plans each read in another
such process, which reads the state's metadata and asks the driver for commit pointers. Readers and partitions go to the
executors; the driver's address and its key do not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from statestore.errors import DataSourceOptionError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark.checkpoints.checkpoint import last_batch_id, recorded_pointers
from statestore.spark.datasource.change_feed import CHANGE_FIELDS, ChangeScan, ShardChanges
from statestore.spark.datasource.checkpoint_service import (
    UNREGISTERED,
    WITH_CONNECT,
    CheckpointReader,
    CheckpointService,
)
from statestore.spark.datasource.committed import asked_changes, asked_pointers, asked_store, shards_of_keys, state_in
from statestore.spark.datasource.options import ReadOptions
from statestore.spark.datasource.planned_filters import check_filters
from statestore.spark.datasource.row_filter import RowFilter, condition_of
from statestore.spark.datasource.store_scan import STORE_FIELDS, StoreScan, rows_schema
from statestore.spark.datasource.writer import StateWriter
from statestore.spark.sessions import choose_python, is_connect
from statestore.spark.spark_versions import WITH_ALL, filters, require

_services: dict[SparkSession, CheckpointService] = {}


def register_data_source(spark: SparkSession) -> None:
    """Make `spark.read.format("headerstate")` and `df.write.format("headerstate")` work in this session.

    Call it once in each session; a second call does nothing. With Spark Connect the server reads and writes, and
    `committed_options` says what is committed in a checkpoint. Lets Python data sources push filters down, which the
    option pushFilters needs.
    """
    if is_connect(spark):
        _register(spark, WITH_CONNECT)
        return
    for session, service in list(_services.items()):
        if session.sparkContext._jsc is None:  # its context has stopped
            service.close()
            del _services[session]
    if spark in _services:
        if _services[spark].address.answers():
            return
        _services.pop(spark).close()  # somebody deleted its file or its socket
    service = CheckpointService(
        lambda checkpoint, batch_id: recorded_pointers(spark, checkpoint, batch_id),
        lambda checkpoint: last_batch_id(spark, checkpoint),
    )
    _register(spark, service.address)
    _services[spark] = service


def _register(spark: SparkSession, answering: CheckpointReader) -> None:
    choose_python(spark)

    class Registered(HeaderStateDataSource):
        driver = answering

    spark.dataSource.register(Registered)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class HeaderStateDataSource(DataSource):
    """A `load` or a `save`. Lives on the driver's machine, and travels to executors without `driver`."""

    driver: CheckpointReader = UNREGISTERED
    """Who can read a checkpoint."""
    _dataframe: str | None = None
    """Identifies the DataFrame that `load` returned, and all that are derived from it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "headerstate"

    def schema(self) -> str:
        """Return the columns of the store, or of its changes. Raises DataSourceOptionError, SparkVersionError."""
        options = ReadOptions.of(self.options)
        if options.push_filters:
            require("the option pushFilters of the data source headerstate", WITH_ALL)
        fields = STORE_FIELDS if options.change_start_batch_id is None else CHANGE_FIELDS
        return rows_schema(fields, options.include_headers, options.read_as)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader, after the driver has answered all questions."""
        options = ReadOptions.of(self.options)
        # Spark sends this data source to the executors, too, beside its reader.
        driver, self.driver = self.driver, UNREGISTERED
        dataframe = self._dataframe or uuid.uuid4().hex
        location, metadata = state_in(DurableLocation(options.path), options.store)
        spec = asked_store(metadata, options.store)
        if options.change_start_batch_id is not None:
            changes = ChangeScan(location, metadata, spec, options.include_headers, options.work_dir, options.read_as)
            found = asked_changes(location, metadata, options, driver, dataframe)
            return ShardReader(changes, [each for each in found[: 1 if changes.is_global else None] if each.deltas])
        if options.header is not None and not spec.format.has_headers:
            raise DataSourceOptionError("header", f"has no meaning for store {spec.name!r}, which has no headers")
        try:
            scan = StoreScan(
                location,
                metadata,
                spec,
                options.include_headers,
                options.work_dir,
                options.read_as,
                RowFilter(header=options.header),
                options.live_at_ms,
            )
        except ValueError as cause:
            raise DataSourceOptionError("liveAtMs", f"can't be told ({cause})") from cause
        pointers = asked_pointers(location, metadata, options, driver, dataframe)
        if not options.push_filters:
            return ShardReader(scan, _written(pointers, scan.shards))
        return FilteringReader(scan, pointers, options.trust_keys, dataframe)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a new state, whose location it has claimed."""
        return StateWriter.begin(self.options, schema, overwrite)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self.options), self.driver, self._dataframe or uuid.uuid4().hex)


def _restored(options: Mapping[str, str], driver: CheckpointReader, dataframe: str) -> HeaderStateDataSource:
    source = HeaderStateDataSource(dict(options))
    source.driver = driver
    source._dataframe = dataframe
    return source


def _written(pointers: Sequence[CommitPointer], shards: Iterable[int]) -> list[CommitPointer]:
    return [pointers[shard] for shard in shards if pointers[shard].version > 0]


class ShardReader(DataSourceReader):
    """Reads shard by shard. Partitions are made on the driver's machine, rows on the executors."""

    def __init__(self, scan: StoreScan | ChangeScan, found: Sequence[CommitPointer] | Sequence[ShardChanges]) -> None:
        """Take what to read, and where each shard stands, in a task of its own."""
        self.scan: Any = scan
        self._found = found

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each shard, with its CommitPointer or its ShardChanges as the value."""
        return [InputPartition(each) for each in self._found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard; changes are in order."""
        # If there are no partitions, Spark makes one without a value.
        if partition.value is not None:
            yield from self.scan.read(partition.value)

    def __getstate__(self) -> dict[str, Any]:
        # A partition has what belongs to its shard; no executor needs the rest.
        return {"scan": self.scan}


class FilteringReader(ShardReader):
    """Reads the rows of a store that Spark's filters ask for; applies filters exactly as Spark would."""

    def __init__(self, scan: StoreScan, pointers: list[CommitPointer], trust_keys: bool, dataframe: str) -> None:
        self.scan = scan
        self._pointers = pointers
        self._trust_keys = trust_keys
        self._dataframe = dataframe

    def pushFilters(self, pushed: list[filters.Filter]) -> Iterable[filters.Filter]:
        """Take the filters that can be applied here, and return the others.

        Raises DataFrameReusedError if the DataFrame was read with other filters before: Spark, also the server of Spark
        Connect, keeps one read function for everything derived from one `load`.
        """
        conditions = {id(each): condition_of(each, self.scan.read_as) for each in pushed}
        known = tuple(condition for condition in conditions.values() if condition is not None)
        described = [f"{each.column} {each.filter.__name__} {_in_order(each.value)!r} {each.negated}" for each in known]
        check_filters(self._dataframe, " and ".join(sorted(described)))
        self.scan = replace(self.scan, row_filter=replace(self.scan.row_filter, conditions=known))
        return [each for each in pushed if conditions[id(each)] is None]

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each shard that may hold such rows."""
        keys, shards = self.scan.row_filter.keys(), self.scan.shards
        if keys is not None:
            of_keys = shards_of_keys(self.scan.metadata, self.scan.spec, keys, trust_keys=self._trust_keys)
            shards = shards if of_keys is None else [shard for shard in shards if shard in of_keys]
        return [InputPartition(pointer) for pointer in _written(self._pointers, shards)]


def _in_order(value: Any) -> Any:
    """Return the value that a filter compares with; sorted if there are several, which Spark hands out in any order."""
    return sorted(value, key=repr) if isinstance(value, (list, tuple, set, frozenset)) else value
