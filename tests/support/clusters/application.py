"""A Spark application as a process of its own, which can be killed: runs the order query, job after job.

`python application.py MASTER SETTINGS` reads one job a line from standard input, as JSON, and leaves what came
of it in `result.json` in the job's home. It ends when standard input does.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from statestore import Serdes
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark import read_pointers, read_store, stateful
from statestore.spark.kafka_sink import KafkaTransactions
from tests.support.clusters.faults import Fault, FaultyLocation, MachineDisk, faulty_topology
from tests.support.kafka.transactions import MortalCluster
from tests.support.spark.queries import KAFKA_ROWS, SHARDS, spark_settings


def main(master: str, settings: dict[str, Any]) -> None:
    """Run the jobs that standard input brings, until it ends."""
    builder = SparkSession.builder.master(master).appName("statestore cluster test")
    spark = builder.config(map=settings).getOrCreate()
    for line in sys.stdin:
        job = json.loads(line)
        home = Path(job["home"])
        try:
            faults = [Fault(**fields) for fields in job["faults"]]
            with spark_settings(spark, job["settings"]):
                result = run(spark, home, job["via"], faults, RecoveryOptions(**job["recovery"]), job["sink"])
        except Exception:
            result = {"failure": traceback.format_exc()}
        partial = home / "result.partial"
        partial.write_text(json.dumps(result))
        partial.rename(home / "result.json")
    spark.stop()


def run(
    spark: SparkSession,
    home: Path,
    via: str,
    faults: Sequence[Fault],
    recovery: RecoveryOptions,
    sink: dict[str, str] | None,
) -> dict[str, Any]:
    """Process all files there are, one a batch, and return the committed state and all output."""
    records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(home / "input"))
    topology = faulty_topology(faults)
    if sink is not None:
        topology.sinks["totals"] = replace(topology.sinks["totals"], topic=sink["topic"])
    rows = stateful(
        records,
        topology,
        shards=SHARDS,
        state_location=FaultyLocation(home / "state", faults),
        local_dir=MachineDisk(home / "placements"),
        via=via,
        recovery=recovery,
        packed=sink is not None and "packed" in sink,
    )
    # The file sink is exactly once: what it says is there is each row that was put out, once.
    writer = rows.writeStream.format("parquet").option("path", str(home / "output"))
    if sink is not None:
        cluster = MortalCluster(sink["servers"], timeout_s=30, deaths=tuple(faults), in_tasks=True)
        writer = rows.writeStream.foreachBatch(KafkaTransactions(cluster, markers=sink["markers"]))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    store = read_store(
        spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state"
    ).collect()
    return {
        "totals": [_entry(row, row.timestamp_ms) for row in store],
        "output": [
            _entry(row, round(row.timestamp.timestamp() * 1000))
            for row in (spark.read.parquet(str(home / "output")).collect() if sink is None else ())
        ],
        "pointers": [json.loads(row.pointer) for row in read_pointers(spark, home / "checkpoint").collect()],
    }


def _entry(row: Row, timestamp_ms: int) -> list[Any]:
    headers = [[header.key, header.value and header.value.decode()] for header in row.headers]
    return [row.key.decode(), Serdes.int64().deserialize(bytes(row.value)), timestamp_ms, headers]


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
