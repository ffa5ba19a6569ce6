"""The input that every benchmark shares: seeded records of Kafka's shape, and the operator they run through.

The operator: get the key's state, add one to its count, keep the record's value, timestamp and headers, put it back,
and emit the record with the count before its value. 16-byte keys, 100-byte values, 3 headers of about 20 bytes,
uniform over 100,000 keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statestore import (
    BatchProcessor,
    Processor,
    ProcessorContext,
    Record,
    RecordColumns,
    Serdes,
    Stores,
    Topology,
    ValueTimestampHeaders,
)
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.format.serde_columns import INT64_COLUMNS

KEYS = 100_000
VALUE_SIZE_BYTES = 100
PARTITIONS = 4
START_MS = 1_700_000_000_000
STORE = "counts"
COUNTS = INT64_COLUMNS
KAFKA_ROWS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


class CountAndKeep(Processor):
    """Counts a key's records and keeps the latest one's value, timestamp and headers."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store(STORE)

    def process(self, record: Record[bytes, bytes]) -> None:
        seen = self.store.get(record.key)
        count = 1 if seen is None else int.from_bytes(seen.value[:8], "big") + 1
        value = count.to_bytes(8, "big") + record.value
        self.store.put(record.key, ValueTimestampHeaders.make(value, record.timestamp_ms, record.headers))
        self.context.forward(record.with_value(value))


class CountAndKeepColumns(BatchProcessor):
    """Does what CountAndKeep does, by columns."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store(STORE)

    def process_batch(self, records: RecordColumns) -> None:
        groups = records.by_key
        held = self.store.get_many(groups.keys)
        before = pc.fill_null(COUNTS.deserialize(pc.binary_slice(held.value, 0, 8)), 0).to_numpy()
        counts = pa.array(before[groups.codes] + groups.running_count())
        value = pc.binary_join_element_wise(COUNTS.serialize(counts), records.value, b"")
        counted = records.with_columns(value=value)
        self.store.put_many(counted)
        self.context.forward_batch(counted)


def counting_topology(processor: type[Processor] = CountAndKeep, to: str = "out") -> Topology:
    """Return in -> count and keep -> a topic, all bytes."""
    serde = Serdes.bytes()
    topology = Topology()
    topology.add_source("in", key_serde=serde, value_serde=serde)
    topology.add_processor("count", processor, ["in"])
    topology.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(
            Stores.persistent_timestamped_key_value_store_with_headers(STORE), serde, serde
        ),
        "count",
    )
    topology.add_sink("out", to, ["count"])
    return topology


def records(first: int, count: int, seed: int = 1, keys: int = KEYS) -> pa.RecordBatch:
    """Return the records numbered from `first`, in Kafka's shape, ordered by partition and offset."""
    rng = np.random.default_rng([seed, first])
    key_numbers = rng.integers(0, keys, count)
    traces = [b"%016x" % number for number in rng.integers(0, 2**63, count)]
    contents: list[bytes] = [b""] * (3 * count)
    contents[0::3], contents[1::3], contents[2::3] = traces, [b"sensor-eu-west"] * count, [b"schema-0042"] * count
    return keyed_records(key_numbers, first, ("trace-id", "source", "schema-id"), contents)


def keyed_records(
    key_numbers: Sequence[int], first: int, header_names: Sequence[str], header_values: Sequence[bytes]
) -> pa.RecordBatch:
    """Return a record for each of these keys, numbered from `first`; the header values are those of all in turn."""
    count, headers_each = len(key_numbers), len(header_names)
    keys = pa.array([b"%016d" % key for key in key_numbers], pa.binary())
    values = pa.array([b"%0*d" % (VALUE_SIZE_BYTES, number) for number in range(first, first + count)], pa.binary())
    names = pa.array([*header_names] * count, pa.string())
    fields = list(HEADERS_TYPE.value_type)
    entries = pa.StructArray.from_arrays([names, pa.array(header_values, pa.binary())], fields=fields)
    ends = pa.array(np.arange(count + 1) * headers_each, pa.int32())
    headers = pa.ListArray.from_arrays(ends, entries, type=HEADERS_TYPE)
    partition = np.sort(np.arange(count) % PARTITIONS).astype(np.int32)
    timestamps = pa.array(np.full(count, START_MS * 1000) + np.arange(first, first + count) * 1000)
    columns: dict[str, Any] = {
        "key": keys,
        "value": values,
        "topic": pa.array(["in"] * count, pa.string()),
        "partition": pa.array(partition),
        "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
        "timestamp": timestamps.cast(pa.timestamp("us", "UTC")),
        "headers": headers,
    }
    return pa.record_batch(columns)


def write_input(directory: Path, batches: int, records_per_batch: int) -> None:
    """Write `batches` folders-worth of Parquet files, PARTITIONS files a micro-batch, each one Kafka partition."""
    directory.mkdir(parents=True)
    for number in range(batches):
        write_batch(directory, number, records(number * records_per_batch, records_per_batch))


def write_batch(directory: Path, number: int, batch: pa.RecordBatch) -> None:
    """Write a micro-batch, a file for each partition."""
    of_partition = batch.column("partition").to_numpy()
    for partition in range(PARTITIONS):
        rows = batch.filter(pa.array(of_partition == partition))
        pq.write_table(pa.Table.from_batches([rows]), directory / f"{number:04d}-{partition}.parquet")
