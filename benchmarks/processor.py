"""What a topology costs a record, beside a bare loop over the same store.

`python benchmarks/processor.py` (part of `make bench`). The loop gets and puts what the processor gets and puts, in a
shard's batch; the task does it with a source, a processor, a forward and a sink around it. 3 headers that nobody
touches. Both run in turn, several rounds; the best round of each counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from in_process import Shard
from statestore import Headers, ValueTimestampHeaders
from statestore.format.records.header_bytes import parse_count
from statestore.headers.topic_columns import SourceFields
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import shard_stores
from statestore.spark.shards.pack import Pack
from statestore.spark.shards.record_order import records_in_order
from turns import best
from workload import STORE, counting_topology, records

RESULTS = Path(__file__).parent / "results" / "processor.json"
RECORDS = 50_000
ROUNDS = 7
LIMIT_US = 6.0


def source_records() -> list[SourceFields]:
    """Return records as a task gets them."""
    packed = Pack(1, "key", (0,))(iter([records(0, RECORDS)]))
    return list(records_in_order([row.column("blob")[0].as_py() for row in packed]))


def loop_s(shard: Shard, inputs: list[SourceFields]) -> float:
    """Return seconds of a bare loop: the store calls that the processor makes, and what it makes of the values."""
    with shard.state.open(shard.pointer) as batch:
        store = shard_stores(counting_topology(), batch, TaskRecordContext())[STORE]
        started = time.perf_counter()
        for record in inputs:
            key, timestamp_ms, value, header_bytes = record[4], record[3], record[5], record[6]
            seen = store.get(key)
            count = 1 if seen is None else int.from_bytes(seen.value[:8], "big") + 1
            kept = count.to_bytes(8, "big") + value
            store.put(key, ValueTimestampHeaders(kept, timestamp_ms, Headers.from_bytes(header_bytes)))
        return time.perf_counter() - started


def task_s(shard: Shard, inputs: list[SourceFields]) -> float:
    """Return seconds of a task that runs the topology over the same records."""
    with shard.state.open(shard.pointer) as batch:
        topology, context = counting_topology(), TaskRecordContext()
        task = Task(topology, 0, shard_stores(topology, batch, context), context)
        parsed = parse_count()
        started = time.perf_counter()
        task.process(inputs)
        elapsed = time.perf_counter() - started
        if parse_count() != parsed or len(task.outputs) != len(inputs):
            raise AssertionError("headers were parsed, or records got lost")
        task.close()
        return elapsed


def main() -> int:
    """Print and write the figures; return 1 if the limit is exceeded."""
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home:
        shard, inputs = Shard(Path(home)), source_records()
        least_s = best({"loop": lambda: loop_s(shard, inputs), "task": lambda: task_s(shard, inputs)}, ROUNDS)
    loop_us, task_us = least_s["loop"] / RECORDS * 1e6, least_s["task"] / RECORDS * 1e6
    added_us = task_us - loop_us
    print("== A record through source, processor, forward and sink; one get, one put, 3 untouched headers (us)")
    print(f"   bare loop over the store   {loop_us:6.2f}")
    print(f"   task                       {task_us:6.2f}")
    print(f"   added                      {added_us:6.2f}   (limit {LIMIT_US})")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"loop_us": loop_us, "task_us": task_us, "added_us": added_us}, indent=2) + "\n")
    return 0 if added_us <= LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
