"""What a head costs the driver: processor time for each batch, beside a listener of PySpark's own kind.

    python benchmarks/heads.py --shards 8

The events of a query of tiny batches are kept; then each listener is told of all of them, in turn, while nothing else
runs. Processor time, because a batch waits for no listener: on a busy machine this is what is missing elsewhere.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql.streaming.listener import JStreamingQueryListener

import count_query
import workload
from statestore.recovery.heads.head import HEADS_DIRECTORY
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.spark import StateStoreListener
from statestore.spark.heads import _HeadListener
from statestore.spark.sessions import LISTENER, listen
from workload import records

RECORDS = 100
TARGET_MS = 5
OnEvent = Callable[[Any], object]


class Events:
    """Keeps what a session's listeners are told of batches."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def onQueryProgress(self, event: Any) -> None:
        """Keep the event."""
        self.kept.append(event)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    onQueryIdle = onQueryTerminated = onQueryStarted

    class Java:
        """What the JVM takes it for."""

        implements = (LISTENER,)


def cpu_ms(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, and print what an event costs in Python and in the JVM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    cloudpickle.register_pickle_by_value(workload)
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        home = Path(directory)
        (home / "input").mkdir()
        for number in range(asked.batches):
            rows = pa.Table.from_batches([records(number * RECORDS, RECORDS)])
            pq.write_table(rows, home / "input" / f"{number:04d}.parquet")
        spark = count_query.session("heads", asked.shards)
        events = Events()
        listen(spark, events)
        operator = count_query.operator("apply_in_pandas_with_state", shards=asked.shards)
        count_query.start(spark, home / "input", home, operator, files_per_batch=1).awaitTermination()
        time.sleep(2)
        location = DurableLocation(home / "state")
        metadata = read_metadata(location)
        assert metadata is not None
        state = {metadata.state_id: (location, metadata)}
        listeners: dict[str, Callable[[], OnEvent]] = {
            "heads": lambda: _HeadListener(state, lambda: spark).onQueryProgress,
            "a listener of figures, by PySpark's class": lambda: (
                JStreamingQueryListener(StateStoreListener()).onQueryProgress
            ),
        }
        jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in listeners}
        for _ in range(asked.rounds):
            for name, made in listeners.items():
                shutil.rmtree(home / "state" / HEADS_DIRECTORY, ignore_errors=True)
                on_event = made()
                before = cpu_ms(os.getpid()), cpu_ms(jvm)
                for event in events.kept:
                    on_event(event)
                spent = cpu_ms(os.getpid()) - before[0], cpu_ms(jvm) - before[1]
                found[name].append((spent[0] / len(events.kept), spent[1] / len(events.kept)))
        spark.stop()
    for name, costs in found.items():
        python, java = (statistics.median(part) for part in zip(*costs, strict=True))
        verdict = f" (target: {TARGET_MS})" if name == "heads" else ""
        print(f"{name}: {python + java:.1f} ms a batch{verdict}, of which {java:.1f} in the JVM")
    return 0


if __name__ == "__main__":
    sys.exit(main())
