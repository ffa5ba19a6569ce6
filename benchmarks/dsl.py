"""Operators of statestore.dsl beside Spark's own for the same: rates, and processor time of JVM and Python.

    python benchmarks/dsl.py                                     all operators (part of `make bench`)
    python benchmarks/dsl.py --only count "tumbling windows"     some
    python benchmarks/dsl.py --small                             sizes for a look
    python benchmarks/dsl.py --write                             and write table and plot into docs

From files to nothing, in turn in one session, several rounds; Spark's state is in RocksDB with changelog checkpoints.
The best round counts, by itself for rate and processor time, because other work only ever adds to both. Records have
three headers, which Spark's operators do not read. Before that, without Spark: the shard call alone, thread time.
Figures go to benchmarks/results/dsl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import __version__ as spark_version
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import count_query
import dsl_programs
import workload
from benchmarks.peers.catalogue import DSL_PEERS
from benchmarks.peers.environment import environment_python
from benchmarks.peers.figures import peer_figures
from benchmarks.peers.page import write_page
from benchmarks.peers.process_figures import JAVA, PYTHON, ProcessFigures, descendants
from benchmarks.peers.rounds import measure as measure_peers
from dsl_in_process import shard_call_us
from dsl_operators import OPERATORS, SCHEMA, Inputs, Operator, write_topic
from statestore import Topology
from statestore.spark import stateful
from workload import KEYS, PARTITIONS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "dsl.json"
BUILD = ROOT / "build" / "peers"
"""Where `make bench-peers` has its environment, which has matplotlib."""
WARM_UP_BATCHES = 1
MEMORY_BYTES = 4 << 30
AGGREGATES = ("count", "sum", "tumbling windows", "hopping windows, 3 a record")
AGGREGATES_TO_SPARK = 1.0
"""The least that the rate of aggregates in columns is to be, by that of Spark's own."""
SPARK = "Spark"
_LOOK_S = 0.1


class Taken(NamedTuple):
    """What a record took, in microseconds: of the clock, and of processor time of all cores together."""

    clock_us: float
    java_us: float
    python_us: float

    @property
    def cpu_us(self) -> float:
        """Processor time of both."""
        return self.java_us + self.python_us


Found = dict[str, dict[str, Taken]]
"""By operator, and form: what a record took in the best round."""


class Queries:
    """A session, the topics as files, and queries over them."""

    def __init__(self, home: Path, batches: int, records_per_batch: int, keys: int, topics: Sequence[str]) -> None:
        self._home = home
        self.spark: SparkSession = count_query.session("operators", PARTITIONS, memory_bytes=MEMORY_BYTES)
        for topic in topics:
            part = records_per_batch if topic == dsl_programs.TOPIC else records_per_batch // 2
            write_topic(home / topic, topic, batches + WARM_UP_BATCHES, part, keys)

    def here(self, operator: Operator, form: str) -> Taken:
        """Run a form of an operator."""
        make = operator.here[form]
        return self._run(operator, "append", lambda inputs, scratch: _stateful(inputs, make(), scratch))

    def sparks(self, operator: Operator) -> Taken:
        """Run Spark's operator."""
        return self._run(operator, operator.spark_mode, lambda inputs, _: operator.spark(inputs))

    def _run(self, operator: Operator, output_mode: str, make: Any) -> Taken:
        scratch = self._home / "query"
        first, *others = operator.topics

        def made(rows: DataFrame, scratch: Path) -> DataFrame:
            more = {topic: count_query.rows_of(self.spark, self._home / topic, schema=SCHEMA) for topic in others}
            result: DataFrame = make({first: rows, **more}, scratch)
            return result

        figures = ProcessFigures(partial(descendants, os.getpid()))
        query = count_query.start(self.spark, self._home / first, scratch, made, output_mode=output_mode, schema=SCHEMA)
        before: dict[str, float] | None = None
        while query.isActive:
            time.sleep(_LOOK_S)
            used = figures.cpu_s()
            if before is None and any(batch.numInputRows for batch in query.recentProgress):
                before = used
        query.awaitTermination()
        after, batches = figures.cpu_s(), count_query.measured(query, WARM_UP_BATCHES)
        shutil.rmtree(scratch)
        if before is None or not batches:
            raise SystemExit("all was done in one batch: nothing can be measured")
        rows = sum(batch.numInputRows for batch in batches)
        cpu_us = {kind: (after[kind] - before[kind]) / rows * 1e6 for kind in (JAVA, PYTHON)}
        return Taken(1e6 / count_query.rows_per_s(batches), cpu_us[JAVA], cpu_us[PYTHON])


def _stateful(inputs: Inputs, topology: Topology, scratch: Path) -> DataFrame:
    first, *others = (rows.drop("amount") for rows in inputs.values())
    for rows in others:
        first = first.unionAll(rows)
    where = {"state_location": scratch / "state", "local_dir": str(scratch / "local")}
    return stateful(first, topology, shards=PARTITIONS, **where)


def measure(home: Path, operators: Sequence[Operator], asked: argparse.Namespace) -> Found:
    """Run all forms of the operators and Spark's in turn; return what each took in its best round."""
    topics = list(dict.fromkeys(topic for operator in operators for topic in operator.topics))
    queries = Queries(home, asked.batches, asked.records, asked.keys, topics)
    found: Found = {operator.name: {} for operator in operators}
    for number in range(1, asked.rounds + 1):
        for operator in operators:
            runs = {SPARK: partial(queries.sparks, operator)}
            runs |= {form: partial(queries.here, operator, form) for form in operator.here}
            for form, run in runs.items():
                taken, before = run(), found[operator.name].get(form)
                found[operator.name][form] = least(before, taken)
                print(f"   round {number}: {operator.name}, {form}: {_said(taken)}", flush=True)
    queries.spark.stop()
    return found


def least(before: Taken | None, taken: Taken) -> Taken:
    """Return the least of each figure."""
    return taken if before is None else Taken(*map(min, before, taken))


def _said(taken: Taken) -> str:
    return f"{1e6 / taken.clock_us:,.0f} rows/s, {taken.java_us:.1f} us of JVM, {taken.python_us:.1f} us of Python"


def tables(found: Found, inside: Mapping[str, Mapping[str, float]], setting: str) -> str:
    """Return all figures as Markdown."""
    lines = [
        setting,
        "",
        "| operator | puts out | rows/s | x Spark | CPU of JVM + Python, us a row | x Spark | shard call alone, us |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, taken in found.items():
        spark = taken[SPARK]
        for form, each in taken.items():
            is_spark = form == SPARK
            cells = [
                name,
                "Spark's own" if is_spark else form,
                f"{1e6 / each.clock_us:,.0f}",
                "" if is_spark else f"{spark.clock_us / each.clock_us:.2f}",
                f"{each.java_us:.1f} + {each.python_us:.1f}",
                "" if is_spark else f"{each.cpu_us / spark.cpu_us:.2f}",
                "" if is_spark else f"{inside[name][form]:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def kafka_table(records: int, rounds: int) -> str:
    """Run Kafka's DSL and this one from topic to topic, in turn; return the medians as Markdown."""
    done = measure_peers([peer for pair in DSL_PEERS.values() for peer in pair], records, rounds)
    lines = [
        f"From Kafka to Kafka, each change put out, {records:,} records, median of {rounds}; one thread of Kafka:",
        "",
        "| operator | Kafka's DSL, records/s | here | x Kafka's | Kafka's CPU, us a record | here, JVM + Python |",
        "|---|---|---|---|---|---|",
    ]
    for operator, pair in DSL_PEERS.items():
        if all(done.runs[peer.name] for peer in pair):
            kafka, here = (peer_figures(peer.name, records, done.runs[peer.name]) for peer in pair)
            rates = [each["records_per_s"]["median"] for each in (kafka, here)]
            cells = [operator, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}"]
            own = here["steady_cpu_us"]
            cells += [f"{kafka['steady_cpu_us']['java']:.1f}", f"{own['java']:.1f} + {own['python']:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{name} has no figures: {why}" for name, why in done.failures.items()]
    return "\n".join(lines) + "\n"


def targets(found: Found) -> list[str]:
    """Return what the figures say of the target."""
    said = []
    for name in AGGREGATES:
        if name in found:
            ratio = found[name][SPARK].clock_us / found[name][dsl_programs.UPDATE].clock_us
            outcome = "met" if ratio >= AGGREGATES_TO_SPARK else "NOT MET"
            said.append(f"   {name}: rows/s : Spark's {ratio:.2f}   target at least {AGGREGATES_TO_SPARK}: {outcome}")
    return said


def write_pages(text: str) -> None:
    """Write the tables into docs/dsl.md, and draw docs/dsl.svg."""
    write_page(ROOT / "docs" / "dsl.md", text, "benchmarks/dsl.py")
    python = environment_python(BUILD / "environment")
    drawn = ROOT / "docs" / "dsl.svg"
    subprocess.run([str(python), str(Path(__file__).with_name("dsl_plot.py")), str(RESULTS), str(drawn)], check=True)
    print(f"written: docs/dsl.md, {drawn.relative_to(ROOT)}")


def _setting(asked: argparse.Namespace, load_before: float) -> str:
    day = datetime.now(timezone.utc).date().isoformat()
    load = f"load {load_before:.1f} before the start"
    busy = " **Other work shared the machine.**" if load_before > (os.cpu_count() or 1) / 2 else ""
    return (
        f"{day}, {os.cpu_count()} cores, {load}, PySpark {spark_version}, Python {platform.python_version()}; "
        f"{asked.records:,} records a batch, {asked.keys:,} keys, {PARTITIONS} shards, best of {asked.rounds}.{busy}"
    )


def main() -> int:
    """Measure, print, write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [operator.name for operator in OPERATORS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="OPERATOR", help=f"of {', '.join(names)}")
    parser.add_argument("--batches", type=int, default=3, help="measured micro-batches, after one of warm-up")
    parser.add_argument("--records", type=int, default=250_000, help="records a micro-batch")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="20,000 records a batch, one round")
    parser.add_argument("--kafka-records", type=int, default=1_000_000, help="beside Kafka's DSL; 0 leaves it out")
    parser.add_argument("--write", action="store_true", help="write table and plot into docs")
    asked = parser.parse_args()
    if asked.small:
        asked.records, asked.rounds, asked.kafka_records = 20_000, 1, min(asked.kafka_records, 200_000)
    # Workers do not know this directory: what they run travels with the query.
    for module in (workload, dsl_programs):
        cloudpickle.register_pickle_by_value(module)
    operators = [operator for operator in OPERATORS if asked.only is None or operator.name in asked.only]
    setting = _setting(asked, os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home = Path(directory)
        print("== The shard call alone, without Spark ...", flush=True)
        inside = shard_call_us(home / "inside", operators, min(asked.records // 4, 25_000), asked.keys)
        print("== Queries ...", flush=True)
        found = measure(home, operators, asked)
    figures = {name: {form: taken._asdict() for form, taken in each.items()} for name, each in found.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"setting": setting, "queries": figures, "inside": inside}, indent=2) + "\n")
    text = tables(found, inside, setting)
    if asked.kafka_records:
        print("== From Kafka to Kafka ...", flush=True)
        text += f"\n{kafka_table(asked.kafka_records, asked.rounds)}"
    print("\n".join(["", text, *targets(found), f"\nfigures: {RESULTS}"]))
    if asked.write:
        write_pages(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
