"""`make bench`: this operator beside Spark's own Python state and beside Spark without state, in one run.

Everything runs on the same input, in turn, several rounds; the best round of each counts, because a shared machine only
ever adds time. Figures also go to benchmarks/results/latest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import count_query
import in_process
import workload
from count_query import Operator, operator
from spark_native import native_operator
from workload import PARTITIONS, write_input

RESULTS = Path(__file__).parent / "results" / "latest.json"
ROUNDS = 2
WARM_UP_BATCHES = 1
FIXED_LIMIT_MS = 20
OPERATOR_TO_NATIVE = 20
STORE_TO_BARE = 2.5


class Bench:
    """A Spark session and a scratch directory for the queries that are measured."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._queries = 0
        self.spark = (
            SparkSession.builder.master(f"local[{os.cpu_count()}]")
            .appName("statestore benchmarks")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", str(PARTITIONS))
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
            .config(
                "spark.sql.streaming.stateStore.providerClass",
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            )
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")

    def rows_per_s(self, source: Path, operator: Operator) -> float:
        """Run `operator` over the files of `source` into nothing; return rows per second after the warm-up."""
        self._queries += 1
        scratch = self.home / f"query-{self._queries}"
        query = count_query.start(self.spark, source, scratch, operator)
        query.awaitTermination()
        shutil.rmtree(scratch)
        return count_query.rows_per_s(count_query.measured(query, WARM_UP_BATCHES))


def measure_queries(home: Path, batches: int, records_per_batch: int, native_records: int) -> dict[str, float]:
    """Return the best rows per second of each query."""
    write_input(home / "input", batches + WARM_UP_BATCHES, records_per_batch)
    write_input(home / "input-native", 2 + WARM_UP_BATCHES, native_records)
    bench = Bench(home)
    runs: dict[str, Callable[[], float]] = {
        "transform_with_state": lambda: bench.rows_per_s(home / "input", operator("transform_with_state")),
        "apply_in_pandas_with_state": lambda: bench.rows_per_s(home / "input", operator("apply_in_pandas_with_state")),
        "spark_native": lambda: bench.rows_per_s(home / "input-native", lambda rows, _: native_operator(rows)),
        "pass_through": lambda: bench.rows_per_s(home / "input", lambda rows, _: rows),
    }
    best = dict.fromkeys(runs, 0.0)
    for number in range(ROUNDS):
        for name, run in runs.items():
            best[name] = max(best[name], run())
            print(f"   round {number + 1}: {name} {best[name]:,.0f} rows/s so far", flush=True)
    bench.spark.stop()
    return best


def report(queries: dict[str, float], inside: dict[str, Any], batch: int, native_batch: int) -> dict[str, Any]:
    """Print the tables, and return the figures for the results file."""
    operator_rate = max(queries["transform_with_state"], queries["apply_in_pandas_with_state"])
    native, ceiling = queries["spark_native"], queries["pass_through"]
    print(f"\n== Queries, files to nothing, {os.cpu_count()} cores, best of {ROUNDS} (rows/s)")
    for label, rate, size in (
        ("statestore, transformWithStateInPandas", queries["transform_with_state"], batch),
        ("statestore, applyInPandasWithState", queries["apply_in_pandas_with_state"], batch),
        ("Spark, transformWithStateInPandas, ValueState", native, native_batch),
        ("Spark without state (ceiling)", ceiling, batch),
    ):
        print(f"   {label:45} {rate:>10,.0f}   {size:,} a batch")
    verdict("statestore : Spark's own Python state", operator_rate / native, at_least=OPERATOR_TO_NATIVE)
    print(f"   statestore : Spark without state           {operator_rate / ceiling:.2f}")

    cores = os.cpu_count() or 1
    parts = dict(inside["breakdown_us"])
    added_us = cores * 1e6 * (1 / operator_rate - 1 / ceiling)
    parts["shuffle, Arrow transfer, Spark (the rest)"] = added_us - sum(parts.values())
    print(f"\n== What the operator adds a record: {added_us:.1f} us of one core")
    for part, microseconds in parts.items():
        print(f"   {part:45} {microseconds:>10.2f} us")

    print("\n== A shard and batch of one record, on 100,000 keys (median ms)")
    fixed = inside["fixed_ms"]
    for part, milliseconds in fixed.items():
        print(f"   {part:45} {milliseconds:>10.1f}")
    verdict("fixed cost of a shard and batch, ms", fixed["total"], at_most=FIXED_LIMIT_MS)

    print("\n== Store, get + put of 100-byte values with 3 headers over 100,000 keys (pairs/s)")
    bare = inside["bare_rocksdict_get_put_per_s"]
    for label, name in (
        ("bare rocksdict, same bytes, no write-ahead log", "bare_rocksdict_get_put_per_s"),
        ("statestore", "store_get_put_per_s"),
        ("statestore, with commit and later application", "store_get_put_with_commit_per_s"),
    ):
        print(f"   {label:45} {inside[name]:>10,.0f}")
    verdict("time of statestore : bare rocksdict", bare / inside["store_get_put_per_s"], at_most=STORE_TO_BARE)
    return {
        "operator_rows_per_s": operator_rate,
        "spark_native_rows_per_s": native,
        "pass_through_rows_per_s": ceiling,
        "fixed_ms_per_shard_batch": fixed["total"],
        "store_get_put_per_s": inside["store_get_put_per_s"],
        "bare_rocksdict_get_put_per_s": bare,
        "queries_rows_per_s": queries,
        "added_us_per_record": parts,
        "fixed_ms": fixed,
        "store_get_put_with_commit_per_s": inside["store_get_put_with_commit_per_s"],
        "records_per_batch": batch,
        "native_records_per_batch": native_batch,
        "cores": cores,
        "python": platform.python_version(),
    }


def verdict(what: str, figure: float, *, at_least: float | None = None, at_most: float | None = None) -> None:
    """Print a figure beside its target."""
    if at_least is not None:
        good, target = figure >= at_least, f"at least {at_least:g}"
    else:
        good, target = figure <= (at_most or 0), f"at most {at_most:g}"
    print(f"   {what:45} {figure:>10.2f}   target {target}: {'met' if good else 'NOT MET'}")


def main() -> int:
    """Measure, print, write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=3, help="measured micro-batches, after one of warm-up")
    parser.add_argument("--records", type=int, default=250_000, help="records a micro-batch")
    parser.add_argument("--native-records", type=int, default=5_000, help="records a micro-batch of Spark's own state")
    arguments = parser.parse_args()
    # Workers do not know this directory: what they run travels with the query.
    cloudpickle.register_pickle_by_value(workload)
    cloudpickle.register_pickle_by_value(sys.modules["spark_native"])
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home = Path(directory)
        print("== Store and codec, without Spark ...", flush=True)
        inside = in_process.measure(home)
        print("== Queries ...", flush=True)
        queries = measure_queries(home, arguments.batches, arguments.records, arguments.native_records)
    figures = report(queries, inside, arguments.records, arguments.native_records)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"\nWritten to {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
