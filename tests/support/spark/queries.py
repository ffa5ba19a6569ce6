"""Runs the order topology as a real streaming query, and says what must come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from orders import Order, Total, running_total_topology, write_orders
from show import held_totals
from statestore import Topology
from statestore.spark import read_store, stateful

SHARDS = 2
KAFKA_ROWS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


# Each attempt's state files have names of their own, so an executor that was given up can't overwrite another's.
SECOND_CHECKPOINT_FORMAT = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@contextmanager
def spark_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set what a query that is started meanwhile is to run with, and take it back."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def run_to_the_end(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Run a query until it has processed all that there is, from where the checkpoint says that it was."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


class OrderQuery:
    """A query over files of orders, one file a micro-batch, in a directory of its own."""

    def __init__(self, spark: SparkSession, home: Path, via: str) -> None:
        self.spark = spark
        self.home = home
        self.via = via
        self.outputs: list[Any] = []
        self.state_location: Any = home / "state"
        self._files = 0

    def add(self, *files: Sequence[Order]) -> None:
        """Add files, each the next micro-batch."""
        for orders in files:
            write_orders(orders, self.home / "input" / f"orders-{self._files:04d}.parquet")
            self._files += 1

    def records(self) -> DataFrame:
        """Return the stream of orders."""
        (self.home / "input").mkdir(exist_ok=True)
        reader = self.spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.home / "input"))

    def run(self, topology: Topology | None = None, *, checkpoint: str = "checkpoint", **options: Any) -> None:
        """Run the query until it has processed every file; what it put out is appended to `outputs`."""
        arguments: dict[str, Any] = {
            "shards": SHARDS,
            "state_location": self.state_location,
            "local_dir": str(self.home / "local"),
            "via": self.via,
            **options,
        }
        records = arguments.pop("records", None)
        rows = stateful(
            self.records() if records is None else records, topology or running_total_topology(), **arguments
        )
        self.collect(rows, checkpoint)

    def collect(self, rows: DataFrame, checkpoint: str = "checkpoint", *, output_mode: str = "append") -> None:
        """Run a query that puts out `rows` until it has processed every file; they are appended to `outputs`."""
        writer = rows.writeStream.foreachBatch(lambda batch, _: self.outputs.extend(batch.collect()))
        run_to_the_end(writer.outputMode(output_mode), self.home / checkpoint)

    def rows_of(self, store: str, checkpoint: str = "checkpoint", **options: Any) -> list[Row]:
        """Return the entries of a store, read back from the durable location."""
        locations = {"checkpoint_location": self.home / checkpoint, "state_location": self.state_location}
        return read_store(self.spark, store, **locations, **options).collect()

    def totals(self, checkpoint: str = "checkpoint") -> dict[str, Total]:
        """Return what the store holds, read back from the durable location."""
        rows = self.rows_of("totals", checkpoint)
        found = held_totals(rows)
        assert len(found) == len(rows), "a key in two shards"
        return found
