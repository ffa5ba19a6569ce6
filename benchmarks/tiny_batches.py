"""Batches of a hundred records: what a micro-batch costs by itself, beside Spark's own stateful count on its JVM.

    python benchmarks/tiny_batches.py --partitions 2 8

From files to nothing, one file a batch, the RocksDB provider, as many state partitions; in turn in one session. Besides
there is a query that goes to Python at the same three places and does nothing there: less than that no state in Python
can take. Printed: the median of a batch's time, its parts as Spark's progress has them, and the shard calls' own parts
as statestore's figures have them. The calls of all shards are summed there, though as many run side by side as there
are cores. All but `addBatch` is serial: the driver's alone, while executors wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import count_query
import workload
from count_query import Operator, operator
from statestore.spark.figures import batch_figures
from workload import records

RESULTS = Path(__file__).parent / "results" / "tiny_batches.json"
TARGET = 1.3
RECORDS = 100
WARM_UP_BATCHES = 5
SPARKS_COUNT = "Spark's count"


def sparks_count(rows: DataFrame, scratch: Path) -> DataFrame:
    """Spark's own state, without Python."""
    return rows.groupBy("key").count()


def nothing(rows: DataFrame, scratch: Path, *, partitions: int) -> DataFrame:
    """Go to Python where statestore does, and do nothing there: before the shuffle, in Spark's state, and after it."""

    def untouched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def same_state(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update(("pointer",))
        yield from frames

    packed = rows.select((f.hash("key") % partitions).alias("route"), "value")
    packed = packed.mapInArrow(untouched, packed.schema)
    kept = packed.groupBy("route").applyInPandasWithState(
        same_state, packed.schema, "pointer string", "append", GroupStateTimeout.NoTimeout
    )
    return kept.mapInArrow(untouched, packed.schema)


def run(spark: SparkSession, home: Path, operator: Operator) -> list[StreamingQueryProgress]:
    """Run a query over all files; return its batches after the warm-up."""
    scratch = Path(tempfile.mkdtemp(dir=home))  # of its own: heads are published after a query has ended
    mode = "update" if operator is sparks_count else "append"
    query = count_query.start(spark, home / "input", scratch, operator, files_per_batch=1, output_mode=mode)
    query.awaitTermination()
    return count_query.measured(query, WARM_UP_BATCHES)


def medians(batches: Sequence[StreamingQueryProgress]) -> dict[str, float]:
    """Return the median milliseconds of a batch's parts."""
    found: dict[str, list[float]] = {}
    for batch in batches:
        parts: dict[str, float] = dict(batch.durationMs)
        for state in batch.stateOperators:
            parts["Spark's state commit, sum of tasks"] = state.commitTimeMs
        for figures in batch_figures(batch):
            parts.update((f"shards: {part[:-3]}", ms) for part, ms in figures.times._asdict().items())
        for part, ms in parts.items():
            found.setdefault(part, []).append(ms)
    return {part: statistics.median(times) for part, times in found.items()}


def measure(home: Path, partitions: int, rounds: int, recommended: bool) -> dict[str, dict[str, float]]:
    """Return the parts of each query's batches, the median of all rounds."""
    spark = count_query.session("tiny batches", partitions, is_recommended=recommended)
    queries: dict[str, Operator] = {
        SPARKS_COUNT: sparks_count,
        "statestore, applyInPandasWithState": operator("apply_in_pandas_with_state", shards=partitions),
        "statestore, transformWithStateInPandas": operator("transform_with_state", shards=partitions),
        "nothing, in Python at the same places": partial(nothing, partitions=partitions),
    }
    found: dict[str, list[StreamingQueryProgress]] = {name: [] for name in queries}
    for number in range(rounds):
        for name, query in queries.items():
            found[name] += run(spark, home, query)
            so_far = medians(found[name])["triggerExecution"]
            print(f"   {partitions} partitions, round {number + 1}: {name} {so_far:.0f} ms so far", flush=True)
    spark.stop()
    return {name: medians(batches) for name, batches in found.items()}


def report(partitions: int, found: dict[str, dict[str, float]]) -> None:
    """Print the table of one number of state partitions, and how it stands to the target."""
    parts = list(dict.fromkeys(part for each in found.values() for part in each))
    parts.sort(key=lambda part: (part != "triggerExecution", part))
    print(f"\n== A batch of {RECORDS} records, {partitions} state partitions, median ms")
    print("| ms | " + " | ".join(found) + " |\n|---" + "|---" * len(found) + "|")
    for part in parts:
        cells = (f"{each[part]:.1f}" if part in each else "" for each in found.values())
        print(f"| {part} | " + " | ".join(cells) + " |")
    for name, each in found.items():
        ratio = each["triggerExecution"] / found[SPARKS_COUNT]["triggerExecution"]
        if name != SPARKS_COUNT:
            print(
                f"- {name} : {SPARKS_COUNT}: {ratio:.2f} (target: {TARGET}): {'met' if ratio <= TARGET else 'NOT MET'}"
            )


def main() -> int:
    """Measure each number of partitions in a session of its own, print, and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", nargs="+", type=int, default=[2, 8], help="state partitions, and shards")
    parser.add_argument("--batches", type=int, default=40, help=f"of {RECORDS} records, after {WARM_UP_BATCHES}")
    parser.add_argument("--rounds", type=int, default=2, help="how often each query has its turn")
    parser.add_argument("--plain", action="store_true", help="without recommended_settings()")
    asked = parser.parse_args()
    cloudpickle.register_pickle_by_value(workload)
    all_found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home = Path(directory)
        (home / "input").mkdir()
        for number in range(asked.batches + WARM_UP_BATCHES):
            rows = pa.Table.from_batches([records(number * RECORDS, RECORDS)])
            pq.write_table(rows, home / "input" / f"{number:04d}.parquet")
        for partitions in asked.partitions:
            all_found[str(partitions)] = measure(home, partitions, asked.rounds, not asked.plain)
            report(partitions, all_found[str(partitions)])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(all_found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
