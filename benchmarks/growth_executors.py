"""A query on 1, 2 and 4 executors of one core each, in Spark's local-cluster mode: real processes, one machine.

Each number of executors runs in a process of its own, in turn. What counts is what a record costs in CPU of all
processes: more executors than the machine has cores make no higher rate. Java's compilers are apart, as each executor
compiles for itself, once: that is a cost of an executor, not of a record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import count_query
import workload
from benchmarks.peers.process_figures import JAVA, PYTHON, SessionFigures, kind_of_process, session_processes
from workload import CountAndKeepColumns, write_input

EXECUTORS = (1, 2, 4)
SHARDS = 8
EXECUTOR_MB = 1024
WARM_UP_BATCHES = 4
ROUNDS = 2
COMPILERS: Final = "compilers"
_COMPILER_THREADS: Final = ("C1 Comp", "C2 Comp")
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
    best = {executors: min(runs, key=_cost_us) for executors, runs in found.items()}
    least = _cost_us(best[EXECUTORS[0]])
    return {
        "title": f"executors of one core each, {SHARDS} shards, {records:,} records a batch",
        "x": "executors",
        "at": list(EXECUTORS),
        "unit": "the best of the rounds",
        "series": {
            "Python, us of CPU a record": [best[executors]["python_us"] for executors in EXECUTORS],
            "Java without compilers, us of CPU a record": [best[executors]["java_us"] for executors in EXECUTORS],
            "Java's compilers, us of CPU a record": [best[executors]["compilers_us"] for executors in EXECUTORS],
            "records/s": [best[executors]["records_per_s"] for executors in EXECUTORS],
            "cores in use": [best[executors]["cores_in_use"] for executors in EXECUTORS],
        },
        "ratios": {
            f"CPU without compilers: {executors} : 1": _cost_us(best[executors]) / least for executors in EXECUTORS[1:]
        },
        "notes": {
            "cores of the machine, which all executors, their Python workers and the driver share": os.cpu_count()
        },
    }


def _cost_us(run: dict[str, float]) -> float:
    return run["python_us"] + run["java_us"]


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
        # A compiler's thread that ends would take along what it has used.
        .config("spark.executor.extraJavaOptions", "-XX:+UseSerialGC -XX:-UseDynamicNumberOfCompilerThreads")
        .config("spark.driver.extraJavaOptions", "-XX:-UseDynamicNumberOfCompilerThreads")
        .config("spark.python.daemon.module", "statestore.spark.python_daemon")
        .config("spark.python.unix.domain.socket.enabled", "true")
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
        cpu_s = {**session.cpu_s(), COMPILERS: compilers_s(os.getsid(0))}
        if before is None and seen >= WARM_UP_BATCHES:
            before = time.perf_counter(), cpu_s
    query.awaitTermination()
    ended_s, after = time.perf_counter(), {**session.cpu_s(), COMPILERS: compilers_s(os.getsid(0))}
    measured = count_query.measured(query, WARM_UP_BATCHES)
    spark.stop()
    if before is None or not measured:
        raise SystemExit("too few batches")
    records = sum(batch.numInputRows for batch in measured)
    spent_s = {kind: after[kind] - before[1][kind] for kind in (PYTHON, JAVA, COMPILERS)}
    return {
        "records_per_s": count_query.rows_per_s(measured),
        "python_us": spent_s[PYTHON] / records * 1e6,
        "java_us": (spent_s[JAVA] - spent_s[COMPILERS]) / records * 1e6,
        "compilers_us": spent_s[COMPILERS] / records * 1e6,
        "cores_in_use": (spent_s[PYTHON] + spent_s[JAVA]) / (ended_s - before[0]),
    }


def compilers_s(session: int) -> float:
    """Return the processor time so far of the compilers of a session's JVMs."""
    ticks = 0
    for process in session_processes(session):
        if kind_of_process(process.pid) == JAVA:
            for thread in Path("/proc", str(process.pid), "task").iterdir():
                with suppress(OSError):  # it has ended meanwhile
                    name, fields = (thread / "stat").read_text(errors="replace").rsplit(")", 1)
                    if name.partition("(")[2].startswith(_COMPILER_THREADS):
                        ticks += sum(map(int, fields.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(run_query(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))))
