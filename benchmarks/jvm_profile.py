"""Where the JVM's CPU goes in a query from Kafka to Kafka: by kind of thread, and with Flight Recorder by method.

    python benchmarks/jvm_profile.py --rounds 2
    python benchmarks/jvm_profile.py --queries stateful --recording build/jfr

Each query runs in a process of its own, in turn, on one broker. CPU counts from the end of the first micro-batch on;
memory is the highest sum of what the query's processes hold, a page that several share divided among them (PSS). With
`--recording` each JVM leaves a recording there: `jfr print --events jdk.ExecutionSample FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import workload
from benchmarks.peers.process_figures import pss_bytes
from count_query import operator
from statestore.spark import recommended_settings
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker

CORES: Final = 2
TOPIC: Final = "in"
OUT: Final = "out"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY_S: Final = 0.5
_KINDS: Final = {
    "Executor task": "tasks: rows, Arrow, shuffle, sockets",
    "kafka-producer": "Kafka producer",
    "C1 Comp": "compilers",
    "C2 Comp": "compilers",
    "G1 ": "collector, VM",
    "GC ": "collector, VM",
    "VM ": "collector, VM",
    "python": "Python workers",
}
"""What a thread of the JVM, or a process, is counted as, by how its name begins; all others are _OTHERS."""
_OTHERS: Final = "planning, scheduling"
QUERIES: Final = ("pass", "pass-recommended", "stateful", "stateful-recommended")


def session(recommended: bool) -> SparkSession:
    """Start Spark with or without what is recommended."""
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("statestore JVM profile")
    if recommended:
        builder = builder.config(map=recommended_settings(cores=CORES).session.as_options())
    spark = (
        builder.config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def produce(servers: str, home: Path, count: int) -> None:
    """Write the records into the topic."""
    rows = home / "input"
    workload.write_input(rows, 1, count)
    frame = session(False).read.parquet(str(rows)).withColumn("topic", f.lit(TOPIC))
    columns = frame.select("topic", "partition", "key", "value", "headers")
    columns.write.format("kafka").option("kafka.bootstrap.servers", servers).save()


def run_query(name: str, servers: str, home: Path, batch: int) -> dict[str, Any]:
    """Run one query to the end of the topic; return microseconds of CPU a record by kind, and memory in MiB."""
    cloudpickle.register_pickle_by_value(workload)
    recommended = name.endswith("-recommended")
    settings = recommended_settings(cores=CORES)
    source, sink = (settings.source, settings.sink) if recommended else ((), ())
    spark = session(recommended)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    reader = reader.options(**{setting.name: setting.value for setting in source})
    rows = reader.option("maxOffsetsPerTrigger", batch).load()
    writer = _operator(name, rows, home).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    writer = writer.options(**{setting.name: setting.value for setting in sink})
    query = writer.option("topic", OUT).option("checkpointLocation", str(home / "checkpoint"))
    run = query.trigger(availableNow=True).start()
    figures = _watch(run, spark)
    run.awaitTermination()
    spark.stop()
    return figures


def _operator(name: str, rows: DataFrame, home: Path) -> DataFrame:
    if name.startswith("pass"):
        return rows.select("key", "value", "headers")
    return operator("apply_in_pandas_with_state")(rows, home)


def _watch(run: Any, spark: SparkSession) -> dict[str, Any]:
    """Sample the query's processes until it ends."""
    spent: dict[str, tuple[str, float]] = {}
    first: dict[str, tuple[str, float]] | None = None
    peak_mib = 0.0
    while run.isActive:
        time.sleep(_SAMPLE_EVERY_S)
        processes = _family(os.getpid())
        for process in processes:
            spent.update(_cpu_s(process))
        peak_mib = max(peak_mib, sum(map(_pss_mib, processes)))
        if first is None and any(progress["numInputRows"] for progress in run.recentProgress):
            first = dict(spent)
    batches = [progress["numInputRows"] for progress in run.recentProgress if progress["numInputRows"]]
    records = sum(batches[1:])
    if first is None or not records:
        raise SystemExit("too few micro-batches: give fewer records a batch")
    by_kind: dict[str, float] = {}
    for thread, (kind, cpu_s) in spent.items():
        before_s = first[thread][1] if thread in first else 0.0
        by_kind[kind] = by_kind.get(kind, 0.0) + (cpu_s - before_s) / records * 1e6
    return {"us": by_kind, "peak_pss_mib": peak_mib}


def _family(root: int) -> list[int]:
    """Return the processes below `root`, which is the driver and is left out."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(entry / "stat")) is not None:
            parents[int(entry.name)] = int(found[1][1])
    below = {root}
    while grown := {process for process, parent in parents.items() if parent in below} - below:
        below |= grown
    return sorted(below - {root})


def _cpu_s(process: int) -> dict[str, tuple[str, float]]:
    """Return kind and CPU seconds of each thread of a process that lives."""
    base = Path(f"/proc/{process}")
    named = _stat(base / "stat")
    if named is None:
        return {}
    threads = (base / "task").iterdir() if named[0] == "java" else [base]
    found = {}
    try:
        for thread in threads:
            if (stat := _stat(thread / "stat")) is not None:
                kind = next((kind for start, kind in _KINDS.items() if stat[0].startswith(start)), _OTHERS)
                found[f"{process}/{thread.name}"] = (kind, (int(stat[1][11]) + int(stat[1][12])) / _TICKS)
    except OSError:  # it has ended meanwhile
        pass
    return found


def _stat(path: Path) -> tuple[str, list[str]] | None:
    """Return the name in a stat file of /proc and the fields behind it; None if whose it is has ended."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()


def _pss_mib(process: int) -> float:
    named = _stat(Path(f"/proc/{process}/stat"))
    if named is None or not named[0].startswith(("java", "python")):
        return 0.0  # it has ended, or is a copy of the JVM that is about to become another program
    return pss_bytes(process) / 1024**2


def main() -> int:
    """Run each query in turn, and print the median of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=250_000, help="records a micro-batch")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=QUERIES)
    parser.add_argument("--recording", type=Path, help="a directory for recordings of Java's Flight Recorder")
    parser.add_argument("--child", nargs=3, metavar=("PART", "SERVERS", "HOME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        _be_child(arguments, *arguments.child)
        return 0
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.queries}
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory, KafkaBroker() as broker:
        home = Path(directory)
        broker.create_topic(TOPIC, workload.PARTITIONS)
        broker.create_topic(OUT, workload.PARTITIONS)
        _child("produce", broker, home / "produce")
        for number in range(arguments.rounds):
            for name in arguments.queries:
                figures = _child(name, broker, home / f"{name}-{number}")
                found[name].append(figures)
                print(f"   round {number + 1}: {name} {figures}", flush=True)
    _report(found)
    return 0


def _child(part: str, broker: KafkaBroker, home: Path) -> dict[str, Any]:
    """Run a part in a process of its own, and so in a JVM of its own; return its figures."""
    command = [sys.executable, *sys.argv, "--child", part, broker.bootstrap_servers, str(home)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _be_child(arguments: argparse.Namespace, part: str, servers: str, home: str) -> None:
    if part == "produce":
        produce(servers, Path(home), arguments.records)
        print("{}")
        return
    if arguments.recording is not None:
        arguments.recording.mkdir(parents=True, exist_ok=True)
        # Spark's launcher splits the options at spaces.
        file = arguments.recording.absolute() / f"{Path(home).name}.jfr"
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:StartFlightRecording=filename={file},settings=profile"
    print(json.dumps(run_query(part, servers, Path(home), arguments.batch)))


def _report(found: dict[str, list[dict[str, Any]]]) -> None:
    kinds = [*dict.fromkeys(_KINDS.values()), _OTHERS]
    print(f"\n== CPU us a record after the first micro-batch, {CORES} cores, median of the rounds")
    print(f"   {'':42}" + "".join(f"{name:>22}" for name in found))
    for kind in kinds:
        print(
            f"   {kind:42}"
            + "".join(f"{median(run['us'].get(kind, 0.0) for run in found[name]):>22.2f}" for name in found)
        )
    for label, value in (
        ("JVM", lambda run: sum(run["us"].values()) - run["us"].get(_KINDS["python"], 0.0)),
        ("peak PSS, MiB, without the driver", lambda run: run["peak_pss_mib"]),
    ):
        print(f"   {label:42}" + "".join(f"{median(map(value, found[name])):>22.2f}" for name in found))


if __name__ == "__main__":
    sys.exit(main())
