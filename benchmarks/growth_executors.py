"""A query on one executor and on two, each with one core, in Spark's local-cluster mode: real processes, one machine.

Each number of executors runs in a process of its own, in turn. Beside the rate there is what a record costs in CPU of
all processes, and how much of the machine was in use: if a record costs the same on two, and the machine is in use, it
is the machine that bounds the rate, not what executors share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import count_query
import workload
from benchmarks.peers.process_figures import JAVA, PYTHON, SessionFigures
from workload import CountAndKeepColumns, write_input

EXECUTORS = (1, 2)
SHARDS = 8
EXECUTOR_MB = 1024
WARM_UP_BATCHES = 2
ROUNDS = 2
_WAIT_S = 0.2


def executor_growth(home: Path, records: int, batches: int) -> dict[str, Any]:
    """Return the fields of a Growth: rates, efficiency, and what bounds them."""
    write_input(home / "input", batches + WARM_UP_BATCHES, records)
    found: dict[int, list[dict[str, float]]] = {executors: [] for executors in EXECUTORS}
    for number in range(ROUNDS):
        for executors in EXECUTORS:
            scratch = home / f"{executors}-executors-{number}"
            found[executors].append(_in_its_own_process(executors, home / "input", scratch))
            print(f"   {executors} executors: {found[executors][-1]}", flush=True)
    best = {executors: max(runs, key=lambda run: run["records_per_s"]) for executors, runs in found.items()}
    rates = [best[executors]["records_per_s"] for executors in EXECUTORS]
    least, most = EXECUTORS[0], EXECUTORS[-1]
    efficiency = rates[-1] / rates[0] / (most / least)
    cost = [best[executors]["python_us"] + best[executors]["java_us"] for executors in EXECUTORS]
    return {
        "title": f"executors of one core each, {SHARDS} shards, {records:,} records a batch",
        "x": "executors",
        "at": list(EXECUTORS),
        "unit": "the best of the rounds",
        "series": {
            "records/s": rates,
            "Python, us of CPU a record": [best[executors]["python_us"] for executors in EXECUTORS],
            "Java, us of CPU a record": [best[executors]["java_us"] for executors in EXECUTORS],
            "cores in use": [best[executors]["cores_in_use"] for executors in EXECUTORS],
        },
        "ratios": {
            f"efficiency: records/s with {most} by {most} x records/s with {least}": efficiency,
            "CPU a record, most executors : fewest": cost[-1] / cost[0],
        },
        "notes": {
            "cores of the machine, which all executors, their Python workers and the driver share": os.cpu_count()
        },
    }


def _in_its_own_process(executors: int, source: Path, scratch: Path) -> dict[str, float]:
    scratch.mkdir()
    spark_home = scratch / "spark"
    spark_home.mkdir()
    for part in ("bin", "jars"):
        # What Spark writes beside them comes to the scratch directory.
        (spark_home / part).symlink_to(Path(pyspark.__file__).parent / part)
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, __file__, str(executors), str(source), str(scratch)]
    # A session of its own: that tells whose processes are its.
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run_query(executors: int, source: Path, scratch: Path) -> dict[str, float]:
    """Run the operator over the files of `source`; return steady figures of all processes of this session."""
    cloudpickle.register_pickle_by_value(workload)
    spark = (
        SparkSession.builder.master(f"local-cluster[{executors},1,{EXECUTOR_MB}]")
        .appName("statestore growth")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.memory", f"{EXECUTOR_MB}m")
        .config("spark.executor.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    session, before = SessionFigures(os.getsid(0)), None
    operator = count_query.operator(shards=SHARDS, processor=CountAndKeepColumns)
    query = count_query.start(spark, source, scratch, operator)
    while query.isActive:
        time.sleep(_WAIT_S)
        seen = sum(1 for batch in query.recentProgress if batch.numInputRows)
        cpu_s = session.cpu_s()
        if before is None and seen >= WARM_UP_BATCHES:
            before = time.perf_counter(), cpu_s
    query.awaitTermination()
    ended_s, after = time.perf_counter(), session.cpu_s()
    measured = count_query.measured(query, WARM_UP_BATCHES)
    spark.stop()
    if before is None or not measured:
        raise SystemExit("too few batches")
    records = sum(batch.numInputRows for batch in measured)
    spent_s = {kind: after[kind] - before[1][kind] for kind in (PYTHON, JAVA)}
    return {
        "records_per_s": count_query.rows_per_s(measured),
        "python_us": spent_s[PYTHON] / records * 1e6,
        "java_us": spent_s[JAVA] / records * 1e6,
        "cores_in_use": sum(spent_s.values()) / (ended_s - before[0]),
    }


if __name__ == "__main__":
    print(json.dumps(run_query(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))))
