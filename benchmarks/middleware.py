"""What a chain of interceptors costs a record, and each application of it: in one run, on one core, without Spark.

`python benchmarks/middleware.py` (part of `make bench`; `--records 20000 --rounds 5`). Records have a key of 8 bytes, a
value of JSON of some 200 bytes and four headers. Each is sent through the side that goes out, and what came of it
through the side that comes in, by itself and in columns; the best round counts. Where a hook for columns is missing, or
leaves records to the other one, they pass by themselves there too. What is subtracted is the same without interceptors.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from applications import applications, now_ms, serdes, value_of
from statestore import Headers, Serdes, Topology
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.headers.record_columns import RecordColumns
from statestore.headers.topic_columns import SINK_COLUMNS, SinkFields, sink_batch, sink_records, source_batch
from statestore.interception.failures import raise_refusal
from statestore.interception.task_passages import Ingest, TaskEmission
from statestore.middleware import EmittedRecord, IngestedRecord, Interceptor
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.punctuation import Punctuations
from statestore.processor.task_stores import StoreBacking, build_stores
from turns import best, seconds

RESULTS = Path(__file__).parent / "results" / "middleware.json"
NOW_MS = now_ms()
TARGETS_US = {"five without hooks": 1.0, "five that do nothing": 1.0, "edit of a header": 2.0}
"""What these may cost a record in columns, each side."""


class Idle(Interceptor):
    """Has no hook."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class Passing(Idle):
    """Has every hook for bytes, and does nothing."""

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        return records

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        return records


class Edit(Idle):
    """Adds a header on the way out, and takes it off on the way in."""

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        record.headers.remove("edited-by")
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        return records.without_header("edited-by")

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        record.headers.add("edited-by", b"somebody")
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        return records.with_header("edited-by", b"somebody")


@dataclass
class Costs:
    """Microseconds a record; None where a side has nothing to do."""

    emit: float
    emit_columns: float
    ingest: float
    ingest_columns: float


class Sides:
    """Both sides of a chain, on stores in memory."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        topology = Topology().add_source("in", None, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        around = topology.add_sink("out", "out", ["in"]).with_interceptors(interceptors)
        context = TaskRecordContext(NOW_MS, NOW_MS)
        stores = build_stores(around, context, lambda name: StoreBacking(MemoryByteStore(name)))
        self.made = TaskInterceptors(around.interceptors.values(), 0, context, stores, Punctuations({}), raise_refusal)
        self.made.init()
        self.sent: list[SinkFields] = []
        self.ingest = Ingest(self.made.interceptors)
        self.emission = TaskEmission(
            self.made.interceptors,
            lambda *record: self.sent.append(record),
            lambda batch: self.sent.extend(sink_records(batch)),
            raise_refusal,
            lambda: None,
            lambda *place: None,
        )

    def emit(self, records: Sequence[SinkFields]) -> None:
        self.sent.clear()
        for record in records:
            self.emission.send(*record)
        self.emission.flush()

    def close(self) -> None:
        for _, close in self.made.close():
            close()


def records_of(count: int) -> list[SinkFields]:
    made: list[SinkFields] = []
    for number in range(count):
        value = json.dumps(value_of(number))
        headers = [("tenant", b"eu"), ("content-type", b"application/json"), ("attempt", b"1"), ("n", b"%d" % number)]
        made.append(("out", NOW_MS + number, b"%08d" % (number % 1000), value.encode(), Headers(headers).to_bytes()))
    return made


def costs(interceptors: Sequence[Interceptor], records: Sequence[SinkFields], rounds: int) -> Costs:
    """Return what each way takes a record, with what it takes without interceptors."""
    sides = Sides(interceptors)
    batch = sink_batch(*zip(*records, strict=True))
    assert batch.schema == SINK_COLUMNS
    sides.emit(records)
    received = [("out", 0, offset, *record[1:]) for offset, record in enumerate(sides.sent)]
    in_columns = source_batch(received)
    ways: dict[str, Callable[[], Any]] = {
        "emit": lambda: sides.emit(records),
        "emit_columns": lambda: sides.emission.send_batch(batch, None),
        "ingest": lambda: [None for _ in sides.ingest.records(received)],
        "ingest_columns": lambda: list(sides.ingest.batches(in_columns)),
    }
    taken = best({name: partial(seconds, way) for name, way in ways.items()}, rounds)
    sides.close()
    return Costs(**{name: elapsed_s * 1e6 / len(records) for name, elapsed_s in taken.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="measure applications whose name has this in it, and record nothing")
    options = parser.parse_args()
    records = records_of(options.records)
    with tempfile.TemporaryDirectory() as home:
        chains: dict[str, Sequence[Interceptor]] = {
            "five without hooks": [Idle(str(number)) for number in range(5)],
            "five that do nothing": [Passing(str(number)) for number in range(5)],
            "edit of a header": [Edit("edit")],
            **applications(Path(home)),
        }
        found = {"nothing": costs([], records, options.rounds)}
        for name, chain in chains.items():
            if not options.only or options.only in name:
                found[name] = costs(chain, records, options.rounds)
                print(line(name, found[name], found["nothing"]), flush=True)
    written = {name: serde_costs(*functions, options.records, options.rounds) for name, functions in serdes().items()}
    for name, (write_us, read_us) in written.items():
        print(f"{name:33} us a record: write {write_us:7.2f}  read {read_us:7.2f}")
    if not options.only:
        RESULTS.parent.mkdir(exist_ok=True)
        figures = {"chains": {name: vars(each) for name, each in found.items()}, "serdes": written}
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def serde_costs(
    write: Callable[[Any], bytes], read: Callable[[bytes], Any], count: int, rounds: int
) -> tuple[float, float]:
    """Return what a serde takes to write and to read a value, in microseconds."""
    values = [value_of(number) for number in range(count)]
    data = [write(value) for value in values]
    ways = {"write": lambda: list(map(write, values)), "read": lambda: list(map(read, data))}
    taken = best({name: partial(seconds, way) for name, way in ways.items()}, rounds)
    return taken["write"] * 1e6 / count, taken["read"] * 1e6 / count


def line(name: str, cost: Costs, nothing: Costs) -> str:
    over = {way: max(0.0, taken - getattr(nothing, way)) for way, taken in vars(cost).items()}
    shown = "  ".join(f"{way.replace('_', ' ')} {taken:7.2f}" for way, taken in over.items())
    target = TARGETS_US.get(name)
    verdict = "" if target is None else f"  (target {target:g} in columns)"
    return f"{name:33} us a record: {shown}{verdict}"


if __name__ == "__main__":
    main()
