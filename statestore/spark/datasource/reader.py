"""Reads committed state back from the durable location, as a batch DataFrame.

The commit pointers come from Spark's checkpoint or a head, and each shard is restored from the state location in a task
of its own. A running query is not disturbed. With Spark Connect, the server does everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from posixpath import basename
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from statestore.errors import RecoveryError
from statestore.format.serde import Serde
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.spark.checkpoints.checkpoint import recorded_pointers
from statestore.spark.datasource.committed import pointers_of_checkpoint, pointers_without_checkpoint, state_in
from statestore.spark.datasource.read_as import ReadAs
from statestore.spark.datasource.store_scan import StoreScan
from statestore.spark.query_failure import sentence_first
from statestore.spark.sessions import location_in, on_server

if TYPE_CHECKING:
    from statestore.spark.header_functions.typed_values import AnyConverter


def read_store(
    spark: SparkSession,
    store: str,
    *,
    checkpoint_location: str | Path | None = None,
    state_location: str | Path | DurableLocation,
    header_converter: AnyConverter = None,
    live_at_ms: int | None = None,
    key_serde: str | Serde[Any] | None = None,
    value_serde: str | Serde[Any] | None = None,
) -> DataFrame:
    """Return the committed entries of `store`, one row each, in no set order, with the columns of `headerstate`.

    The call itself finds out what is committed, from the query's checkpoint, or by default from the head that the query
    has published in the location. `version` is the number of batches that have changed the shard. Keys
    and values are the serialized bytes, or as `key_serde` and `value_serde` read them: standard serdes or their names,
    such as `Serdes.string()` or "int64"; "json" is its text. Bytes that these can't read end the query. `start_ms` and
    `end_ms` are those of a window or session, or from when and until when a version of a versioned store is valid; null
    for key-value stores, and for the end of the latest version. Timestamp and headers are null if the store's format
    has none. A global store, which every shard holds, has each row once.

    With a `header_converter` (one, its name, or properties of Kafka Connect) there is one more column, `typed_headers`,
    as `header_functions.typed_headers` makes it. `headers` stay bytes, for `header_typed`.

    `live_at_ms` leaves out the entries that have expired at that time, by a time to live or a header, in milliseconds
    since the epoch, on the store's own clock; None shows all entries, even those that wait to be deleted.

    Raises RecoveryError or StatePointersError if there is no state, or neither a checkpoint nor a head, and ValueError
    if it has no such store, or one in which nothing expires, and for a serde of your own.
    """
    read_as = ReadAs.of(key_serde, value_serde)
    location = location_in(spark, state_location)
    stage, recorded_metadata = on_server(spark, _state, location, store)
    location = location.below(stage) if stage else location
    metadata = StateMetadata.from_json(recorded_metadata.encode(), str(location))
    specs = {spec.name: spec for spec in metadata.stores}
    if store not in specs:
        raise ValueError(f"the state has no store {store!r}, only {sorted(specs)}")
    scan = StoreScan(location, metadata, specs[store], read_as=read_as, live_at_ms=live_at_ms)
    recorded = None if checkpoint_location is None else recorded_pointers(spark, checkpoint_location)
    committed = on_server(spark, _committed, location, metadata, recorded)
    pointers = [committed[shard] for shard in scan.shards]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with sentence_first():
            for batch in batches:
                for place in batch.column("id").to_pylist():
                    yield from scan.read(CommitPointer.from_json(pointers[place]))

    # The pointers go with the function: as rows they would cost a shuffle, so that each has a task of its own.
    entries = spark.range(0, len(pointers), 1, len(pointers)).mapInArrow(read, scan.schema)
    if header_converter is None:
        return entries
    # Every Python worker of a query imports this module, but few queries have typed headers.
    from statestore.spark.header_functions import typed_headers

    return entries.withColumn("typed_headers", typed_headers("headers", converter=header_converter))


def _state(location: DurableLocation, store: str) -> tuple[str, str]:
    found, metadata = state_in(location, store)
    return "" if found is location else basename(urlsplit(found.uri).path), metadata.to_json()


def _committed(location: DurableLocation, metadata: StateMetadata, recorded: list[str] | None) -> list[str]:
    if recorded is not None:
        found = pointers_of_checkpoint(location, metadata, recorded)
    elif (known := pointers_without_checkpoint(location, metadata)) is not None:
        found = known
    else:
        raise RecoveryError(
            str(location), "has no head, which says what is committed. Give read_store the query's checkpoint_location"
        )
    return [pointer.to_json() for pointer in found]
