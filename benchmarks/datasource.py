"""`headerstate` and `write_initial_state` beside Parquet with the same rows, in one run.

`python benchmarks/datasource.py` (part of `make bench`; `--rows 300000 --rounds 3`). A timestamped key-value store with
headers: 16-byte keys, 100-byte values, 3 headers of about 20 bytes. Spark reads the rows into nothing, from the state
that it made of them and from one Parquet file a core, in turn; the best round counts. What Spark takes to plan is in
all figures, by the clock. The same without Spark, in this process, is CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from statestore import Headers, Serdes, Stores
from statestore.format.records.header_columns import decode_header_column
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import NewState
from statestore.recovery.metadata.state_metadata import metadata_of_stores
from statestore.spark import register_data_source, write_initial_state
from statestore.spark.datasource.filling import fill_shards
from statestore.spark.datasource.row_placement import RowPlacement
from statestore.spark.datasource.store_scan import StoreScan
from turns import seconds

RESULTS = Path(__file__).parent / "results" / "datasource.json"
SHARDS = 2
READ_TO_PARQUET = 0.5
WRITE_ROWS_PER_S = 100_000
HEADERS = Headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"schema-0042")])
STORE = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("s"), Serdes.bytes(), Serdes.bytes()
)


def input_rows(count: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows, their keys in no order."""
    order = random.Random(1).sample(range(count), count)
    for first in range(0, count, 10_000):
        numbers = order[first : first + 10_000]
        header_bytes = pa.array([HEADERS.to_bytes()] * len(numbers), pa.binary())
        yield pa.record_batch(
            {
                "key": pa.array([b"%016d" % number for number in numbers], pa.binary()),
                "value": pa.array([b"%0100d" % number for number in numbers], pa.binary()),
                "timestamp_ms": pa.array([1_700_000_000_000 + number for number in numbers], pa.int64()),
                "headers": decode_header_column(header_bytes),
            }
        )


def in_process(home: Path, rows: list[pa.RecordBatch], count: int) -> dict[str, float]:
    """Return rows a second of CPU time, written and read back, and read."""
    metadata = metadata_of_stores((STORE.spec,), SHARDS, "key")
    location = DurableLocation(home)
    made = NewState.claim(location, metadata, "rows of a benchmark")

    def write() -> None:
        made.complete(fill_shards(made, RowPlacement((STORE.spec,), SHARDS, "key")(iter(rows))))

    def read() -> None:
        pointers = (initial_pointer(location, metadata.state_id, shard) for shard in range(SHARDS))
        scan = StoreScan(location, metadata, STORE.spec)
        if sum(batch.num_rows for pointer in pointers for batch in scan.read(pointer)) != count:
            raise AssertionError("rows were lost")

    return {"write": count / seconds(write, time.process_time), "read": count / seconds(read, time.process_time)}


def through_spark(spark: SparkSession, home: Path, rows: Path, count: int) -> dict[str, float]:
    """Return rows a second by the clock: of a state made, and read, and of Parquet read."""
    read_rows = spark.read.parquet(str(rows))

    def drain(format_name: str, path: Path) -> Callable[[], None]:
        return lambda: spark.read.format(format_name).load(str(path)).write.format("noop").mode("overwrite").save()

    write_s = seconds(lambda: write_initial_state(read_rows, home, stores=[STORE], shards=SHARDS))
    read_s, parquet_s = seconds(drain("headerstate", home)), seconds(drain("parquet", rows))
    return {"write": count / write_s, "read": count / read_s, "parquet": count / parquet_s}


def best(found: list[dict[str, float]]) -> dict[str, float]:
    """Return the best of each figure."""
    return {name: max(each[name] for each in found) for name in found[0]}


def main() -> int:
    """Measure, print, write the results file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    count = asked.rows
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home, rows = Path(directory), list(input_rows(count))
        alone = []
        for number in range(asked.rounds):
            alone.append(in_process(home / f"process-{number}", rows, count))
            shutil.rmtree(home / f"process-{number}")
        (home / "rows").mkdir()
        cores = os.cpu_count() or 1
        for core in range(cores):
            pq.write_table(pa.Table.from_batches(rows[core::cores]), home / "rows" / f"{core}.parquet")
        spark = (
            SparkSession.builder.master(f"local[{cores}]")
            .appName("statestore benchmarks")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        register_data_source(spark)
        spark_rounds = []
        for number in range(asked.rounds + 1):
            spark_rounds.append(through_spark(spark, home / f"spark-{number}", home / "rows", count))
            shutil.rmtree(home / f"spark-{number}")
        spark.stop()
    figures = {"in process": best(alone), "through Spark": best(spark_rounds[1:])}  # the first one starts workers
    spark_best = figures["through Spark"]
    ratio = spark_best["read"] / spark_best["parquet"]
    print(f"== {count:,} rows, best of {asked.rounds} (rows/s)")
    for where, found in figures.items():
        print(f"   {where:16}" + "".join(f"{name} {rate:>12,.0f}   " for name, rate in found.items()))
    met = "met" if ratio >= READ_TO_PARQUET else "NOT MET"
    print(f"   headerstate : Parquet, through Spark   {ratio:.2f}   target at least {READ_TO_PARQUET}: {met}")
    met = "met" if spark_best["write"] >= WRITE_ROWS_PER_S else "NOT MET"
    print(f"   write_initial_state, through Spark   target at least {WRITE_ROWS_PER_S:,}: {met}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"rows": count, "rows_per_s": figures, "read_to_parquet": ratio}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
