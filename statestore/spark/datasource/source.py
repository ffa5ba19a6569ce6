"""`headerstate`: the Spark data source. What Spark runs where is said at each class.

Spark makes a HeaderStateDataSource in a process on the driver's machine, pickles it, and plans each read in another
such process; there the state's metadata is read, and the driver asked for commit pointers. Readers and partitions go
on to the executors; the driver's address and its key do not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from statestore.errors import DataSourceOptionError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark.checkpoints.checkpoint_pointers import recorded_pointers
from statestore.spark.checkpoints.source_offsets import read_source_offsets
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

FORMAT_NAME = "headerstate"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_services: dict[SparkSession, CheckpointService] = {}


def register_data_source(spark: SparkSession) -> None:
    """Have `spark.read.format("headerstate")` and `df.write.format("headerstate")` work in this session.

    Call it once in each session; again does nothing. With Spark Connect the server reads and writes, and what is
    committed in a checkpoint comes from `committed_options`. Lets Python data sources push filters down, which the
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
        _services.pop(spark).close()  # its file or its socket was cleaned away
    service = CheckpointService(
        lambda checkpoint, batch_id: recorded_pointers(spark, checkpoint, batch_id),
        lambda checkpoint: read_source_offsets(spark, checkpoint).batch_id,
    )

    _register(spark, service.address)
    _services[spark] = service


def _register(spark: SparkSession, answering: CheckpointReader) -> None:
    choose_python(spark)

    class Registered(HeaderStateDataSource):
        driver = answering

    spark.dataSource.register(Registered)
    spark.conf.set(_PUSHDOWN, "true")


class HeaderStateDataSource(DataSource):
    """What Spark makes of a `load` or a `save`. Lives on the driver's machine, and travels on without `driver`."""

    driver: CheckpointReader = UNREGISTERED
    """Who can read a checkpoint."""
    _dataframe: str | None = None
    """Identity of the DataFrame that `load` returned: all that is derived from it shares it."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return FORMAT_NAME

    def schema(self) -> str:
        """Return the columns of the store, or of its changes. Raises DataSourceOptionError, SparkVersionError."""
        options = ReadOptions.of(self.options)
        if options.push_filters:
            require("the option pushFilters of the data source headerstate", WITH_ALL)
        fields = STORE_FIELDS if options.change_start_batch_id is None else CHANGE_FIELDS
        return rows_schema(fields, options.include_headers, options.read_as)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads; whatever there is to ask the driver for was asked then."""
        options = ReadOptions.of(self.options)
        # Spark sends this data source on to the executors, beside its reader.
        driver, self.driver = self.driver, UNREGISTERED
        dataframe = self._dataframe or uuid.uuid4().hex
        location = DurableLocation(options.path)
        metadata = state_in(location)
        spec = asked_store(metadata, options.store)
        if options.change_start_batch_id is not None:
            changes = ChangeScan(location, metadata, spec, options.include_headers, options.work_dir, options.read_as)
            return ChangeReader(changes, asked_changes(location, metadata, options, driver, dataframe))
        try:
            scan = StoreScan(
                location,
                metadata,
                spec,
                options.include_headers,
                options.work_dir,
                options.read_as,
                live_at_ms=options.live_at_ms,
            )
        except ValueError as cause:
            raise DataSourceOptionError("liveAtMs", f"can't be told ({cause})") from cause
        pointers = asked_pointers(location, metadata, options, driver, dataframe)
        if not options.push_filters:
            return StoreReader(scan, pointers)
        return FilteringStoreReader(scan, pointers, trust_keys=options.trust_keys, dataframe=dataframe)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what makes a new state; its location was taken then."""
        return StateWriter.begin(self.options, schema, overwrite)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self.options), self.driver, self._dataframe or uuid.uuid4().hex)


def _restored(options: Mapping[str, str], driver: CheckpointReader, dataframe: str) -> HeaderStateDataSource:
    source = HeaderStateDataSource(dict(options))
    source.driver = driver
    source._dataframe = dataframe
    return source


class ShardPartition(InputPartition):
    """One shard, a task of its own: `value` is its CommitPointer, or its ShardChanges."""


class ShardReader(DataSourceReader):
    """Reads shard by shard. Partitions are made on the driver's machine, rows on the executors."""

    scan: Any

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard; changes are in order."""
        # Of no partitions at all, Spark makes one without a value.
        if partition.value is not None:
            yield from self.scan.read(partition.value)

    def __getstate__(self) -> dict[str, Any]:
        # Each partition has what is of its shard, and no executor needs that of the others.
        return {"scan": self.scan}


class StoreReader(ShardReader):
    """Reads a store."""

    scan: StoreScan

    def __init__(self, scan: StoreScan, pointers: list[CommitPointer]) -> None:
        self.scan = scan
        self._pointers = pointers

    def partitions(self) -> list[InputPartition]:
        """Return the shards that hold anything that is asked for; their pointers were read before."""
        pointers = (self._pointers[shard] for shard in self._shards())
        return [ShardPartition(pointer) for pointer in pointers if pointer.version > 0]

    def _shards(self) -> list[int]:
        return self.scan.shards


class FilteringStoreReader(StoreReader):
    """Reads a store, and of it only what Spark's filters ask for, applied exactly as Spark would."""

    def __init__(self, scan: StoreScan, pointers: list[CommitPointer], *, trust_keys: bool, dataframe: str) -> None:
        super().__init__(scan, pointers)
        self._trust_keys = trust_keys
        self._dataframe = dataframe

    def pushFilters(self, pushed: list[filters.Filter]) -> Iterable[filters.Filter]:
        """Take the filters that are applied here, and return the others.

        Raises DataFrameReusedError if the DataFrame was read with other filters before: Spark keeps one read function
        for all that is derived from one `load`, and so does the server of Spark Connect.
        """
        conditions = {id(each): condition_of(each, self.scan.read_as) for each in pushed}
        known = tuple(condition for condition in conditions.values() if condition is not None)
        described = [f"{each.column} {each.filter.__name__} {_in_order(each.value)!r} {each.negated}" for each in known]
        check_filters(self._dataframe, " and ".join(sorted(described)))
        self.scan = replace(self.scan, row_filter=RowFilter(known))
        return [each for each in pushed if conditions[id(each)] is None]

    def _shards(self) -> list[int]:
        keys = self.scan.row_filter.keys()
        shards = super()._shards()
        if keys is None:
            return shards
        of_keys = shards_of_keys(self.scan.metadata, self.scan.spec, keys, trust_keys=self._trust_keys)
        return shards if of_keys is None else [shard for shard in shards if shard in of_keys]


class ChangeReader(ShardReader):
    """Reads the changes of a store."""

    def __init__(self, scan: ChangeScan, changes: list[ShardChanges]) -> None:
        self.scan = scan
        self._changes = changes

    def partitions(self) -> list[InputPartition]:
        """Return the shards that were changed."""
        shards = self._changes[:1] if self.scan.is_global else self._changes
        return [ShardPartition(changes) for changes in shards if changes.deltas]


def _in_order(value: Any) -> Any:
    """Return what a filter compares with; of several values Spark may hand out the same in any order."""
    return sorted(value, key=repr) if isinstance(value, (list, tuple, set, frozenset)) else value
