"""The main job, end to end and without Kafka: headers live in state, and state survives a lost disk.

Run with `make demo`. Orders come from files in Kafka's shape, one file a micro-batch.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import orders as orders_module
from demo_session import demo_session
from orders import Order, running_total_topology, seeded_orders, write_orders
from show import check_store, show_store, show_totals
from statestore.spark import read_store, stateful

ORDERS_PER_FILE = 40
FILES_BEFORE_RESTART = 3
FILES = 5
ROWS_SHOWN = 5
SHARDS = 4


def main() -> int:
    """Run the demo; return 0 if the totals in state are right, 1 if not."""
    started = time.monotonic()
    # Python workers do not know this directory: the processor travels with the query. A package would be installed.
    cloudpickle.register_pickle_by_value(orders_module)
    with tempfile.TemporaryDirectory(prefix="statestore-demo-") as directory:
        home = Path(directory)
        spark = demo_session("statestore demo")
        right = run(spark, home)
        spark.stop()
    print(f"\nDone in {time.monotonic() - started:.0f} s.")
    return 0 if right else 1


def run(spark: SparkSession, home: Path) -> bool:
    """Run the query, lose the local state, run it on, and check what the store holds."""
    orders = seeded_orders(FILES * ORDERS_PER_FILE)
    files = [orders[start : start + ORDERS_PER_FILE] for start in range(0, len(orders), ORDERS_PER_FILE)]

    print(f"== {FILES_BEFORE_RESTART} micro-batches of {ORDERS_PER_FILE} orders; result rows with their headers:")
    run_query(spark, home, files, range(FILES_BEFORE_RESTART))

    shutil.rmtree(home / "local")
    print("\n== Stopped. The local state directory is deleted; restarting from the checkpoint:")
    run_query(spark, home, files, range(FILES_BEFORE_RESTART, FILES))

    print("\n== What the store holds, read back from the durable location:")
    entries = read_store(spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state")
    found = entries.collect()
    show_store(found)
    return check_store(found, orders)


def run_query(spark: SparkSession, home: Path, files: list[list[Order]], numbers: range) -> None:
    """Add input files and run the query until it has processed them, one file a micro-batch."""
    for number in numbers:
        write_orders(files[number], home / "input" / f"orders-{number}.parquet")
    schema = spark.read.parquet(str(home / "input")).schema
    records = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(home / "input"))
    totals = stateful(
        records,
        running_total_topology(),
        shards=SHARDS,
        state_location=home / "state",
        local_dir=str(home / "local"),
    )
    query = (
        totals.writeStream.foreachBatch(show_batch)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show_batch(batch: DataFrame, batch_id: int) -> None:
    """Print the first rows of a micro-batch."""
    rows = batch.collect()
    print(f"-- batch {batch_id}: {len(rows)} rows, the first {ROWS_SHOWN}:")
    show_totals(rows[:ROWS_SHOWN])


if __name__ == "__main__":
    sys.exit(main())
