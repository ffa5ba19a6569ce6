"""Where a record has been: entries over mirrors, malformed trails, and the same in columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers, Processor, Record, Serdes, Topology
from statestore.errors import ConfigException
from statestore.errors.middleware import TrailRefusedError
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import Chain
from statestore.middleware.application import TRAIL_HEADER
from statestore.middleware.lineage.trail import MAX_ENTRIES, Entry, PaperTrail, Trail, read_trail
from statestore.testing import TopologyTestDriver
from tests.support.passed_records import Clocks, arrived, contents, in_columns, produced, started

GOLDEN = bytes.fromhex(
    "01 03 02"
    "05 73686f70 03 6575 07 6f7264657273 80a0abfef962 00 00"
    "07 6d6972726f72 00 00 82a0abfef962 03 6575 07 6f7264657273"
)
SHOP = Entry("shop", "eu", "orders", 1_700_000_000_000)
MIRROR = Entry("mirror", when_ms=1_700_000_000_001, read_from_cluster="eu", read_from_topic="orders")


class Hop:
    """A party that reads what is written to it, and writes it on."""

    def __init__(self, name: str, from_cluster: str, into_cluster: str, now_ms: int) -> None:
        trail = PaperTrail(name, read_from_cluster=from_cluster, produced_into_cluster=into_cluster)
        self.chain = Chain([started(trail, Clocks(now_ms))])

    def mirror(self, record: Any, topic: str) -> Any:
        [read] = self.chain.ingest(arrived(record))
        [written] = self.chain.emit(produced(read.key, read.value, read.headers, topic))
        return written


def test_b11_each_hop_extends_the_entry_that_its_reading_made() -> None:
    shop = Chain([started(PaperTrail("shop", produced_into_cluster="eu"), Clocks(10))])
    [record] = shop.emit(produced(headers=[("tenant", b"eu")], topic="orders"))
    assert read_trail(record.headers) == Trail((Entry("shop", "eu", "orders", 10),))
    for hop, topic in ((Hop("m1", "eu", "us", 20), "eu.orders"), (Hop("m2", "us", "ap", 30), "us.orders")):
        record = hop.mirror(record, topic)
    record = Hop("m3", "ap", "eu", 40).mirror(record, "ap.orders")
    [read] = Chain([started(PaperTrail("billing", read_from_cluster="eu"), Clocks(50))]).ingest(arrived(record))
    assert read_trail(read.headers).entries == (
        Entry("shop", "eu", "orders", 10),
        Entry("m1", "us", "eu.orders", 20, "eu", "orders"),
        Entry("m2", "ap", "us.orders", 30, "us", "eu.orders"),
        Entry("m3", "eu", "ap.orders", 40, "ap", "us.orders"),
        Entry("billing", None, None, 50, "eu", "ap.orders"),
    )
    assert [header.key for header in read.headers] == ["tenant", TRAIL_HEADER]


class Forward(Processor):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def test_b11_mirrors_are_test_drivers_too() -> None:
    record, hops = None, ["a", "b", "c", "d"]
    for number, (source, sink) in enumerate(pairwise(hops)):
        topology = Topology()
        topology.add_source("in", [source], key_serde=Serdes.string(), value_serde=Serdes.string())
        topology.add_processor("forward", Forward, ["in"])
        topology.add_sink("out", sink, ["forward"], key_serde=Serdes.string(), value_serde=Serdes.string())
        interceptors = [PaperTrail(f"mirror-{source}")]
        with TopologyTestDriver(topology, interceptors=interceptors, initial_wall_clock_time_ms=number) as driver:
            ends = driver.create_input_topic(source, key_serde=Serdes.string(), value_serde=Serdes.string())
            ends.pipe_input("k", "v") if record is None else ends.pipe_input(record)
            out = driver.create_output_topic(sink, key_serde=Serdes.string(), value_serde=Serdes.string())
            record = out.read_record()
    assert read_trail(record.headers).entries == (
        Entry("mirror-a", None, "b", 0, None, "a"),
        Entry("mirror-b", None, "c", 1, None, "b"),
        Entry("mirror-c", None, "d", 2, None, "c"),
    )


def test_b11_what_is_written_twice_is_two_entries() -> None:
    [first] = Chain([PaperTrail("a")]).emit(produced(topic="x"))
    [second] = Chain([PaperTrail("b")]).emit(produced(headers=first.headers, topic="y"))
    assert [(entry.by_whom, entry.produced_into_topic) for entry in read_trail(second.headers).entries] == [
        ("a", "x"),
        ("b", "y"),
    ]


def test_b11_the_host_is_who_it_is_if_nobody_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host-7")
    [record] = Chain([PaperTrail()]).emit(produced())
    assert read_trail(record.headers).entries[0].by_whom == "host-7"


def test_the_oldest_entries_go_and_are_counted() -> None:
    headers = Headers()
    trail = started(PaperTrail("a", max_entries=3))
    for number in range(5):
        [record] = Chain([trail]).ingest(ConsumerRecord(f"t{number}", 0, 0, key=None, value=None, headers=headers))
        headers = record.headers
    found = read_trail(headers)
    assert [entry.read_from_topic for entry in found.entries] == ["t2", "t3", "t4"]
    assert found.dropped_entries == 2


def test_a_trail_is_written_as_it_was_at_first() -> None:
    trail = Trail((SHOP, MIRROR), dropped_entries=3)
    assert trail.to_bytes().hex() == GOLDEN.hex()
    assert Trail.from_bytes(GOLDEN) == trail


def malformed() -> list[bytes]:
    cut = [GOLDEN[:size] for size in range(len(GOLDEN))]
    texts = [GOLDEN.replace(b"shop", b"\xff\xff\xff\xff"), GOLDEN.replace(b"\x05shop", b"\x00")]
    counts = [b"\x01\x00\x00", b"\x01\x00\x41" + GOLDEN[3:], b"\x01\xff\xff\xff\xff\x0f" + GOLDEN[2:]]
    sizes = [b"\x01\x00\x01\x81\x02" + b"a" * 256 + b"\0\0\0\0\0", b"\x01\x00\x01\xff\xff\xff\xff\x0f"]
    longer = [GOLDEN + b"\0", b"\x02" + GOLDEN[1:], b"\x01\x83\x00" + GOLDEN[2:], b"[]", b"\x01" * 1000]
    times = [b"\x01\x00\x01\x02a\0\0" + time + b"\0\0" for time in (b"\x01", b"\x80\x00", b"\xff" * 9 + b"\x03")]
    return [*cut, *texts, *counts, *sizes, *longer, *times]


@pytest.mark.parametrize("value", malformed(), ids=range(len(malformed())))
def test_b11_a_malformed_trail_is_refused(value: bytes) -> None:
    trail = PaperTrail("a")
    for refused in (
        lambda: Chain([trail]).ingest(arrived(produced(headers=[(TRAIL_HEADER, value)]))),
        lambda: Chain([trail]).emit(produced(headers=[(TRAIL_HEADER, value)])),
        lambda: trail.on_ingest_columns(in_columns([produced(headers=[(TRAIL_HEADER, value)])])),
    ):
        with pytest.raises(TrailRefusedError) as raised:
            refused()
        assert raised.value.header == TRAIL_HEADER


TEXTS = st.text(max_size=30)
ENTRIES = st.builds(
    Entry,
    TEXTS,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.integers(0, 2**63 - 1),
    st.none() | TEXTS,
    st.none() | TEXTS,
)
TRAILS = st.builds(Trail, st.lists(ENTRIES, min_size=1, max_size=MAX_ENTRIES).map(tuple), st.integers(0, 2**31 - 1))


@given(TRAILS)
def test_a_trail_reads_back(trail: Trail) -> None:
    assert Trail.from_bytes(trail.to_bytes()) == trail


@given(st.none() | TRAILS, st.integers(1, MAX_ENTRIES))
def test_a_hop_adds_to_what_is_there_or_extends_it(before: Trail | None, max_entries: int) -> None:
    trail = started(PaperTrail("me", max_entries=max_entries, read_from_cluster="r", produced_into_cluster="w"))
    now_ms = Clocks().current_system_time_ms
    headers = [] if before is None else [(TRAIL_HEADER, before.to_bytes())]
    entries, dropped = ((), 0) if before is None else (before.entries, before.dropped_entries)

    def bounded(found: tuple[Entry, ...]) -> Trail:
        excess = max(0, len(found) - max_entries)
        return Trail(found[excess:], min(dropped + excess, 2**31 - 1))

    [read] = trail.on_ingest(arrived(produced(headers=headers)))
    assert read_trail(read.headers) == bounded((*entries, Entry("me", None, None, now_ms, "r", "orders")))
    [written] = trail.on_emit(produced(headers=headers))
    if entries and entries[-1].produced_into_topic is None:
        last = entries[-1]._replace(produced_into_cluster="w", produced_into_topic="orders")
        assert read_trail(written.headers) == Trail((*entries[:-1], last), dropped)
    else:
        assert read_trail(written.headers) == bounded((*entries, Entry("me", "w", "orders", now_ms)))


@given(st.lists(st.tuples(st.none() | TRAILS, st.sampled_from(["a", "b"])), max_size=6))
def test_columns_have_what_single_records_have(rows: list[tuple[Trail | None, str]]) -> None:
    def made() -> list[Any]:
        return [
            produced(headers=[("x", b"1")] if trail is None else [(TRAIL_HEADER, trail.to_bytes())], topic=topic)
            for trail, topic in rows
        ]

    trail = started(PaperTrail("me", max_entries=4, read_from_cluster="r", produced_into_cluster="w"))
    for hook, records in (("on_emit", made()), ("on_ingest", [arrived(one) for one in made()])):
        columns: RecordColumns = getattr(trail, f"{hook}_columns")(in_columns(records))
        assert contents(columns) == contents([next(iter(getattr(trail, hook)(record))) for record in records])


@pytest.mark.parametrize(
    "arguments", [{"by_whom": ""}, {"by_whom": "é" * 128}, {"read_from_cluster": ""}, {"max_entries": 0}]
)
def test_arguments_that_can_not_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"text|max_entries"):
        PaperTrail(**arguments)


def test_properties_make_one() -> None:
    made = PaperTrail.from_config(
        {"statestore.trail.by.whom": "me", "statestore.trail.produced.into.cluster": "eu", "other": "x"}
    )
    [record] = Chain([made]).emit(produced(topic="t"))
    assert read_trail(record.headers).entries[0][:3] == ("me", "eu", "t")
    with pytest.raises(ConfigException):
        PaperTrail.from_config({"statestore.trail.max.entries": "65"})
