"""Operators of statestore.dsl beside Spark's own for the same: rates, and processor time of JVM and Python.

    python benchmarks/dsl.py                                     all operators (part of `make bench`)
    python benchmarks/dsl.py --only count "tumbling windows"     some
    python benchmarks/dsl.py --small                             sizes for a look
    python benchmarks/dsl.py --write                             and write tables and plot into docs

First without Spark: the shard call alone, thread time. Then from files to nothing, in turn in one session, several
rounds, and some from Kafka to Kafka likewise; Spark's state is in RocksDB with changelog checkpoints. Of rate and of
processor time the best round counts, because other work only ever adds to both; of a ratio of rates the median of the
rounds, in each of which both sides have run one after the other. Records have three headers.
Figures go to benchmarks/results/dsl.json; `make bench-peers` measures operators beside Kafka Streams' DSL.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pyspark import __version__ as spark_version
from pyspark import cloudpickle

import count_query
import dsl_programs
import workload
from benchmarks.peers.environment import environment_python
from benchmarks.peers.page import write_page
from dsl_in_process import shard_call_us
from dsl_operators import OPERATORS, SPARK, SPARK_WITH_HEADERS, Operator
from dsl_queries import Files, Found, Place, Queries, Sizes, Taken, Topics, best, measure, rate_by
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker
from workload import KEYS, PARTITIONS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "dsl.json"
BUILD = ROOT / "build" / "peers"
"""Where `make bench-peers` has its environment, which has matplotlib."""
MEMORY_BYTES = 4 << 30
RECORD_BYTES_MAX = 250
"""Of a record of the workload, with 100 bytes beside its key, value and headers."""
AGGREGATES = ("count", "sum", "word count", "tumbling windows", "hopping windows, 3 a record")
OVER_KAFKA = ("count", "tumbling windows")
"""Operators that are run from Kafka to Kafka as well: their values are of no account."""
AGGREGATES_TO_SPARK = 1.0
"""The least that the rate of aggregates in columns is to be, by that of Spark's own with headers."""


def measure_all(home: Path, operators: Sequence[Operator], sizes: Sizes) -> tuple[Found, Found]:
    """Run all operators over files, and OVER_KAFKA from Kafka to Kafka; return what each took in each round."""
    topics = list(dict.fromkeys(topic for operator in operators for topic in operator.topics))
    over_kafka = [operator for operator in operators if operator.name in OVER_KAFKA]
    batch_bytes_max = sizes.records_per_batch * RECORD_BYTES_MAX
    spark = count_query.session(
        "operators", PARTITIONS, memory_bytes=MEMORY_BYTES, batch_bytes_max=batch_bytes_max, jars=connector_jars()
    )
    print("== From files to nothing ...", flush=True)
    of_files = _measured(Files(spark, home / "files", sizes, topics), home, operators, sizes)
    of_topics: Found = {}
    if over_kafka:
        print("== From Kafka to Kafka ...", flush=True)
        with KafkaBroker(home / "broker") as broker:
            of_topics = _measured(Topics(spark, broker, sizes), home, over_kafka, sizes)
            spark.stop()  # before the broker goes, which its clients would complain about
    return of_files, of_topics


def _measured(place: Place, home: Path, operators: Sequence[Operator], sizes: Sizes) -> Found:
    return measure(Queries(place, home, sizes.warm_up_batches), operators, sizes.rounds)


def rows_of(found: Found, inside: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield the figures as rows of a Markdown table, with the shard call's beside them.

    The plot has all forms. Spark's own are here in the ratios, each change is about as fast as the last of a batch, and
    what goes by records in spite of its columns is a few times slower.
    """
    columns = ["operator", "puts out", "rows/s", "x Spark", "x with headers", "shard call alone, us"]
    yield _row(columns)
    yield _row(["---"] * len(columns))
    for name, form in _forms_here(found):
        rounds = found[name][form]
        rate, alone = f"{1e6 / best(rounds).clock_us:,.0f}", f"{inside[name][form]:.1f}" if form in inside[name] else ""
        yield _row([name, form, rate, *_ratios(rounds, found[name]), alone])


def sentence_of(found: Found) -> str:
    """Return the ratios of rates in a sentence."""
    said = [
        f"{name} {form} {' and '.join(_ratios(found[name][form], found[name]))}" for name, form in _forms_here(found)
    ]
    return f"From Kafka to Kafka, x Spark and x with headers: {'; '.join(said)}."


def _forms_here(found: Found) -> Iterator[tuple[str, str]]:
    for name, taken in found.items():
        for form in taken:
            is_close_to_update = form == dsl_programs.EACH and dsl_programs.UPDATE in taken
            if form not in (SPARK, SPARK_WITH_HEADERS, dsl_programs.BY_RECORDS) and not is_close_to_update:
                yield name, form


def _ratios(rounds: Sequence[Taken], taken: Mapping[str, Sequence[Taken]]) -> list[str]:
    return [f"{rate_by(rounds, taken[spark]):.2f}" for spark in (SPARK, SPARK_WITH_HEADERS)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def targets(place: str, found: Found) -> Iterator[str]:
    """Yield what the figures say of the target."""
    for name in AGGREGATES:
        if name in found:
            taken = found[name]
            here = taken[dsl_programs.UPDATE]
            ratio = rate_by(here, taken[SPARK_WITH_HEADERS])
            outcome = "met" if ratio >= AGGREGATES_TO_SPARK else "NOT MET"
            yield (
                f"   {place}, {name}: rows/s : Spark's with headers {ratio:.2f}   target at least "
                f"{AGGREGATES_TO_SPARK}: {outcome}; Spark's without {rate_by(here, taken[SPARK]):.2f}"
            )


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
        f"{asked.batches} batches of {asked.records:,} records after {asked.warm_up} of warm-up, {asked.keys:,} keys, "
        f"{PARTITIONS} shards, best of {asked.rounds}, ratios their median.{busy}"
    )


def _figures(found: Found) -> dict[str, dict[str, dict[str, float]]]:
    return {name: {form: best(rounds)._asdict() for form, rounds in each.items()} for name, each in found.items()}


def main() -> int:
    """Measure, print, write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [operator.name for operator in OPERATORS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="OPERATOR", help=f"of {', '.join(names)}")
    parser.add_argument("--batches", type=int, default=3, help="measured micro-batches, after those of warm-up")
    parser.add_argument("--warm-up", type=int, default=3, help="micro-batches before: Java compiles what it runs often")
    parser.add_argument("--records", type=int, default=250_000, help="records a micro-batch")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="20,000 records a batch, one of warm-up, one round")
    parser.add_argument("--write", action="store_true", help="write table and plot into docs")
    asked = parser.parse_args()
    if asked.small:
        asked.records, asked.warm_up, asked.rounds = 20_000, 1, 1
    # Workers do not know this directory: what they run travels with the query.
    for module in (workload, dsl_programs):
        cloudpickle.register_pickle_by_value(module)
    operators = [operator for operator in OPERATORS if asked.only is None or operator.name in asked.only]
    setting = _setting(asked, os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home = Path(directory)
        print("== The shard call alone, without Spark ...", flush=True)
        inside = shard_call_us(home / "inside", operators, min(asked.records // 4, 25_000), asked.keys)
        sizes = Sizes(asked.batches, asked.warm_up, asked.records, asked.keys, asked.rounds)
        of_files, of_topics = measure_all(home, operators, sizes)
    results = {"setting": setting, "queries": _figures(of_files), "over_kafka": _figures(of_topics), "inside": inside}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    text = "\n".join([setting, "", *rows_of(of_files, inside), ""])
    if of_topics:
        text += f"\n{sentence_of(of_topics)}\n"
    said = [*targets("from files", of_files), *targets("from Kafka to Kafka", of_topics)]
    print("\n".join(["", text, *said, f"\nfigures: {RESULTS}"]))
    if asked.write:
        write_pages(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
