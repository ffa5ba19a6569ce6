"""`make bench-check`: has what CONTRIBUTING.md names become slower than benchmarks/baseline.json says?

Every figure is a ratio to a reference that is measured in turn in this process, by its CPU time, the best of several
rounds: Python code beside a fixed loop of Python, columns beside fixed kernels, RocksDB's work beside bare rocksdict.
What seems lost is measured again before it is called a loss. Exit code 1: a loss of more than 20 %, a ratio that is
recorded and not measured or the other way around, or no baseline. `--record` writes the baseline.
"""

from __future__ import annotations

import argparse
import gc
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import statestore
from baseline import LOSS, RENEW, Baseline, BaselineError, Ratios, table
from codec import codec_runs
from dsl_in_process import round_of
from dsl_operators import OPERATORS
from dsl_programs import BY_RECORDS, EACH, UPDATE
from in_process import OPERATIONS, RecordRounds, Shard, ShardRounds, bare_get_put_s, store_get_put_s
from references import ENTRIES, ROWS, ColumnKernels, PythonLoop
from statestore.spark.kafka_sink.partition import PartitionRows, SayEnd, parts_of
from stores import batch_put_runs, kind_runs, kinds
from turns import best, mean_us
from workload import KEYS, CountAndKeepColumns, records

BASELINE = Path(__file__).with_name("baseline.json")
RECORDED_TIMES = 3
CPU = time.process_time
SHARDS = 2
RECORDS = 50_000
Runs = Mapping[str, Callable[[], float]]


class Group(NamedTuple):
    """Ratios of runs that share what they work on."""

    runs: Callable[[Path], AbstractContextManager[Runs]]
    """Makes that in a directory, and hands out the runs, each of which returns microseconds an operation."""
    ratios: Mapping[str, tuple[str, str]]
    """By name, the run and the reference."""
    rounds: int


def python_loop() -> Callable[[], float]:
    """Return a run of the reference of Python code."""
    return partial(mean_us, PythonLoop().run, ENTRIES, CPU)


@contextmanager
def shard_call_runs(home: Path) -> Iterator[Runs]:
    """Both paths, over the same records each time: all is held after the first."""
    rows = records(0, RECORDS)
    scalar = RecordRounds(home / "scalar", shards=SHARDS)
    columns = RecordRounds(home / "columns", CountAndKeepColumns, SHARDS)
    for path in (scalar, columns):
        path.us(rows)
    yield {
        "scalar": lambda: scalar.us(rows, CPU)["shard call"],
        "columns": lambda: columns.us(rows, CPU)["shard call"],
        "Python": python_loop(),
        "bare": lambda: bare_get_put_s(home / "bare", CPU) / OPERATIONS * 1e6,
    }


IN_COLUMNS = {
    f"{operator.name} {form}": (operator, form)
    for operator in OPERATORS
    if operator.name not in ("word count", "stream-stream left join")  # which has stages, and goes by records
    for form in operator.here
    if form != BY_RECORDS and (form != EACH or UPDATE not in operator.here)
}


@contextmanager
def operator_runs(home: Path) -> Iterator[Runs]:
    """The operators of the DSL that go in columns, over new records each time: windows close, and nothing is late."""
    runs = {"bare": lambda: bare_get_put_s(home / "bare", CPU) / OPERATIONS * 1e6}
    for name, (operator, form) in IN_COLUMNS.items():
        rounds = map(partial(round_of, operator, records=RECORDS, keys=KEYS), count())
        shards = ShardRounds(home / name, operator.here[form](), SHARDS)
        shards.us(next(rounds))
        runs[name] = lambda shards=shards, rounds=rounds: shards.us(next(rounds), CPU)["shard call"]
    yield runs


@contextmanager
def sink_runs(home: Path) -> Iterator[Runs]:
    """What the sink of transactions does with a row before the client gets it: out of blobs, and into the digest."""
    rows = records(0, ROWS).select(["topic", "key", "value", "headers"])
    blobs = [pa.record_batch([pa.concat_arrays(each.column(0) for each in SayEnd(0)(iter([rows])))], ["blob"])]

    def digest() -> None:
        written = PartitionRows()
        for part in parts_of(iter(blobs)):
            if part is not None:
                written.add(part, with_digest=True)
        assert written.records == ROWS

    yield {
        "digest": partial(mean_us, digest, ROWS, CPU),
        "Python": python_loop(),
    }


@contextmanager
def import_runs(home: Path) -> Iterator[Runs]:
    """What a worker of Spark imports for a query, and what of it is others'."""

    def import_us(modules: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e6

    others = "pandas, pyarrow, pyspark.worker"
    yield {"all": partial(import_us, f"{others}, statestore.spark"), "others": partial(import_us, others)}


@contextmanager
def batch_store_runs(home: Path) -> Iterator[Runs]:
    """A store with headers in a shard's batch."""
    shard = Shard(home / "shard")
    yield {
        "store": lambda: store_get_put_s(shard, CPU)[0] / OPERATIONS * 1e6,
        "bare": lambda: bare_get_put_s(home / "bare", CPU) / OPERATIONS * 1e6,
    }


@contextmanager
def kinds_of_store_runs(home: Path) -> Iterator[Runs]:
    """Stores straight on RocksDB, and their puts over a shard's write set."""
    kind = kinds()
    with (
        kind_runs(home / "key-value", kind["key-value"], CPU) as (_, key_value),
        kind_runs(home / "versioned", kind["versioned"], CPU) as (_, versioned),
        batch_put_runs(home, CPU) as batch_puts,
    ):
        of_batch = {f"batch {name} put": run for name, run in batch_puts.items()}
        yield {**key_value, "versioned put": versioned["put"], **of_batch}


@contextmanager
def codecs_runs(home: Path) -> Iterator[Runs]:
    """The codecs by themselves."""
    yield {
        **codec_runs(ROWS, CPU),
        "Python": python_loop(),
        "kernels": partial(mean_us, ColumnKernels().run, ROWS, CPU),
    }


GROUPS = (
    Group(
        shard_call_runs,
        {
            "shard call, scalar : Python loop": ("scalar", "Python"),
            "shard call, columns : bare rocksdict": ("columns", "bare"),
        },
        8,
    ),
    Group(operator_runs, {f"{name}, columns : bare rocksdict": (name, "bare") for name in IN_COLUMNS}, 5),
    Group(sink_runs, {"digest of the Kafka sink's rows : Python loop": ("digest", "Python")}, 8),
    Group(import_runs, {"imports of a worker : those of others": ("all", "others")}, 8),
    Group(batch_store_runs, {"get+put in a shard's batch : bare rocksdict": ("store", "bare")}, 5),
    Group(
        kinds_of_store_runs,
        {
            "versioned put : key-value put": ("versioned put", "put"),
            "versioned put in a shard's batch : key-value put": ("batch versioned put", "batch key-value put"),
            "key-value scan : bare iterator": ("scan", "bare scan"),
        },
        4,
    ),
    Group(
        codecs_runs,
        {
            "encode_headers : Python loop": ("encode_headers", "Python"),
            "decode_headers : Python loop": ("decode_headers", "Python"),
            "encode_value_timestamp_headers : Python loop": ("encode_value_timestamp_headers", "Python"),
            "split_value_timestamp_headers : Python loop": ("split_value_timestamp_headers", "Python"),
            "encode_header_column : kernels": ("encode_header_column", "kernels"),
            "decode_header_column : kernels": ("decode_header_column", "kernels"),
        },
        8,
    ),
)


def measure(names: Sequence[str] | None = None) -> Ratios:
    """Return the ratios with these names, None for all."""
    found: dict[str, float] = {}
    for group in GROUPS:
        ratios = {name: pair for name, pair in group.ratios.items() if names is None or name in names}
        if not ratios:
            continue
        print(f"   measuring {'; '.join(ratios)}", flush=True)
        needed = {run for pair in ratios.values() for run in pair}
        gc.collect()
        with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home, group.runs(Path(home)) as runs:
            least_us = best({name: run for name, run in runs.items() if name in needed}, group.rounds)
        found |= {name: least_us[run] / least_us[reference] for name, (run, reference) in ratios.items()}
    return found


def record(path: Path) -> None:
    """Write the baseline: of each ratio the median of several measurements."""
    measured = [measure() for _ in range(RECORDED_TIMES)]
    found = {name: sorted(each[name] for each in measured) for name in measured[0]}
    Baseline.of({name: statistics.median(ratios) for name, ratios in found.items()}).write(path)
    print(f"== Recorded: the median of {RECORDED_TIMES}, and the least and most")
    for name, ratios in found.items():
        print(f"   {name:46}{statistics.median(ratios):10.3g}{ratios[0]:10.3g}{ratios[-1]:10.3g}")


def main() -> int:
    """Compare, or record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the baseline instead of comparing with it")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="another file, such as one for this machine")
    asked = parser.parse_args()
    if asked.record:
        record(asked.baseline)
        return 0
    try:
        baseline = Baseline.read(asked.baseline)
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"== Time by a reference's, beside what Python {baseline.python} took on {baseline.recorded}; less is better")
    print(f"   of {Path(statestore.__file__).parent}")
    comparisons = baseline.check(measure)
    print(table(comparisons))
    if baseline.python.split(".")[:2] != platform.python_version().split(".")[:2]:
        print(f"This is Python {platform.python_version()}, whose ratios may be others: record a baseline with it.")
    failed = [each.name for each in comparisons if each.verdict.is_failure]
    if failed:
        print(f"FAILED: {'; '.join(failed)}. A loss of more than {LOSS:.0%} that is meant is recorded: {RENEW}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
