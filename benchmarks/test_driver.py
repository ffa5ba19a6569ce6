"""How fast the test driver is, beside a bare loop that does the same by hand on bare rocksdict.

`python benchmarks/test_driver.py` (part of `make bench`). A processor with one get, one put and one forward: a running
total in a timestamped store with headers, on RocksDB; records of 100 bytes with 3 headers that nobody touches. Records
are piped by `pipe_key_value_list`, by `pipe_record_list` and one by one, and committed one by one in every case. The
bare loop gets, adds up, puts and appends. All run in turn, several rounds; the best round counts.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.format.records.header_bytes import parse_count
from statestore.testing import TestInputTopic, TestRecord, TopologyTestDriver
from turns import best

RESULTS = Path(__file__).parent / "results" / "test_driver.json"
RECORDS = 50_000
KEYS = 1_000
ROUNDS = 5
TARGET_RECORDS_PER_S = 50_000
HEADERS = Headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"schema-0042")])
BYTES = Serdes.bytes()
PAIRS = [(b"%016d" % (number % KEYS), b"v" * 100) for number in range(RECORDS)]
PIPED = [TestRecord(key, value, 0, HEADERS) for key, value in PAIRS]
COUNT = struct.Struct(">q")


class Total(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.totals = context.state_store("totals")

    def process(self, record: Record[Any, Any]) -> None:
        seen = self.totals.get(record.key)
        total = (seen.value if seen else 0) + len(record.value)
        self.totals.put(record.key, ValueTimestampHeaders(total, record.timestamp_ms, record.headers))
        self.context.forward(record)


def topology(*, in_memory: bool) -> Topology:
    """Return the topology with its store on RocksDB or in memory."""
    if in_memory:
        supplier = Stores.in_memory_key_value_store("totals")
    else:
        supplier = Stores.persistent_timestamped_key_value_store_with_headers("totals")
    made = Topology()
    made.add_source("in", "in", key_serde=BYTES, value_serde=BYTES)
    made.add_processor("total", Total, ["in"])
    made.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(supplier, BYTES, Serdes.int64()), "total"
    )
    made.add_sink("out", "out", ["total"], key_serde=BYTES, value_serde=BYTES)
    return made


def one_by_one(topic: TestInputTopic[Any, Any]) -> None:
    for key, value in PAIRS:
        topic.pipe_input(key, value, timestamp_ms=0, headers=HEADERS)


def driven_s(pipe: Callable[[TestInputTopic[Any, Any]], object], *, in_memory: bool = False) -> float:
    """Return seconds for RECORDS records, until all outputs are read as bytes."""
    with TopologyTestDriver(topology(in_memory=in_memory)) as driver:
        topic = driver.create_input_topic("in", key_serde=BYTES, value_serde=BYTES)
        out = driver.create_output_topic("out", key_serde=BYTES, value_serde=BYTES)
        before = parse_count()
        started = time.perf_counter()
        pipe(topic)
        elapsed_s = time.perf_counter() - started
        if out.get_queue_size() != RECORDS or parse_count() != before:
            raise AssertionError("not every record came out, or headers were parsed")
        return elapsed_s


def bare_s() -> float:
    """Return seconds for the same reads, writes and outputs by hand, on bare rocksdict with a write-ahead log."""
    header_bytes = HEADERS.to_bytes()
    prefix = bytes([len(header_bytes) * 2 % 128 | 128, len(header_bytes) * 2 // 128]) + header_bytes + b"\0" * 8
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home:
        database = RocksDBDatabase(home, ["store"], write_ahead_log=True)
        bare = database._stores["store"]._family  # what a user of rocksdict would hold
        options = database.write_options
        outputs, changelog = [], []
        started = time.perf_counter()
        for key, value in PAIRS:
            seen = bare.get(key)
            total = (COUNT.unpack_from(seen, len(prefix))[0] if seen else 0) + len(value)
            stored = prefix + COUNT.pack(total)
            bare.put(key, stored, options)
            changelog.append((key, stored))
            outputs.append((key, value, header_bytes))
        elapsed_s = time.perf_counter() - started
        database.close()
        return elapsed_s


def open_and_close_s() -> float:
    """Return seconds for a driver that is made and closed, with one store on RocksDB."""
    started = time.perf_counter()
    with TopologyTestDriver(topology(in_memory=False)):
        pass
    return time.perf_counter() - started


def main() -> int:
    """Measure, print, write the results file."""
    runs: dict[str, Callable[[], float]] = {
        "pipe_key_value_list": lambda: driven_s(lambda topic: topic.pipe_key_value_list(PAIRS)),
        "pipe_record_list, 3 headers": lambda: driven_s(lambda topic: topic.pipe_record_list(PIPED)),
        "pipe_input, 3 headers": lambda: driven_s(one_by_one),
        "pipe_key_value_list, in memory": lambda: driven_s(
            lambda topic: topic.pipe_key_value_list(PAIRS), in_memory=True
        ),
        "bare loop on rocksdict": bare_s,
    }
    least_s = best({**runs, "open and close": open_and_close_s}, ROUNDS)
    opened_s, bare_loop_s = least_s.pop("open and close"), least_s["bare loop on rocksdict"]
    per_s = {name: RECORDS / seconds for name, seconds in least_s.items()}
    print(f"== Test driver: get, put, forward, commit of each record, best of {ROUNDS} (records/s)")
    for name, found in per_s.items():
        print(f"   {name:34}{found:10,.0f}   {least_s[name] / bare_loop_s:5.1f} x the bare loop's time")
    met = "met" if per_s["pipe_key_value_list"] >= TARGET_RECORDS_PER_S else "NOT MET"
    print(f"   target of {TARGET_RECORDS_PER_S:,} with pipe_key_value_list: {met}")
    print(f"   a driver is made and closed in {opened_s * 1e3:.1f} ms")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"records_per_s": per_s, "open_and_close_s": opened_s}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
